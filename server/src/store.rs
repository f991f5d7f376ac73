//! Opens the store in which a server keeps its counts. The store is given by a URL or by the
//! environment variables of envoyproxy/ratelimit.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::{LimitBook, StoreBuilder};
use tidegate_core::layers::{BreakerWatch, LeasedStore};
use tidegate_core::{
    Breaker, Error, ErrorKind, Lease, OnFailure, Share, Store, StoreExt, Warnings,
};
use tidegate_memory::MemoryStore;

/// The URL of the store in the memory of this process.
pub const MEMORY: &str = "memory";

/// Opens the store at `url`, which is `memory` or a URL that [`StoreBuilder`] supports. The store
/// connects later.
///
/// Every store has metrics. Calls to a store on a server are also sent in batches, have a timeout
/// and a circuit breaker, and are leased if their policies are marked as leased.
///
/// ```
/// use std::time::Duration;
/// use tidegate_server::store::{StoreSettings, open};
///
/// let settings = StoreSettings { prefix: "edge".into(), ..StoreSettings::default() };
/// assert!(open("memory", &settings).is_ok());
/// assert!(open("redis://127.0.0.1", &settings).is_ok());
/// assert!(open("127.0.0.1", &settings).is_err());
/// ```
///
/// # Errors
///
/// Returns an error if `url` is not `memory` and not a supported URL, or if the settings are not
/// valid.
pub fn open(url: &str, settings: &StoreSettings) -> Result<Arc<dyn Store>, Error> {
    open_watched(url, settings, Warnings::new(|_| {})).map(|opened| opened.store)
}

/// A store with its layers, and handles to the layers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenedStore {
    /// The store with all layers.
    pub store: Arc<dyn Store>,
    /// The state of the circuit breaker; `None` for a store in memory.
    pub breaker: Option<BreakerWatch>,
    /// The leases of the store; `None` for a store in memory.
    pub leases: Option<LeasedStore<Arc<dyn Store>>>,
    /// The limit set that is kept in the store; `None` for a store in memory.
    pub limit_book: Option<LimitBook>,
}

/// Like [`open`], but also reports warnings, and returns handles to the layers.
///
/// # Errors
///
/// Returns the same errors as [`open`].
pub fn open_watched(
    url: &str,
    settings: &StoreSettings,
    warnings: Warnings,
) -> Result<OpenedStore, Error> {
    if url == MEMORY {
        let store = Arc::new(MemoryStore::new().warned(warnings).observed());
        return Ok(OpenedStore { store, breaker: None, leases: None, limit_book: None });
    }
    let builder = builder(url, settings)?.response_timeout(settings.timeout);
    let (store, limit_book) = builder.build_with_limit_book()?;
    let store = store.coalesced();
    let store = store.timeout(settings.timeout).breaker(Breaker::new());
    let breaker = Some(store.watch());
    let store: Arc<dyn Store> = Arc::new(store);
    let leased = store.leased(Lease::new().only_marked().span(settings.lease_span));
    let store = Arc::new(leased.clone().warned(warnings).observed());
    Ok(OpenedStore { store, breaker, leases: Some(leased), limit_book: Some(limit_book) })
}

