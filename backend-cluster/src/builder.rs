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
use tidegate_redis::protocol::Keys;

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

    /// Sets the URLs of some nodes of the cluster, in the form that [`ClusterStore::new`]
    /// describes. These nodes report all other nodes. With several URLs, the store finds the
    /// cluster even while one of these nodes is down.
    ///
    /// The scheme, user and password must be the same in all URLs, because the store uses them for
    /// all nodes. The store connects to the addresses that the nodes announce to each other.
    pub fn urls(self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { urls: urls.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the ACL user and the password. They replace the user and the password in the URLs.
    ///
    /// The user needs permission for the commands that
    /// [`RedisStoreBuilder::user`](tidegate_redis::RedisStoreBuilder::user) lists, for CLUSTER
    /// SLOTS and for ASKING. If [`wait_for_replicas`](Self::wait_for_replicas) is set, the user
    /// also needs permission for WAIT.
    ///
    /// For [wake-ups](tidegate_redis#wake-ups), the store has an extra connection per node.
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (Some(name.into()), Some(password.into()));
        Self { settings: Settings { user, password, ..self.settings }, ..self }
    }

    /// Sets the password, for example a password that a program reads from a file. It replaces the
    /// password in the URLs, and does not change the user.
    pub fn password(self, password: impl Into<String>) -> Self {
        let password = Some(password.into());
        Self { settings: Settings { password, ..self.settings }, ..self }
    }

    /// Sets a function that returns the user and the password. The store calls `provider` before
    /// each login at any node. The result replaces the user and the password in the URLs. See
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

    /// Sets the number of connections to each node, at least 1. The store uses the connections of a
    /// node in turn. Default: 1.
    ///
    /// One connection carries any number of concurrent calls. Use more connections if one core is
    /// not enough to read and write all calls, or if calls [wait for
    /// replicas](Self::wait_for_replicas).
    pub fn connections(self, connections: usize) -> Self {
        Self { settings: Settings { connections, ..self.settings }, ..self }
    }

    /// Sets the maximum time for making a connection to a node. Default: 1 s.
    ///
    /// **If the store has no connection to a node, a call to the node waits for a connection, but
    /// at most for `timeout`.** The [response timeout](Self::response_timeout) begins after this
    /// wait. [`tidegate_redis`](tidegate_redis#connections) describes other properties of
    /// connections.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { connect_timeout: timeout, ..self.settings }, ..self }
    }

    /// Sets the maximum time between sending a call and receiving the reply of the node. Default:
    /// 500 ms.
    ///
    /// If no reply arrives within `timeout`, the call fails with [`ErrorKind::Timeout`]. The node
    /// has possibly charged the call. If a connection with calls in flight receives no reply for
    /// this time, the store replaces the connection.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { response_timeout: timeout, ..self.settings }, ..self }
    }

    /// Requires that `count` replicas have received each write. Default: 0.
    ///
    /// A replica receives a write later than its primary. So a failover can lose the last writes of
    /// a primary, and the new primary can admit these amounts again. With this setting, the store
    /// sends the command WAIT together with each call that can write. The call then waits until
    /// `count` replicas have received the write, but at most for `timeout`.
    ///
    /// If fewer replicas have received the write after `timeout`, an admitted call fails with
    /// [`ErrorKind::Unavailable`], although it is charged. Refunds, resets and blocks also fail,
    /// although they are executed. A refused call charges nothing, so its decision is always
    /// returned.
    ///
    /// Even with this setting, a failover can lose a write, because Redis can promote a replica
    /// that has not received the write. Each write takes longer by a round trip to the replicas.
    /// The connection transfers nothing else during this round trip, so use [several
    /// connections](Self::connections).
    pub fn wait_for_replicas(self, count: u32, timeout: Duration) -> Self {
        let replicas = Replicas { count: u64::from(count), timeout };
        Self { replicas: (count > 0).then_some(replicas), ..self }
    }

    /// Sets the root certificates that the store trusts, in PEM format. They replace the root
    /// certificates of the system.
    ///
    /// The certificate of a node must contain the address that the node announces. This address is
    /// usually an IP address.
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        let root_certificates = Some(pem.into());
        Self { settings: Settings { root_certificates, ..self.settings }, ..self }
    }

    /// Sets the certificate (or certificate chain) of the client and the key of the certificate,
    /// both in PEM format. The client sends the certificate to servers that authenticate clients
    /// (`tls-auth-clients` in the configuration of Redis).
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let client_certificate = Some((pem.into(), key.into()));
        Self { settings: Settings { client_certificate, ..self.settings }, ..self }
    }

    /// Sets a clock that replaces the clocks of the nodes. It is for tests.
    ///
    /// With a test clock, keys expire an hour later than usual. Redis expires keys in real time,
    /// and must not remove a state that is still needed in virtual time.
    #[cfg(feature = "virtual-time")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let clock: Option<Arc<dyn Clock>> = Some(Arc::new(clock));
        Self { settings: Settings { clock, ..self.settings }, ..self }
    }

    /// Builds the store, without connecting to a node.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] in these cases:
    ///
    /// * The list of URLs is empty, or one of the URLs is not valid or names a database.
    /// * The URLs differ in the scheme, the user or the password.
    /// * A certificate or a key cannot be parsed.
    /// * The time to wait for replicas is less than a millisecond, or is equal to or greater than
    ///   the [response timeout](Self::response_timeout).
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
    /// Creates a store on the cluster to which the nodes in `urls` belong. The URL of one node is
    /// sufficient. A URL has the form `redis://[user:password@]host[:port]`, or `rediss://…` for
    /// TLS.
    ///
    /// At the first call, the store connects to a node and loads the slot map: the assignment of
    /// slots to nodes.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] if `urls` is empty, or if one of the URLs is not valid
    /// or names a database. Returns the same kind of error if the URLs differ in the scheme, the
    /// user or the password.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        Self::builder().urls(urls).build()
    }

    /// Creates a builder, with which a program can change the settings of a store.
    pub fn builder() -> ClusterStoreBuilder {
        ClusterStoreBuilder::new()
    }
}

impl fmt::Debug for ClusterStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output omits the URLs, because a URL can contain a password.
        f.debug_struct("ClusterStoreBuilder")
            .field("replicas", &self.replicas)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
