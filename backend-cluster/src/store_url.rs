use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "virtual-time")]
use tidegate_core::Clock;
use tidegate_core::{Error, Store};
use tidegate_redis::connection::{has_password, parse_url, without_password};
use tidegate_redis::{LimitBook, ProvidedCredentials, RedisStore, RedisStoreBuilder};

use crate::builder::ClusterStoreBuilder;
use crate::cluster_store::ClusterStore;

/// The default port of a Sentinel, for a URL that contains no port.
const SENTINEL_PORT: u16 = 26_379;

/// Creates a store from the URL of a server, a Sentinel group or a cluster. [`StoreBuilder`] lists
/// the forms of URLs.
///
/// The store connects at the first call, or at [`Store::ready`].
///
/// ```
/// let store = tidegate_cluster::connect_url("redis-cluster://10.0.0.1:7000,10.0.0.2:7000")?;
/// # let _ = store;
/// # Ok::<(), tidegate_cluster::Error>(())
/// ```
///
/// # Errors
///
/// Returns the errors of [`StoreBuilder::from_url`] and [`StoreBuilder::build`].
pub fn connect_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    StoreBuilder::from_url(url)?.build()
}

/// Configures a store from the URL of one server, a Sentinel group or a cluster. This builder is
/// for programs that have a single URL in their configuration.
///
/// | URL | store |
/// |---|---|
/// | `redis://[user:password@]host[:port][/database]` | one server |
/// | `rediss://…` | one server, encrypted (feature `tls`) |
/// | `unix:///path/to/socket[?db=1&user=name&pass=word]` | one server, through its Unix socket; the scheme `redis+unix` is the same |
/// | `redis-sentinel://[user:password@]host[:port],host[:port][/database]#name` | the primary of the group `name`. The hosts are Sentinels, which report the primary. The login is for the primary; [`sentinel_user`](Self::sentinel_user) sets the login for the Sentinels. The default port of a Sentinel is 26379 |
/// | `rediss-sentinel://…` | the primary of a group; connections to the primary and to the Sentinels are encrypted (feature `tls`) |
/// | `redis-cluster://[user:password@]host[:port],host[:port]` | a cluster; the hosts are some of its nodes |
/// | `rediss-cluster://…` | a cluster, encrypted (feature `tls`) |
///
/// For one server, the schemes `valkey` and `valkeys` are the same as `redis` and `rediss`. If a
/// password contains reserved characters of URLs, these characters must be percent-encoded.
///
/// ```
/// use std::time::Duration;
/// use tidegate_cluster::StoreBuilder;
///
/// let store = StoreBuilder::from_url("redis-sentinel://:secret@10.0.0.1,10.0.0.2/2#limits")?
///     .prefix("shop")
///     .response_timeout(Duration::from_millis(50))
///     .build()?; // connects at the first call
/// # let _ = store;
/// # Ok::<(), tidegate_cluster::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct StoreBuilder {
    /// The URL of the store without its password, for `Debug`.
    shown: String,
    has_password: bool,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Server(RedisStoreBuilder),
    Cluster(ClusterStoreBuilder),
}

macro_rules! each {
    ($self:ident, $builder:ident => $does:expr) => {{
        let kind = match $self.kind {
            Kind::Server($builder) => Kind::Server($does),
            Kind::Cluster($builder) => Kind::Cluster($does),
        };
        Self { kind, ..$self }
    }};
}