/// Opens the store at `url` without layers, and the limit set that is kept in it.
///
/// # Errors
///
/// Returns the errors of [`open`]. Also returns an error if the store is `memory`, which ends with
/// the process and keeps no limit set.
pub fn open_limit_book(
    url: &str,
    settings: &StoreSettings,
) -> Result<(Arc<dyn Store>, LimitBook), Error> {
    if url == MEMORY {
        let message = format!("the store is `{MEMORY}`, which cannot keep a limit set");
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    builder(url, settings)?.response_timeout(settings.timeout).build_with_limit_book()
}

fn builder(url: &str, settings: &StoreSettings) -> Result<StoreBuilder, Error> {
    let builder = StoreBuilder::from_url(url).map_err(|error| match url.contains("://") {
        true => error,
        false => error.with_context(format!("it is not `{MEMORY}`")),
    })?;
    let mut builder = builder.connections(settings.connections);
    if !settings.prefix.is_empty() {
        builder = builder.prefix(&settings.prefix);
    }
    if !settings.password.0.is_empty() {
        builder = builder.password_if_none(&settings.password.0);
    }
    builder = match settings.sentinel_auth.parts() {
        Some((Some(user), password)) => builder.sentinel_user(user, password),
        Some((None, password)) => builder.sentinel_password(password),
        None => builder,
    };
    if is_encrypted(url) {
        builder = settings.certificates.add_to(builder);
    }
    Ok(builder)
}

/// The settings of connections to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// The prefix of all keys. If it is empty, the prefix is `tidegate`.
    pub prefix: String,
    /// The timeout of calls.
    pub timeout: Duration,
    /// The [span](Lease::span) of leases.
    pub lease_span: Duration,
    /// The number of connections, which are used in turn. Each connection carries any number of
    /// concurrent calls.
    pub connections: usize,
    /// The password. If the URL contains a password, the password of the URL is used.
    pub password: Auth,
    /// The login for Sentinels.
    pub sentinel_auth: Auth,
    /// The certificates of encrypted connections.
    pub certificates: Certificates,
}

/// A password, or `user:password`; empty for none.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Auth(pub String);

impl Auth {
    /// Returns the user, if there is one, and the password.
    fn parts(&self) -> Option<(Option<&str>, &str)> {
        match self.0.split_once(':') {
            _ if self.0.is_empty() => None,
            Some(("", password)) => Some((None, password)),
            Some((user, password)) => Some((Some(user), password)),
            None => Some((None, &self.0)),
        }
    }
}

/// Formats the value without the password.
impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// The certificates of encrypted connections to a store (PEM).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Certificates {
    /// The trusted root certificates; `None` for the roots of the system.
    pub roots: Option<Vec<u8>>,
    /// The client certificate that is presented to the store, and its private key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    fn add_to(&self, mut builder: StoreBuilder) -> StoreBuilder {
        if let Some(roots) = &self.roots {
            builder = builder.root_certificates(&roots[..]);
        }
        match &self.client {
            Some((certificate, key)) => builder.client_certificate(&certificate[..], &key[..]),
            None => builder,
        }
    }
}

/// Formats the value without certificates and keys.
impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

/// Returns `true` if connections to the store at `url` are encrypted.
#[must_use]
pub fn is_encrypted(url: &str) -> bool {
    url.starts_with("rediss") || url.starts_with("valkeys:")
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            timeout: Duration::from_secs(10),
            lease_span: Duration::from_secs(1),
            connections: 1,
            password: Auth::default(),
            sentinel_auth: Auth::default(),
            certificates: Certificates::default(),
        }
    }
}

/// The answer to a request that the store cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnStoreError {
    /// An error. Envoy then admits or refuses the request according to its `failure_mode_deny`.
    #[default]
    Error,
    /// The request is admitted.
    Allow,
    /// The request is refused.
    Deny,
    /// This server decides the request in its memory, with a share of each limit. If the shares of
    /// all servers add up to 1, the servers together admit at most the limit while the store is
    /// away.
    Share(Share),
}

impl OnStoreError {
    /// Returns a store that passes calls to `store`, and gives this answer if `store` fails. For
    /// [`Self::Share`], `memory` decides with a share of each limit.
    #[must_use]
    pub fn around(self, store: Arc<dyn Store>, memory: &Arc<dyn Store>) -> Arc<dyn Store> {
        match self {
            Self::Error => store,
            Self::Allow => Arc::new(store.or_fail_open()),
            Self::Deny => Arc::new(store.or_fail_closed()),
            Self::Share(share) => {
                let fallback = OnFailure::fall_back_to(Arc::clone(memory), share);
                Arc::new(store.on_failure(fallback.accept_no_share()))
            }
        }
    }
}
