use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use super::contents::Contents;
use super::{Inner, Loaded, TlsError};
use crate::reload::INTERVAL;

/// Loads the files whenever they have changed: see [`super::Tls::follow`].
pub(super) async fn follow(inner: &Arc<Inner>, report: impl Fn(Result<(), TlsError>)) {
    let mut handled: Result<Contents, TlsError> = Ok(inner.current.load().contents.clone());
    let mut before: Option<Result<Contents, TlsError>> = None;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let settings = inner.settings.clone();
        let read = tokio::task::spawn_blocking(move || Contents::read(&settings));
        // The blocking task is cancelled only when the runtime shuts down.
        let Ok(now) = read.await else { continue };
        let is_settled = before.as_ref() == Some(&now);
        if is_settled && handled != now {
            report(load(inner, now.clone()));
            handled.clone_from(&now);
        }
        before = Some(now);
    }
}

fn load(inner: &Inner, contents: Result<Contents, TlsError>) -> Result<(), TlsError> {
    let loaded =
        contents.and_then(|contents| Loaded::new(inner.protocol, &inner.settings, contents));
    inner.stats.reload(loaded.is_ok());
    let loaded = loaded?;
    inner.stats.expires(loaded.expires);
    inner.current.store(Arc::new(loaded));
    Ok(())
}
