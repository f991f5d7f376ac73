use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use super::contents::Contents;
use super::{Inner, Loaded, TlsError};
use crate::limits::reload::INTERVAL;

/// See [`super::Tls::follow`].
pub(super) async fn follow(inner: &Arc<Inner>, report: impl Fn(Result<(), TlsError>)) {
    let mut handled: Result<Contents, TlsError> = Ok(inner.current.load().contents.clone());
    let mut before: Option<Result<Contents, TlsError>> = None;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let settings = inner.settings.clone();
        let read = tokio::task::spawn_blocking(move || Contents::read(&settings));
        // The task is only cancelled when the runtime ends.
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
    let loaded = contents.and_then(|it| Loaded::new(inner.protocol, &inner.settings, it));
    inner.stats.reload(loaded.is_ok());
    let loaded = loaded?;
    inner.stats.expires(loaded.expires);
    inner.current.store(Arc::new(loaded));
    Ok(())
}
