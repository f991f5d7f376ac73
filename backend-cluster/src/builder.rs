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

    /// Some nodes of the cluster, as in [`ClusterStore::new`]; all others are learnt from them. More
    /// than one, so that the cluster is found while one is away.
    ///
    /// The scheme, user and password must be the same in all, and are used with all nodes. The nodes
    /// are reached at the addresses that they announce to each other.
    pub fn urls(self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { urls: urls.into_iter().map(Into::into).collect(), ..self }
    }

    /// The ACL user and its password, instead of those in the URLs.
    ///
    /// The user needs the commands that
    /// [`RedisStoreBuilder::user`](tidegate_redis::RedisStoreBuilder::user) names, and CLUSTER SLOTS and
    /// ASKING; and WAIT for [`wait_for_replicas`](Self::wait_for_replicas).
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (Some(name.into()), Some(password.into()));
        Self { settings: Settings { user, password, ..self.settings }, ..self }
    }

    /// The password, instead of that in the URLs, as from a file of secrets. The user stays the one of the URL,
    /// or of [`user`](Self::user).
    pub fn password(self, password: impl Into<String>) -> Self {
        let password = Some(password.into());
        Self { settings: Settings { password, ..self.settings }, ..self }
    }

    /// Calls `provider` for the user and the password of each login at any node, instead of those
    /// in the URLs: see
    /// [`RedisStoreBuilder::credentials`](tidegate_redis::RedisStoreBuilder::credentials).
    pub fn credentials<F>(self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ProvidedCredentials> + Send + 'static,
    {
        let credentials = Some(CredentialsProvider::new(provider));
        Self { settings: Settings { credentials, ..self.settings }, ..self }
    }

    /// What all keys begin with. Default: `tidegate`. Two stores of one prefix share their states.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { settings: Settings { prefix: prefix.into(), ..self.settings }, ..self }
    }

    /// How many connections to each node to use in turn, at least 1. Default: 1, which carries any
    /// number of calls at once; more help where one core is not enough to read and write them all,
    /// and where calls [wait for replicas](Self::wait_for_replicas).
    pub fn connections(self, connections: usize) -> Self {
        Self { settings: Settings { connections, ..self.settings }, ..self }
    }

    /// How long connecting to a node may take. Default: 1 s.
    ///
    /// **A call that finds no connection to its node waits for one, for at most that long**, beside the
    /// [response timeout](Self::response_timeout). What else holds for connections is written at
    /// [`tidegate_redis`](tidegate_redis#connections).
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { connect_timeout: timeout, ..self.settings }, ..self }
    }

    /// How long to wait for a node's answer. Default: 500 ms. After that the call fails with
    /// [`ErrorKind::Timeout`], and whether it was charged is not known. A connection on which an answer
    /// has been owed for that long, and none has come, is replaced.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { response_timeout: timeout, ..self.settings }, ..self }
    }

    /// Lets nothing pass that fewer than `count` replicas know of. Default: none is waited for.
    ///
    /// Replicas lag behind, and what a primary admitted in its last moment is forgotten in a failover,
    /// and admitted again. With this, each call that may write asks (by WAIT, in the same round trip)
    /// how many replicas have it, for at most `patience`. An admission that fewer have is an error of
    /// kind [`ErrorKind::Unavailable`], although it is charged; so are refunds, resets and blocks.
    /// Refusals take nothing, and are answered as they are.
    ///
    /// This makes losing admissions unlikely, and not impossible: Redis may promote a replica that was
    /// not among those that had it. It costs the time to the replica and back, during which the
    /// connection carries nothing else: use [several](Self::connections).
    pub fn wait_for_replicas(self, count: u32, patience: Duration) -> Self {
        let replicas = Replicas { count: u64::from(count), timeout: patience };
        Self { replicas: (count > 0).then_some(replicas), ..self }
    }

    /// Trusts the certificates that these ones sign (PEM), instead of those that the system trusts.
    /// Nodes announce addresses, usually IP addresses, which their certificates then have to name.
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        let root_certificates = Some(pem.into());
        Self { settings: Settings { root_certificates, ..self.settings }, ..self }
    }

    /// Shows servers this certificate, or chain, with its key (both PEM), where they want to know their clients
    /// (`tls-auth-clients` of Redis).
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let client_certificate = Some((pem.into(), key.into()));
        Self { settings: Settings { client_certificate, ..self.settings }, ..self }
    }

    /// The clock that counts instead of the nodes', for tests. What is written lives an hour longer
    /// than the states matter, as real time must not end what virtual time does not.
    #[cfg(feature = "virtual-time")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let clock: Option<Arc<dyn Clock>> = Some(Arc::new(clock));
        Self { settings: Settings { clock, ..self.settings }, ..self }
    }

    /// The store. It does not connect yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if there are no URLs, if one is none or names a database, or if they
    /// differ in the scheme, the user or the password; if root certificates cannot be read; and if replicas are to be waited for for less
    /// than a millisecond, or not for less than the [response timeout](Self::response_timeout).
    pub fn build(self) -> Result<ClusterStore, Error> {
        self.check_patience()?;
        let infos = self.infos()?;
        let Some(first) = infos.first() else {
            return Err(invalid("a cluster needs the URL of at least one of its nodes".to_owned()));
        };
        let access = Access::new(first.clone(), self.settings.clone())?;
        let mut seeds = vec![];
        for (info, url) in infos.iter().zip(&self.urls) {
            let address = NodeAddress::try_from(info.addr());
            let address = address
                .map_err(|_| unusable_url(url, "a node of a cluster is at a host and a port"))?;
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

    /// What the URLs say, which differs in the addresses only.
    fn infos(&self) -> Result<Vec<ConnectionInfo>, Error> {
        let mut infos: Vec<ConnectionInfo> = vec![];
        for url in &self.urls {
            let info = parse_url(url)?;
            let database = info.redis_settings().db();
            if database != 0 {
                let why = format!("a cluster has no database but 0, and it names {database}");
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

    fn check_patience(&self) -> Result<(), Error> {
        let Some(Replicas { timeout: patience, .. }) = self.replicas else { return Ok(()) };
        let most = self.settings.response_timeout;
        if patience < Duration::from_millis(1) || patience >= most {
            return Err(invalid(format!(
                "replicas are waited for at least 1ms, and less than the response timeout of {most:?}; \
                 not {patience:?}"
            )));
        }
        Ok(())
    }
}

/// Whether two nodes are connected to in the same way.
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

impl fmt::Debug for ClusterStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URLs: they may hold passwords.
        f.debug_struct("ClusterStoreBuilder")
            .field("replicas", &self.replicas)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
