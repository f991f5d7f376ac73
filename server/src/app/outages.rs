//! Logs when the circuit breaker stops the calls to a failing store, and when the calls start
//! again.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Store;
use tidegate_core::layers::{BreakerWatch, CircuitState};

/// The interval at which the state of the circuit breaker is read. Reading it does not call the
/// store.
const INTERVAL: Duration = Duration::from_millis(250);

/// The timeout of a call to a failing store. The call determines why the store fails.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Logs the start and the end of each outage of a store. `name` is the name of the store in the
/// log. This function never returns.
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
