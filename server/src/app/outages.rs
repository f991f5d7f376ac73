//! What the program writes when a store fails for a while, and when it is called again.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Store;
use tidegate_core::layers::{BreakerWatch, CircuitState};

/// How often the circuit breaker is looked at. A store is not asked for it.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long a store that fails may take to say why.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Reports each outage of a store at its beginning and its end: `name` is that of the store. Never returns.
pub(crate) async fn report(name: String, store: Arc<dyn Store>, breaker: BreakerWatch) {
    let mut seen = breaker.times_opened();
    let mut is_out = false;
    loop {
        let opened = breaker.times_opened();
        if !is_out && opened != seen {
            let reason = match tokio::time::timeout(TIMEOUT, store.ready()).await {
                Ok(Ok(())) => "it answers again by now".to_owned(),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no answer within {TIMEOUT:?}"),
            };
            tracing::error!(
                "{name} has failed several times in a row, and is not called for a while: {reason}"
            );
            is_out = true;
        }
        if is_out && breaker.state() == CircuitState::Closed {
            tracing::info!("{name} is called again");
            is_out = false;
        }
        seen = opened;
        tokio::time::sleep(INTERVAL).await;
    }
}
