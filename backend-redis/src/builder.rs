use std::sync::Arc;
use std::time::Duration;

use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisError, TlsMode};
#[cfg(feature = "testing")]
use tidegate_core::Clock;
use tidegate_core::Error;
use tokio::sync::Mutex;

use crate::net::{ScriptTimes, Settings, Target, is_encrypted, unusable};
use crate::redis_store::{Inner, RedisStore};
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
    url: String,
    sentinel: Option<(Vec<String>, String)>,
    database: Option<u16>,
    script_free: bool,
    settings: Settings,
}

impl RedisStoreBuilder {
    pub(crate) fn new() -> Self {
        Self {
            url: "redis://127.0.0.1".to_owned(),
            sentinel: None,
            database: None,
            script_free: false,
            settings: Settings::default(),
        }
    }

    /// The server, as in [`RedisStore::connect`]. Default: `redis://127.0.0.1`.
    ///
    /// Together with [`sentinel`](Self::sentinel), its scheme, user, password and database are those
    /// to use with the primary; its host and port are not used.
    pub fn url(self, url: impl Into<String>) -> Self {
        Self { url: url.into(), ..self }
    }

    /// Asks these Sentinels, by their URLs, which server is the primary of the group of that name;
    /// and asks again whenever the connection was lost, or the server takes no more writes. If they
    /// want a user or a password, it is the same in all of these URLs.
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

    /// The ACL user and its password, instead of those in the URL.
    ///
    /// The user needs the commands EVALSHA, EVAL, TIME, GET, MGET, SET, PSETEX, GETRANGE, SETRANGE,
    /// EXISTS, PTTL, PEXPIRE, UNLINK, LLEN, LINDEX, LSET, LTRIM and RPUSH, all of them, on keys that
    /// begin with the prefix.
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let user = Some((name.into(), password.into()));
        Self { settings: Settings { user, ..self.settings }, ..self }
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

    /// How long connecting may take, asking the Sentinels included. Default: 1 s.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { settings: Settings { connect_timeout: timeout, ..self.settings }, ..self }
    }

    /// How long to wait for an answer. Default: 500 ms. After that the call fails with
    /// [`ErrorKind::Timeout`](tidegate_core::ErrorKind::Timeout), and whether it was charged is not known.
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

    /// Uses no scripts, for where there are none, as behind some proxies: only fixed windows,
    /// aligned or phased, by plain commands in MULTI and EXEC. See [the front
    /// page](crate#without-scripts).
    pub fn script_free(self) -> Self {
        Self { script_free: true, ..self }
    }

    /// The clock that counts instead of the server's, for tests. What is written lives an hour
    /// longer than the states matter, as real time must not end what virtual time does not.
    #[cfg(feature = "testing")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let clock: Option<Arc<dyn Clock>> = Some(Arc::new(clock));
        Self { settings: Settings { clock, ..self.settings }, ..self }
    }

    /// The store. It does not connect yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCall`](tidegate_core::ErrorKind::InvalidCall) if a URL is none, if there is no
    /// Sentinel among no URLs, or if their users or passwords differ.
    pub fn build(self) -> Result<RedisStore, Error> {
        let target = self.target()?;
        Ok(RedisStore(Arc::new(Inner {
            keys: Keys::new(&self.settings.prefix),
            links: self.settings.links(target),
            script_free: self.script_free,
            script_times: ScriptTimes::default(),
            clock: self.settings.clock,
        })))
    }

    fn target(&self) -> Result<Target, Error> {
        let info = self.connection_info().map_err(|error| unusable("URL", error))?;
        let Some((urls, primary)) = &self.sentinel else {
            let client = self.settings.client(info).map_err(|error| unusable("URL", error))?;
            return Ok(Target::Server(client));
        };
        let group = self
            .sentinel_client(urls, primary, &info)
            .map_err(|error| unusable("Sentinel URLs", error))?;
        Ok(Target::Sentinel { group: Mutex::new(group), primary: primary.clone() })
    }

    /// What asks the Sentinels, with one user and password for all of them, and connects to the primary
    /// as `node` says.
    fn sentinel_client(
        &self,
        urls: &[String],
        primary: &str,
        node: &ConnectionInfo,
    ) -> Result<SentinelClient, RedisError> {
        let clients = urls.iter().map(|url| self.sentinel_at(url));
        let clients = clients.collect::<Result<Vec<_>, RedisError>>()?;
        let sentinels: Vec<_> = clients.iter().map(Client::get_connection_info).collect();
        let Some(first) = sentinels.first().map(|sentinel| sentinel.redis_settings()) else {
            return Err(refused("there is none"));
        };
        let login = (first.username(), first.password());
        let is_other = |other: &&ConnectionInfo| {
            (other.redis_settings().username(), other.redis_settings().password()) != login
        };
        if sentinels.iter().any(is_other) {
            return Err(refused("they differ in the user or the password"));
        }
        let addresses = sentinels.iter().map(|sentinel| sentinel.addr().clone());
        let mut builder =
            SentinelClientBuilder::new(addresses, primary, SentinelServerType::Master)?
                .set_client_to_redis_db(node.redis_settings().db())
                .set_client_to_redis_protocol(node.redis_settings().protocol());
        if let Some(user) = login.0 {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = login.1 {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(user) = node.redis_settings().username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = node.redis_settings().password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if is_encrypted(node) {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            #[cfg(feature = "tls")]
            if let Some(certificates) = self.settings.certificates() {
                builder = builder.set_client_to_redis_certificates(certificates);
            }
        }
        builder.build()
    }

    /// A Sentinel may be encrypted or not, whatever the servers are.
    fn sentinel_at(&self, url: &str) -> Result<Client, RedisError> {
        let info = url.into_connection_info()?;
        if is_encrypted(&info) { self.settings.client(info) } else { Client::open(info) }
    }

    fn connection_info(&self) -> Result<ConnectionInfo, RedisError> {
        let info = self.settings.with_user(self.url.as_str().into_connection_info()?);
        let Some(database) = self.database else { return Ok(info) };
        let settings = info.redis_settings().clone().set_db(i64::from(database));
        Ok(info.set_redis_settings(settings))
    }
}

fn refused(why: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::InvalidClientConfig, why))
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
