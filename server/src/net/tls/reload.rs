use std::sync::Arc;

use super::contents::Contents;
use super::{Inner, Loaded, TlsError};
use crate::net::watch;

/// See [`super::Tls::follow`].
pub(super) async fn follow(inner: &Arc<Inner>, report: impl Fn(Result<(), TlsError>)) {
    let settings = inner.settings.clone();
    let current = Ok(inner.current.load().contents.clone());
    let read = move || Contents::read(&settings);
    watch::follow(current, read, |contents| report(load(inner, contents.clone()))).await;
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
