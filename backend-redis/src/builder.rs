use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
#[cfg(feature = "virtual-time")]
use tidegate_core::Clock;
use tidegate_core::{Error, ErrorKind};

#[cfg(feature = "tls")]
use crate::connection::unusable_url;
use crate::connection::{
    ConnectionPool, CredentialsProvider, GivenConnection, ProvidedCredentials, ScriptTimes,
    Settings, Target, Tls, parse_url, with_login,
};
use crate::inner::Inner;
use crate::redis_store::RedisStore;
use crate::wire::Keys;

/// How a [`RedisStore`] shall be.
///
/// ```
/// use std::time::Duration;
/// use tidegate_redis::RedisStore;
///
/// let store = RedisStore::builder()
///     .sentinel(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"], "limits")
///     .user("tidegate", "secret")
///     .database(2)
///     .prefix("shop")
///     .response_timeout(Duration::from_millis(50))
///     .build()?; // connects at the first call
/// # Ok::<(), tidegate_redis::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    url: Option<String>,
    /// A connection that the application has made, instead of those to the URL.
    given: Option<GivenConnection>,
    sentinel: Option<(Vec<String>, String)>,
    /// The user and the password of the Sentinels, in place of those in their URLs.
    sentinel_login: (Option<String>, Option<String>),
    database: Option<u16>,
    script_free: bool,
    settings: Settings,
}

impl RedisStoreBuilder {
    pub(crate) fn new() -> Self {
        Self {
            url: None,
            given: None,
            sentinel: None,
            sentinel_login: (None, None),
            database: None,
            script_free: false,
            settings: Settings::default(),
        }
    }

