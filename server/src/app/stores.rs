//! The stores of the program.

use std::sync::Arc;

use tidegate_cluster::LimitBook;
use tidegate_core::layers::LeasedStore;
use tidegate_core::{Store, Warnings};
use tidegate_server::observe::activity::WatchedStore;
use tidegate_server::store::{MEMORY, OpenedStore, StoreSettings, open_watched};

use super::{Failure, outages};

/// An open store, and the [`WatchedStore`] that the page shows for it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) leases: Option<LeasedStore<Arc<dyn Store>>>,
    pub(super) limit_book: Option<LimitBook>,
    pub(super) watched: WatchedStore,
}

/// Opens a store that reports `warnings`, and spawns a task that logs the outages of the store.
/// `role` is the name of the store on the page, and `name` is its name in messages. A store that is
/// down at the start is not an error: the server handles this outage like a later outage.
///
/// # Errors
///
/// Returns an error if the URL is not valid.
pub(super) async fn open(
    role: &'static str,
    name: &str,
    url: &str,
    settings: &StoreSettings,
    warnings: Warnings,
) -> Result<Opened, Failure> {
    let OpenedStore { store, breaker, leases, limit_book, .. } =
        open_watched(url, settings, warnings)?;
    let stats = leases.as_ref().map(LeasedStore::stats);
    let watched = WatchedStore::new(role, url, Arc::clone(&store), breaker.clone());
    let watched = watched.with_leases(stats);
    let url = watched.url();
    if url == MEMORY {
        tracing::info!(
            "{name} is the memory of this process: counts end with it, and no other server has them"
        );
    } else {
        tracing::info!("{name} is {url}");
    }
    if let Err(error) = store.ready().await {
        tracing::error!("{name} is not ready: {error:#}");
    }
    if let Some(breaker) = breaker {
        // This task runs until the program ends.
        tokio::spawn(outages::report(name.to_owned(), Arc::clone(&store), breaker));
    }
    Ok(Opened { store, leases, limit_book, watched })
}
