use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use redis::cluster::NodeAddress;
#[cfg(feature = "virtual-time")]
use tidegate_core::Clock;
use tidegate_core::{Error, ErrorKind};
use tidegate_redis::ProvidedCredentials;
use tidegate_redis::connection::{
    CredentialsProvider, ScriptTimes, Settings, is_encrypted, parse_url, unusable_url,
};
use tidegate_redis::wire::Keys;

use crate::cluster_store::ClusterStore;
use crate::dispatch::wait_replicas::Replicas;
use crate::inner::Inner;
use crate::routing::node::Access;
use crate::routing::refresh::TopologyRefresh;
use crate::routing::slot_map::SlotMap;

/// Configures a [`ClusterStore`].
///
/// ```
/// use std::time::Duration;
/// use tidegate_cluster::ClusterStore;
///
/// let store = ClusterStore::builder()
///     .urls(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"])
///     .user("tidegate", "secret")
///     .prefix("shop")
///     .response_timeout(Duration::from_millis(50))
///     .build()?; // connects at the first call
/// # Ok::<(), tidegate_cluster::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClusterStoreBuilder {
    urls: Vec<String>,
    replicas: Option<Replicas>,
    settings: Settings,
}

impl ClusterStoreBuilder {
    pub(crate) fn new() -> Self {
        Self { urls: vec![], replicas: None, settings: Settings::default() }
    }

    /// Sets the URLs of some nodes of the cluster, as in [`ClusterStore::new`]. These nodes report
    /// all others. With several URLs, the store finds the cluster while a node is down.
    ///
    /// The scheme, user and password must be the same in all URLs. The store uses them for all
    /// nodes, and connects to the addresses that the nodes announce to each other.
    pub fn urls(self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { urls: urls.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the ACL user and its password, instead of those in the URLs.
    ///
    /// The user needs the commands that
    /// [`RedisStoreBuilder::user`](tidegate_redis::RedisStoreBuilder::user) lists, CLUSTER SLOTS
    /// and ASKING, and WAIT if [`wait_for_replicas`](Self::wait_for_replicas) is set.
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (Some(name.into()), Some(password.into()));
        Self { settings: Settings { user, password, ..self.settings }, ..self }
    }

    /// Sets the password, such as one from a file of secrets, instead of the password in the URLs.
    /// The user is still the one in the URLs or of [`user`](Self::user).
    pub fn password(self, password: impl Into<String>) -> Self {
        let password = Some(password.into());
        Self { settings: Settings { password, ..self.settings }, ..self }
    }

    /// Calls `provider` for the user and the password of each login at any node, instead of those
    /// in the URLs. See
    /// [`RedisStoreBuilder::credentials`](tidegate_redis::RedisStoreBuilder::credentials).
    pub fn credentials<F>(self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ProvidedCredentials> + Send + 'static,
    {
        let credentials = Some(CredentialsProvider::new(provider));
        Self { settings: Settings { credentials, ..self.settings }, ..self }
    }

    /// Sets the prefix of all keys. Default: `tidegate`. Stores with the same prefix share their
    /// states.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { settings: Settings { prefix: prefix.into(), ..self.settings }, ..self }
    }

    /// Sets the number of connections to each node, which the store uses in turn, at least 1.
    /// Default: 1.
    ///
    /// One connection carries any number of concurrent calls. More connections help if one core is
    /// not enough to read and write them, and if calls [wait for
    /// replicas](Self::wait_for_replicas).
    pub fn connections(self, connections: usize) -> Self {
        Self { settings: Settings { connections, ..self.settings }, ..self }
    }

    /// Sets the maximum time for connecting to a node. Default: 1 s.
    ///
    /// **A call that finds no connection to its node waits for one for at most this time**, in
    /// addition to the [response timeout](Self::response_timeout). See
    /// [`tidegate_redis`](tidegate_redis#connections) for other properties of connections.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { connect_timeout: timeout, ..self.settings }, ..self }
    }

