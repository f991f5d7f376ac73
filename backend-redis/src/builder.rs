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
use crate::protocol::Keys;
use crate::redis_store::RedisStore;

/// Configures a [`RedisStore`].
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
    /// A connection that the application has made. If it is set, the store makes no connection to
    /// the URL.
    given: Option<GivenConnection>,
    sentinel: Option<(Vec<String>, String)>,
    /// The user and the password for logins to the Sentinels. They replace the users and passwords
    /// in the URLs of the Sentinels.
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

    /// Sets the URL of the server, as in [`RedisStore::new`]. Default: `redis://127.0.0.1`.
    ///
    /// With [`sentinel`](Self::sentinel), the store uses the scheme, user, password and database of
    /// this URL for the primary. The store ignores the host and the port.
    pub fn url(self, url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..self }
    }

    /// Sets the URLs of the Sentinels. The store queries them for the primary of the group
    /// `primary`.
    ///
    /// The store queries the Sentinels when it first connects, and again if the connection is lost
    /// or if the server refuses writes. Each URL can have its own user and password.
    ///
    /// Any Sentinel can hang. Therefore the store starts the query to each Sentinel 50 ms after the
    /// query to the previous Sentinel, or as soon as a query has failed. If a Sentinel names a
    /// server that does not respond, the store repeats the queries. The store uses the first server
    /// that accepts a connection and confirms by `ROLE` that it is a primary. If the user lacks the
    /// permission for `ROLE`, the store trusts the Sentinel. The store finds a promoted replica
    /// within a second.
    ///
    /// A former primary can admit calls until it notices that a replica was promoted. The new
    /// primary does not know these calls, so it can admit the same amount again. With
    /// `min-replicas-to-write 1` on the servers, the former primary soon notices that it has no
    /// replicas, and admits nothing.
    pub fn sentinel(
        self,
        urls: impl IntoIterator<Item = impl Into<String>>,
        primary: impl Into<String>,
    ) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { sentinel: Some((urls, primary.into())), ..self }
    }

    /// Sets the ACL user and its password for the Sentinels, instead of the users and passwords in
    /// their URLs. This setting does not affect the login to the servers.
    pub fn sentinel_user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        Self { sentinel_login: (Some(name.into()), Some(password.into())), ..self }
    }

    /// Sets the password for the Sentinels, instead of the passwords in their URLs. The login uses
    /// the user of the URL, or the user of [`sentinel_user`](Self::sentinel_user).
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        Self { sentinel_login: (self.sentinel_login.0, Some(password.into())), ..self }
    }

    /// Sets the ACL user and its password, instead of the user and the password in the URL.
    ///
    /// The user needs the permission for the commands EVALSHA, EVAL, TIME, GET, MGET, SET, PSETEX,
    /// GETRANGE, SETRANGE, EXISTS, PTTL, PEXPIRE, UNLINK, LLEN, LINDEX, LSET, LTRIM and RPUSH, on
    /// all keys that begin with the prefix. For a policy with
    /// [`refund_lapsed`](crate::Policy::refund_lapsed), and for slots, the user also needs ZADD,
    /// ZREM, ZSCORE, ZREVRANGE, ZRANGEBYSCORE, ZREVRANGEBYSCORE, ZREMRANGEBYSCORE and ZCOUNT. For a
    /// fair pool, the user also needs HMGET, HSET, HDEL, HLEN and HGETALL.
    ///
    /// [Wake-ups](crate#wake-ups) need SPUBLISH, SSUBSCRIBE and SUNSUBSCRIBE, on all channels that
    /// begin with the prefix (`&tidegate:*`). These permissions are optional. Without them, each
    /// attempt is an entry in the ACL log of the server.
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (Some(name.into()), Some(password.into()));
        Self { settings: Settings { user, password, ..self.settings }, ..self }
    }

    /// Sets the password, such as a password from a file of secrets, instead of the password in the
    /// URL. The login uses the user of the URL, or the user of [`user`](Self::user).
    pub fn password(self, password: impl Into<String>) -> Self {
        let password = Some(password.into());
        Self { settings: Settings { password, ..self.settings }, ..self }
    }

    /// Sets a provider that the store calls for the user and the password of each login. A provider
    /// is useful for tokens that expire, and for passwords that change. The user and the password
    /// from the provider replace those of the URL and of [`user`](Self::user).
    ///
    /// Cloud services such as ElastiCache, MemoryDB, Memorystore and Azure Managed Redis accept a
    /// short-lived token of the service account as a password:
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
    /// The store calls the provider once for each connection that the store makes. If
    /// [`renew_after`](crate::Credentials::renew_after) is set, the store also calls the provider
    /// before each further login on a connection. The time that the provider takes is a part of the
    /// [`connect_timeout`](Self::connect_timeout).
    ///
    /// If the provider fails, the calls that wait for the connection fail with
    /// [`ErrorKind::Unavailable`], and the source of their error is the error of the provider.
    /// While the server is down, the store tries to connect up to twice a second. Therefore a
    /// provider that queries a remote service should cache the credentials.
    ///
    /// With [`sentinel`](Self::sentinel), the credentials of the provider are for the servers. The
    /// login for the Sentinels is a [separate setting](Self::sentinel_user).
    pub fn credentials<F>(self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ProvidedCredentials> + Send + 'static,
    {
        let credentials = Some(CredentialsProvider::new(provider));
        Self { settings: Settings { credentials, ..self.settings }, ..self }
    }

    /// Uses a connection that the application has made, instead of connections of the store. The
    /// connection is a [`MultiplexedConnection`](redis::aio::MultiplexedConnection), or a
    /// `ConnectionManager`, which reconnects.
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
    /// On an existing connection, the store makes the same decisions as on its own connections, and
    /// sends each call once. A call times out after the shorter of
    /// [`response_timeout`](Self::response_timeout) and the connection's own timeout. The table
    /// shows how an existing connection differs from a connection of the store:
    ///
    /// | | connections of the store | an existing connection |
    /// |---|---|---|
    /// | the connection is lost | the store connects again | the application or the `ConnectionManager` connects again |
    /// | a call finds the connection closed | the call is sent on a new connection | the call fails with `Unavailable`, and it is not known whether the call was charged |
    /// | the server does not reply | the store replaces the connection | each call fails with `Timeout` |
    /// | the server becomes a replica | the store connects again, and queries the Sentinels | each call fails with `ReadOnly` |
    /// | a call fails | the error names the server | the error does not name the server |
    ///
    /// **The connection must not send a command again** after an error, because the server possibly
    /// charges a call twice if it gets the call twice. The connection must be to a single server.
    /// For a cluster, use `tidegate-cluster`.
    pub fn connection(
        self,
        connection: impl redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    ) -> Self {
        Self { given: Some(GivenConnection::new(connection)), ..self }
    }

    /// Sets the number of the database, instead of the database in the URL.
    pub fn database(self, number: u16) -> Self {
        Self { database: Some(number), ..self }
    }

    /// Sets the prefix of all keys. Default: `tidegate`. Stores with the same prefix share their
    /// states.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { settings: Settings { prefix: prefix.into(), ..self.settings }, ..self }
    }

    /// Sets the number of connections that the store uses in turn, at least 1. Default: 1.
    ///
    /// One connection carries any number of concurrent calls. More connections help only if one CPU
    /// core is not enough to read and write all calls.
    pub fn connections(self, connections: usize) -> Self {
        Self { settings: Settings { connections, ..self.settings }, ..self }
    }

    /// Sets the maximum time for connecting, including the queries to the Sentinels and the login.
    /// Default: 1 s.
    ///
    /// **A call that finds no connection waits for a connection for at most `timeout`**, in
    /// addition to the [response timeout](Self::response_timeout). If the caller drops the call
    /// earlier, for example because of a layer [`timeout`](tidegate_core::StoreExt::timeout), the
    /// attempt to connect continues. After a failed attempt, the store pauses for 20 ms. The pause
    /// doubles with each failure up to 500 ms. During a pause, calls fail immediately.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { connect_timeout: timeout, ..self.settings }, ..self }
    }

    /// Sets the maximum time from sending a call to receiving the reply. Default: 500 ms.
    ///
    /// If `timeout` is over, the call fails with
    /// [`ErrorKind::Timeout`](tidegate_core::ErrorKind::Timeout), and it is not known whether the
    /// call was charged.
    ///
    /// If the store waits for a reply and the server sends no reply for `timeout`, the store
    /// replaces the connection, even if other calls wait for replies on this connection. So
    /// `timeout` should be longer than the longest time that a healthy server needs for a reply.
    /// For callers that cannot wait this long, use the layer
    /// [`timeout`](tidegate_core::StoreExt::timeout).
    ///
    /// | | this setting | `.timeout(..)` around the store |
    /// |---|---|---|
    /// | bounds | the time from sending a call to its reply | the whole call, including the wait for a connection |
    /// | after this time | the call fails, and a connection without replies is replaced | the call fails |
    /// | usual value | 500 ms, which a healthy server never needs | 50 ms, the time that a request may spend |
    ///
    /// If both this setting and a layer `.timeout(..)` around the store are set, the shorter time
    /// ends the call. The layer has no effect if its time is longer than this setting and
    /// [`connect_timeout`](Self::connect_timeout) together.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { response_timeout: timeout, ..self.settings }, ..self }
    }

    /// Sets the root certificates (PEM) that the store trusts, instead of the system's
    /// certificates.
    ///
    /// The store uses the certificates for the server and for Sentinels with URLs that begin with
    /// `rediss://`. A Sentinel reports the address of the primary, usually an IP address. The
    /// certificate of the primary must contain that address.
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        let root_certificates = Some(pem.into());
        Self { settings: Settings { root_certificates, ..self.settings }, ..self }
    }

    /// Sets a certificate or a chain of certificates, and its key (both PEM). The client presents
    /// the certificate to servers that authenticate clients (`tls-auth-clients` in the
    /// configuration of Redis).
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let client_certificate = Some((pem.into(), key.into()));
        Self { settings: Settings { client_certificate, ..self.settings }, ..self }
    }

    /// Uses plain commands in MULTI and EXEC instead of scripts, for example for a proxy that does
    /// not support scripts.
    ///
    /// A store without scripts supports only fixed windows that are aligned or phased. See [the
    /// section "Without scripts"](crate#without-scripts).
    pub fn script_free(self) -> Self {
        Self { script_free: true, ..self }
    }

    /// Sets a clock that replaces the server's clock, for tests.
    ///
    /// With a test clock, the keys in Redis live for at least an hour of real time, so that no
    /// state is lost while the test clock stands still.
    #[cfg(feature = "virtual-time")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let clock: Option<Arc<dyn Clock>> = Some(Arc::new(clock));
        Self { settings: Settings { clock, ..self.settings }, ..self }
    }

    /// Builds the store. The store connects at the first call.
    ///
    /// # Errors
    ///
    /// Returns an error of kind
    /// [`ErrorKind::InvalidConfig`](tidegate_core::ErrorKind::InvalidConfig) in these cases:
    ///
    /// * A URL is not valid, or ends in `#insecure`, which would disable the verification of
    ///   certificates.
    /// * The list of Sentinels is empty.
    /// * Certificates cannot be read, or are set although the URL of the server does not begin with
    ///   `rediss://`.
    /// * An existing [`connection`](Self::connection) is combined with a setting that has no effect
    ///   on it.
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
        // TLS is needed if the URL of the server or of any Sentinel uses TLS.
        let tls = self.settings.tls(sentinels.iter().chain([&server]))?;
        Ok(self.settings.pool(Target::Sentinel { sentinels, name: name.clone(), server }, tls))
    }

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
            let why = "certificates are set, but it does not begin with `rediss://`";
            return Err(unusable_url(self.server_url(), why));
        }
        Ok(tls)
    }

    /// Returns the settings for connecting to the Sentinels at `urls`. A database in a URL is
    /// ignored, because a Sentinel has no databases.
    fn sentinels(&self, urls: &[String]) -> Result<Vec<ConnectionInfo>, Error> {
        if urls.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "the list of Sentinels is empty; it must have at least one URL",
            ));
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

impl RedisStore {
    /// Creates a store on the server at `url`: `redis://[user:password@]host[:port][/database]`,
    /// `rediss://…` for TLS, or `redis+unix:///path/to/socket[?db=…&user=…&pass=…]`.
    ///
    /// The store connects at the first call, and reconnects if the connection is lost. See
    /// [connections](crate#connections).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] if `url` does not have one of the forms above.
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::builder().url(url).build()
    }

    /// Creates a builder for a store with other settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }
}

impl std::fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The output omits the URL, because a URL can contain a password.
        f.debug_struct("RedisStoreBuilder")
            .field("database", &self.database)
            .field("script_free", &self.script_free)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