impl StoreBuilder {
    /// Creates a builder from a URL in one of the [forms above](Self).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`](tidegate_core::ErrorKind::InvalidConfig) if the URL has
    /// none of the listed forms, or if the form needs a crate feature that is not enabled. The
    /// message contains the URL without its password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (kind, servers) = match scheme {
            "redis-cluster" => cluster("redis", rest),
            "rediss-cluster" => cluster("rediss", rest),
            "redis-sentinel" => sentinel_group(url, "redis", rest)?,
            "rediss-sentinel" => sentinel_group(url, "rediss", rest)?,
            "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix" => {
                (Kind::Server(RedisStore::builder().url(url)), vec![url.to_owned()])
            }
            _ => return Err(unknown_form(url)),
        };
        let servers = servers.iter().map(|server| Ok(has_password(&parse_url(server)?)));
        let has_password = servers.collect::<Result<Vec<_>, Error>>()?.contains(&true);
        Ok(Self { shown: without_password(url), has_password, kind })
    }

    /// Sets the password for the servers if the URL contains no password. For example, a program
    /// can read the password from an environment variable.
    pub fn password_if_none(self, password: impl Into<String>) -> Self {
        if self.has_password {
            return self;
        }
        let password = password.into();
        each!(self, builder => builder.password(password))
    }

    /// Sets a function that returns the user and the password. The store calls `provider` before
    /// each login at a server. See [`RedisStoreBuilder::credentials`].
    pub fn credentials<F>(self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ProvidedCredentials> + Send + 'static,
    {
        each!(self, builder => builder.credentials(provider))
    }

    /// Sets the ACL user and the password for logins at the Sentinels. Without Sentinels in the
    /// URL, this setting has no effect. See [`RedisStoreBuilder::sentinel_user`].
    pub fn sentinel_user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.server(|builder| builder.sentinel_user(name, password))
    }

    /// Sets the password for logins at the Sentinels. Without Sentinels in the URL, this setting
    /// has no effect. See [`RedisStoreBuilder::sentinel_password`].
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        self.server(|builder| builder.sentinel_password(password))
    }

    fn server(self, change: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        match self.kind {
            Kind::Server(builder) => Self { kind: Kind::Server(change(builder)), ..self },
            Kind::Cluster(_) => self,
        }
    }

    /// Sets the prefix of all keys. Default: `tidegate`. Stores with the same prefix share their
    /// states.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        each!(self, builder => builder.prefix(prefix))
    }

    /// Sets the number of connections to each server. See [`RedisStoreBuilder::connections`].
    pub fn connections(self, connections: usize) -> Self {
        each!(self, builder => builder.connections(connections))
    }

    /// Sets the maximum time in which a connection to a server must be made. See
    /// [`RedisStoreBuilder::connect_timeout`].
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        each!(self, builder => builder.connect_timeout(timeout))
    }

    /// Sets the maximum time from sending a call to receiving the reply. See
    /// [`RedisStoreBuilder::response_timeout`].
    pub fn response_timeout(self, timeout: Duration) -> Self {
        each!(self, builder => builder.response_timeout(timeout))
    }

    /// Sets the root certificates that the store trusts, in PEM format. See
    /// [`RedisStoreBuilder::root_certificates`].
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        each!(self, builder => builder.root_certificates(pem))
    }

    /// Sets the certificate (or certificate chain) of the client and the key of the certificate,
    /// both in PEM format. See [`RedisStoreBuilder::client_certificate`].
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (pem, key) = (pem.into(), key.into());
        each!(self, builder => builder.client_certificate(pem, key))
    }

    /// Sets a clock that replaces the clocks of the servers. It is for tests.
    #[cfg(feature = "virtual-time")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        each!(self, builder => builder.clock(clock))
    }

    /// Builds the store, without connecting to a server.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RedisStoreBuilder::build`] and [`ClusterStoreBuilder::build`].
    pub fn build(self) -> Result<Arc<dyn Store>, Error> {
        self.build_with_limit_book().map(|(store, _)| store)
    }

    /// Builds the store and its [`LimitBook`], without connecting to a server.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`build`](Self::build).
    pub fn build_with_limit_book(self) -> Result<(Arc<dyn Store>, LimitBook), Error> {
        Ok(match self.kind {
            Kind::Server(builder) => {
                let store = builder.build()?;
                let book = store.limit_book();
                (Arc::new(store), book)
            }
            Kind::Cluster(builder) => {
                let store = builder.build()?;
                let book = store.limit_book();
                (Arc::new(store), book)
            }
        })
    }
}

fn cluster(scheme: &str, rest: &str) -> (Kind, Vec<String>) {
    let (login, hosts) = split_login(rest);
    let urls: Vec<_> = hosts.split(',').map(|host| format!("{scheme}://{login}{host}")).collect();
    (Kind::Cluster(ClusterStore::builder().urls(urls.clone())), urls)
}