    /// The server, as in [`RedisStore::new`]. Default: `redis://127.0.0.1`.
    ///
    /// Together with [`sentinel`](Self::sentinel), its scheme, user, password and database are those
    /// to use with the primary; its host and port are not used.
    pub fn url(self, url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..self }
    }

    /// Asks these Sentinels, by their URLs, which server is the primary of the group of that name;
    /// and asks again whenever the connection was lost, or the server takes no more writes. Each URL
    /// may have a user and a password of its own.
    ///
    /// Any of them may hang: they are asked one after the other, each 50 ms after the one before, or as soon as
    /// one has failed, and again while a server that they named does not answer. The first server that
    /// can be connected to, and says that it is the primary (`ROLE`; where the user may not ask, the
    /// Sentinel's word counts), is the one. So once a replica has been promoted, it is in use within a
    /// second.
    ///
    /// What a primary admits once a replica has been promoted, because it does not know yet that it is
    /// none any more, is admitted again. With `min-replicas-to-write 1` on the servers it notices soon
    /// that its replicas have left, and admits nothing.
    pub fn sentinel(
        self,
        urls: impl IntoIterator<Item = impl Into<String>>,
        primary: impl Into<String>,
    ) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { sentinel: Some((urls, primary.into())), ..self }
    }

    /// The ACL user and its password for the Sentinels, instead of those in their URLs. Has no effect on servers.
    pub fn sentinel_user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        Self { sentinel_login: (Some(name.into()), Some(password.into())), ..self }
    }

    /// The password for the Sentinels, instead of those in their URLs. The user stays the one of the URL, or of
    /// [`sentinel_user`](Self::sentinel_user).
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        Self { sentinel_login: (self.sentinel_login.0, Some(password.into())), ..self }
    }

    /// The ACL user and its password, instead of those in the URL.
    ///
    /// The user needs the commands EVALSHA, EVAL, TIME, GET, MGET, SET, PSETEX, GETRANGE, SETRANGE,
    /// EXISTS, PTTL, PEXPIRE, UNLINK, LLEN, LINDEX, LSET, LTRIM and RPUSH, all of them, on keys that
    /// begin with the prefix. A policy with
    /// [`refund_lapsed`](crate::Policy::refund_lapsed) also needs ZADD, ZREM, ZREVRANGE,
    /// ZRANGEBYSCORE and ZREVRANGEBYSCORE.
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (Some(name.into()), Some(password.into()));
        Self { settings: Settings { user, password, ..self.settings }, ..self }
    }

    /// The password, instead of that in the URL, as from a file of secrets. The user stays the one of the URL,
    /// or of [`user`](Self::user).
    pub fn password(self, password: impl Into<String>) -> Self {
        let password = Some(password.into());
        Self { settings: Settings { password, ..self.settings }, ..self }
    }

    /// Calls `provider` for the user and the password of each login, instead of those in the URL
    /// and those of [`user`](Self::user): for tokens that expire, and passwords that change.
    ///
    /// Services of the clouds (such as ElastiCache and MemoryDB, Memorystore and Azure Managed
    /// Redis) accept a short-lived token of the service account as a password:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_redis::{Credentials, RedisStore};
    ///
    /// # struct Account;
    /// # impl Account {
    /// #     async fn token(&self) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # }
    /// # let account = std::sync::Arc::new(Account);
    /// let store = RedisStore::builder()
    ///     .url("redis://limits.example.com:6379") // `rediss://` with the feature `tls`
    ///     .credentials(move || {
    ///         let account = account.clone();
    ///         async move {
    ///             let token = account.token().await?; // from the SDK of the cloud
    ///             // ElastiCache closes a connection 12 hours after its login.
    ///             Ok(Credentials::new("limits", token).renew_after(Duration::from_secs(11 * 3_600)))
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), tidegate_redis::Error>(())
    /// ```
    ///
    /// The store calls the provider once for each connection that it makes, and before each second
    /// login that [`renew_after`](crate::Credentials::renew_after) asks for. The time that the
    /// provider takes is a part of [`connect_timeout`](Self::connect_timeout). If it fails, the
    /// waiting calls fail with [`ErrorKind::Unavailable`], and its error is their source. While
    /// the server is down, the store connects up to twice a second, so a provider that asks a
    /// remote service should cache.
    ///
    /// With [`sentinel`](Self::sentinel), the credentials are for the servers. The Sentinels have
    /// [their own](Self::sentinel_user).
    ///
    pub fn credentials<F>(self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ProvidedCredentials> + Send + 'static,
    {
        let credentials = Some(CredentialsProvider::new(provider));
        Self { settings: Settings { credentials, ..self.settings }, ..self }
    }

    /// Uses a connection that the application has made, instead of connections of the store: a
    /// [`MultiplexedConnection`](redis::aio::MultiplexedConnection), or a `ConnectionManager`,
    /// which reconnects.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use tidegate_redis::{RedisStore, redis};
    ///
    /// let client = redis::Client::open("redis://127.0.0.1")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let store = RedisStore::builder().connection(connection).prefix("shop").build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The decisions are the same. The store sends each call once, and fails it after
    /// [`response_timeout`](Self::response_timeout) or the timeout of the connection, whichever is
    /// shorter. The rest is up to the connection:
    ///
    /// | | connections of the store | an existing connection |
    /// |---|---|---|
    /// | the connection is lost | the store connects again | the application, or the `ConnectionManager`, does |
    /// | a call finds the connection closed | it is sent on a new connection | it fails with `Unavailable`, and whether it was charged is not known |
    /// | the server is silent | the connection is replaced | each call fails with `Timeout` |
    /// | the server becomes a replica | the store connects again, and asks the Sentinels | each call fails with `ReadOnly` |
    /// | errors | name the server | do not |
    ///
    /// **The connection must not send a command again** after an error, because such a call may be
    /// charged twice. It must be to one server: for a cluster there is `tidegate-cluster`.
    pub fn connection(
        self,
        connection: impl redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    ) -> Self {
        Self { given: Some(GivenConnection::new(connection)), ..self }
    }

    /// The database, instead of the one in the URL.
    pub fn database(self, number: u16) -> Self {
        Self { database: Some(number), ..self }
    }

    /// What all keys begin with. Default: `tidegate`. Two stores of one prefix share their states.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { settings: Settings { prefix: prefix.into(), ..self.settings }, ..self }
    }

    /// How many connections to use in turn, at least 1. Default: 1, which carries any number of
    /// calls at once; more help where one core is not enough to read and write them all.
    pub fn connections(self, connections: usize) -> Self {
        Self { settings: Settings { connections, ..self.settings }, ..self }
    }

    /// How long connecting may take, asking the Sentinels and logging in included. Default: 1 s.
    ///
    /// **A call that finds no connection waits for one, for at most that long**, beside the
    /// [response timeout](Self::response_timeout). A call that is dropped sooner, as by
    /// [`timeout`](tidegate_core::StoreExt::timeout), does not end the attempt. After an attempt that
    /// failed, there is a pause of 20 ms, which doubles each time up to 500 ms. In a pause calls fail at once.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { connect_timeout: timeout, ..self.settings }, ..self }
    }

    /// How long to wait for an answer. Default: 500 ms. After that the call fails with
    /// [`ErrorKind::Timeout`](tidegate_core::ErrorKind::Timeout), and whether it was charged is not known.
    ///
    /// A connection on which an answer has been owed for that long, and none has come, is replaced at once,
    /// whatever became of the calls. So this should be longer than a server that is well ever takes; for
    /// callers with less patience there is [`timeout`](tidegate_core::StoreExt::timeout).
    ///
    /// | | this setting | `.timeout(..)` around the store |
    /// |---|---|---|
    /// | bounds | the time from sending a call to its answer | the whole call, with waiting for a connection |
    /// | when it passes | the call fails, and a silent connection is replaced | the call fails |
    /// | usual | 500 ms: what a healthy server never needs | 50 ms: what a request may cost |
    ///
    /// Where both are set the shorter one ends the call. A `.timeout(..)` that is longer than both this and
    /// [`connect_timeout`](Self::connect_timeout) together has no effect.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { response_timeout: timeout, ..self.settings }, ..self }
    }

    /// Trusts the certificates that these ones sign (PEM), instead of those that the system trusts: of
    /// the server, and of Sentinels whose URLs begin with `rediss://`. Sentinels name a primary by its
    /// address, usually an IP address, which its certificate then has to name too.
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

    /// Uses no scripts, for where there are none, as behind some proxies: only fixed windows,
    /// aligned or phased, by plain commands in MULTI and EXEC. See [the front
    /// page](crate#without-scripts).
    pub fn script_free(self) -> Self {
        Self { script_free: true, ..self }
    }

    /// The clock that counts instead of the server's, for tests. What is written lives an hour
    /// longer than the states matter, as real time must not end what virtual time does not.
    #[cfg(feature = "virtual-time")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let clock: Option<Arc<dyn Clock>> = Some(Arc::new(clock));
        Self { settings: Settings { clock, ..self.settings }, ..self }
    }

    /// Builds the store. It does not connect yet.
    ///
    /// # Errors
    ///
    /// Returns an error of kind
    /// [`ErrorKind::InvalidConfig`](tidegate_core::ErrorKind::InvalidConfig) in these cases:
    ///
    /// * A URL is not valid, or asks not to verify certificates (`#insecure`).
    /// * The list of Sentinels is empty.
    /// * Certificates cannot be read, or are set for a server that is not encrypted.
    /// * An existing [`connection`](Self::connection) is combined with a setting that it would
    ///   ignore.
    pub fn build(self) -> Result<RedisStore, Error> {
        Ok(RedisStore(Arc::new(Inner {
            connections: self.connection_pool()?,
            keys: Keys::new(&self.settings.prefix),
            script_free: self.script_free,
            script_times: ScriptTimes::default(),
            clock: self.settings.clock,
        })))
    }

    fn connection_pool(&self) -> Result<ConnectionPool, Error> {
        if let Some(connection) = &self.given {
            self.check_given()?;
            let timeout = self.settings.response_timeout;
            return Ok(ConnectionPool::existing(connection.clone(), timeout));
        }
        let server = self.server()?;
        let Some((urls, name)) = &self.sentinel else {
            let tls = self.tls_of_server(&server)?;
            return Ok(self.settings.pool(Target::Server(server), tls));
        };
        let sentinels = self.sentinels(urls)?;
        // The servers may be encrypted or not, whatever the Sentinels are.
        let tls = self.settings.tls(sentinels.iter().chain([&server]))?;
        Ok(self.settings.pool(Target::Sentinel { sentinels, name: name.clone(), server }, tls))
    }

    /// Checks that nothing is set that an existing connection would ignore.
    fn check_given(&self) -> Result<(), Error> {
        let settings = &self.settings;
        let has_login = settings.user.is_some()
            || settings.password.is_some()
            || settings.credentials.is_some();
        #[cfg(feature = "tls")]
        let has_certificates = settings.has_certificates();
        #[cfg(not(feature = "tls"))]
        let has_certificates = false;
        let ignored = [
            (self.url.is_some(), "a URL"),
            (self.sentinel.is_some(), "Sentinels"),
            (has_login, "a login"),
            (self.database.is_some(), "a database"),
            (has_certificates, "certificates"),
        ];
        match ignored.iter().find(|(is_set, _)| *is_set) {
            None => Ok(()),
            Some((_, setting)) => Err(Error::new(
                ErrorKind::InvalidConfig,
                format!("an existing connection cannot be combined with {setting}"),
            )),
        }
    }

    fn tls_of_server(&self, server: &ConnectionInfo) -> Result<Option<Tls>, Error> {
        let tls = self.settings.tls([server])?;
        #[cfg(feature = "tls")]
        if tls.is_none() && self.settings.has_certificates() {
            let why = "there are certificates, but it does not begin with `rediss://`";
            return Err(unusable_url(self.server_url(), why));
        }
        Ok(tls)
    }

    /// The Sentinels at these URLs. They have no databases.
    fn sentinels(&self, urls: &[String]) -> Result<Vec<ConnectionInfo>, Error> {
        if urls.is_empty() {
            return Err(Error::new(ErrorKind::InvalidConfig, "there is no URL of a Sentinel"));
        }
        let (user, password) = &self.sentinel_login;
        let sentinel = |url: &String| {
            let info = with_login(parse_url(url)?, user.as_deref(), password.as_deref());
            let settings = info.redis_settings().clone().set_db(0);
            Ok(info.set_redis_settings(settings))
        };
        urls.iter().map(sentinel).collect()
    }

    fn server_url(&self) -> &str {
        self.url.as_deref().unwrap_or("redis://127.0.0.1")
    }

    fn server(&self) -> Result<ConnectionInfo, Error> {
        let info = self.settings.with_user(parse_url(self.server_url())?);
        let Some(database) = self.database else { return Ok(info) };
        let settings = info.redis_settings().clone().set_db(i64::from(database));
        Ok(info.set_redis_settings(settings))
    }
}

impl std::fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the URL: it may hold a password.
        f.debug_struct("RedisStoreBuilder")
            .field("database", &self.database)
            .field("script_free", &self.script_free)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