    /// Sets the maximum time from sending a call to the reply of its node. Default: 500 ms.
    ///
    /// After this time, the call fails with [`ErrorKind::Timeout`], and it is not known whether it
    /// was charged. A connection on which a reply has been due for this time, without any reply
    /// arriving, is replaced.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { response_timeout: timeout, ..self.settings }, ..self }
    }

    /// Requires that `count` replicas have each write. Default: 0.
    ///
    /// Replicas lag behind, so a failover loses the last writes of a primary, and the new primary
    /// may admit these calls again. With this setting, each call that may write waits (by WAIT, in
    /// the same round trip) for at most `timeout` until `count` replicas have the write. If fewer
    /// replicas have it in time, an admission fails with [`ErrorKind::Unavailable`], although it is
    /// charged. The same holds for refunds, resets and blocks. Refusals charge nothing and are
    /// returned in any case.
    ///
    /// This makes the loss of admissions unlikely but not impossible, because Redis may promote a
    /// replica that does not have the write. It costs a round trip to the replicas, during which
    /// the connection transfers nothing else. Use [several connections](Self::connections).
    pub fn wait_for_replicas(self, count: u32, timeout: Duration) -> Self {
        let replicas = Replicas { count: u64::from(count), timeout };
        Self { replicas: (count > 0).then_some(replicas), ..self }
    }

    /// Sets the root certificates (PEM) to trust instead of those of the system.
    ///
    /// Nodes announce their addresses, usually IP addresses. The certificate of a node must contain
    /// its address.
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        let root_certificates = Some(pem.into());
        Self { settings: Settings { root_certificates, ..self.settings }, ..self }
    }

    /// Sets a certificate or chain and its key (both PEM), which the client presents to servers
    /// that authenticate clients (`tls-auth-clients` in the configuration of Redis).
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let client_certificate = Some((pem.into(), key.into()));
        Self { settings: Settings { client_certificate, ..self.settings }, ..self }
    }

    /// Sets a clock that replaces the clocks of the nodes, for tests.
    ///
    /// The keys expire an hour later than usual, because real time must not expire a state that
    /// virtual time keeps.
    #[cfg(feature = "virtual-time")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let clock: Option<Arc<dyn Clock>> = Some(Arc::new(clock));
        Self { settings: Settings { clock, ..self.settings }, ..self }
    }

    /// Builds the store. It does not connect yet.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] in these cases:
    ///
    /// * There are no URLs, or one is not valid or names a database.
    /// * The URLs differ in the scheme, the user or the password.
    /// * Certificates cannot be read.
    /// * The time to wait for replicas is less than a millisecond, or not less than the
    ///   [response timeout](Self::response_timeout).
    pub fn build(self) -> Result<ClusterStore, Error> {
        self.check_wait()?;
        let infos = self.infos()?;
        let Some(first) = infos.first() else {
            return Err(invalid(
                "the list of URLs is empty; it must have the URL of at least one node".to_owned(),
            ));
        };
        let access = Access::new(first.clone(), self.settings.clone())?;
        let mut seeds = vec![];
        for (info, url) in infos.iter().zip(&self.urls) {
            let address = NodeAddress::try_from(info.addr());
            let address = address
                .map_err(|_| unusable_url(url, "the URL of a node must have a host and a port"))?;
            seeds.push(Arc::new(access.node(address)));
        }
        let map = Arc::new(SlotMap::new(access, seeds));
        Ok(ClusterStore::from_inner(Inner {
            keys: Keys::new(&self.settings.prefix),
            topology: Arc::new(TopologyRefresh::new(Arc::clone(&map))),
            slot_map: map,
            replicas: self.replicas,
            script_times: ScriptTimes::default(),
            clock: self.settings.clock,
        }))
    }

    /// Parses the URLs, and checks that they differ only in the addresses.
    fn infos(&self) -> Result<Vec<ConnectionInfo>, Error> {
        let mut infos: Vec<ConnectionInfo> = vec![];
        for url in &self.urls {
            let info = parse_url(url)?;
            let database = info.redis_settings().db();
            if database != 0 {
                let why = format!("its database is {database}; a cluster has no database but 0");
                return Err(unusable_url(url, &why));
            }
            let info = self.settings.with_user(info);
            if let Some(first) = infos.first().filter(|first| !is_alike(first, &info)) {
                return Err(invalid(format!(
                    "the URLs of {} and {} differ in the scheme, the user or the password",
                    first.addr(),
                    info.addr()
                )));
            }
            infos.push(info);
        }
        Ok(infos)
    }

    fn check_wait(&self) -> Result<(), Error> {
        let Some(Replicas { timeout, .. }) = self.replicas else { return Ok(()) };
        let max = self.settings.response_timeout;
        if timeout < Duration::from_millis(1) || timeout >= max {
            return Err(invalid(format!(
                "the time to wait for replicas is {timeout:?}; it must be at least 1ms and less than the response \
                 timeout, {max:?}"
            )));
        }
        Ok(())
    }
}

/// Returns `true` if the URLs have the same login and the same encryption.
fn is_alike(one: &ConnectionInfo, other: &ConnectionInfo) -> bool {
    let login = |info: &ConnectionInfo| {
        let settings = info.redis_settings();
        (settings.username().map(str::to_owned), settings.password().map(str::to_owned))
    };
    login(one) == login(other) && is_encrypted(one) == is_encrypted(other)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

impl ClusterStore {
    /// Creates a store on the cluster to which these nodes belong. The URL of one node suffices:
    /// `redis://[user:password@]host[:port]`, or `rediss://…` for TLS.
    ///
    /// The store connects at the first call, and then loads the slot map.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] if there are no URLs, if one is not valid or names a
    /// database, or if they differ in more than the address.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        Self::builder().urls(urls).build()
    }

    /// Creates a builder for a store with other settings.
    pub fn builder() -> ClusterStoreBuilder {
        ClusterStoreBuilder::new()
    }
}

impl fmt::Debug for ClusterStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the URLs, which may contain passwords.
        f.debug_struct("ClusterStoreBuilder")
            .field("replicas", &self.replicas)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