fn sentinel_group(url: &str, scheme: &str, rest: &str) -> Result<(Kind, Vec<String>), Error> {
    let (login, rest) = split_login(rest);
    let (rest, name) = rest
        .split_once('#')
        .filter(|(_, name)| !name.is_empty())
        .ok_or_else(|| unusable(url, "it has no name of a group; it must end in `#name`"))?;
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    // The host in this URL is a placeholder, because the Sentinels report the real host of the
    // primary.
    let server = format!("{scheme}://{login}primary/{database}");
    let mut sentinels = vec![];
    for host in hosts.split(',') {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
        sentinels.push(format!("{scheme}://{host}{port}"));
    }
    let builder = RedisStore::builder().url(&server).sentinel(sentinels.clone(), name);
    // The caller of this function checks that the URLs are valid.
    let urls = [server].into_iter().chain(sentinels).collect();
    Ok((Kind::Server(builder), urls))
}

/// Splits the authority of a URL, such as `user:password@host:port`, after the `@`. If the
/// authority has no login, the first part is empty.
fn split_login(authority: &str) -> (&str, &str) {
    match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    }
}

fn unusable(url: &str, why: &str) -> Error {
    tidegate_redis::connection::unusable_url(url, why)
}

fn unknown_form(url: &str) -> Error {
    unusable(
        url,
        "it is not the URL of a store; it must be `redis://[user:password@]host[:port][/database]`, \
         `unix:///path/to/socket`, `redis-sentinel://host[:port],host[:port]#name` or \
         `redis-cluster://host[:port],host[:port]`; except for a socket, `rediss` instead of `redis` uses TLS",
    )
}

impl fmt::Debug for StoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreBuilder").field(&self.shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::ErrorKind;

    use super::*;

    #[test]
    fn every_form_is_a_store() {
        for url in [
            "redis://a",
            "redis://u:p@a:1/2",
            "valkey://a",
            "unix:///run/redis?db=1&pass=p",
            "redis+unix:///run/redis",
            "redis-sentinel://a#limits",
            "redis-sentinel://u:p,a@ss@a:1,b,[::1]:2,[::1]/3#limits",
            "redis-cluster://a",
            "redis-cluster://u:p,a@ss@a:7000,b,[::1]:7001",
        ] {
            let builder = StoreBuilder::from_url(url).unwrap();
            assert!(connect_url(url).is_ok(), "{url}");
            assert!(!format!("{builder:?}").contains("ss@"), "{builder:?}");
        }
        #[cfg(feature = "tls")]
        for url in ["rediss://a", "rediss-sentinel://a#limits", "rediss-cluster://a,b"] {
            assert!(connect_url(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_url_of_no_form_is_refused_with_the_forms_and_without_the_password() {
        for (url, why) in [
            ("", "redis-cluster://host"),
            ("localhost", "redis-sentinel://host"),
            ("http://:S3CRET@a", "`http://:***@a`"),
            ("redis-cluster:a", "it is not the URL of a store"),
            ("redis-cluster://", "it names no host"),
            ("redis-cluster://a,", "it names no host"),
            ("redis-cluster://:S3CRET@a:99999", "`99999` is not a port"),
            ("redis-sentinel://:S3CRET@a", "end in `#name`"),
            ("redis-sentinel://:S3CRET@a#", "end in `#name`"),
            ("redis-sentinel://:S3CRET@a:x#limits", "`x` is not a port"),
            ("redis-sentinel://:S3CRET@a/x#limits", "Invalid database number"),
            ("redis://:S3CRET@a:x", "`redis://:***@a:x`"),
        ] {
            let error = StoreBuilder::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(why), "{error}");
            assert!(!error.to_string().contains("S3CRET"), "{error}");
        }
        // A cluster URL with a database is refused by `build` and not by `from_url`.
        let error = connect_url("redis-cluster://:S3CRET@a/3").unwrap_err();
        assert!(error.to_string().contains("no database but 0"), "{error}");
        assert!(!error.to_string().contains("S3CRET"), "{error}");
    }

    #[test]
    fn a_password_from_elsewhere_is_used_only_if_the_url_has_none() {
        for (url, has_password) in [
            ("redis://a", false),
            ("redis://user@a", false),
            ("redis://:p@a", true),
            ("unix:///run/redis?pass=p", true),
            ("unix:///run/redis?db=1", false),
            ("redis-cluster://user@a,b", false),
            ("redis-cluster://:p@a,b", true),
            ("redis-sentinel://:p@a,b#c", true),
            ("redis-sentinel://a,b#c", false),
        ] {
            assert_eq!(StoreBuilder::from_url(url).unwrap().has_password, has_password, "{url}");
        }
    }
}
