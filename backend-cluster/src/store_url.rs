use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "virtual-time")]
use tidegate_core::Clock;
use tidegate_core::{Error, Store};
use tidegate_redis::connection::{has_password, parse_url, without_password};
use tidegate_redis::{ProvidedCredentials, RedisStore, RedisStoreBuilder};

use crate::builder::ClusterStoreBuilder;
use crate::cluster_store::ClusterStore;

/// The port of a Sentinel whose URL names none.
const SENTINEL_PORT: u16 = 26_379;

/// The store at `url`, whatever kind of server that is: see [`StoreBuilder`].
///
/// Does not connect yet; [`Store::ready`] does.
///
/// ```
/// let store = tidegate_cluster::connect_url("redis-cluster://10.0.0.1:7000,10.0.0.2:7000")?;
/// # let _ = store;
/// # Ok::<(), tidegate_cluster::Error>(())
/// ```
///
/// # Errors
///
/// As [`StoreBuilder::from_url`] and [`StoreBuilder::build`].
pub fn connect_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    StoreBuilder::from_url(url)?.build()
}

/// Configures a store on what a URL names: one server, a Sentinel group or a cluster. For programs whose
/// configuration is one URL.
///
/// | URL | store |
/// |---|---|
/// | `redis://[user:password@]host[:port][/database]` | one server |
/// | `rediss://…` | one server, encrypted (feature `tls`) |
/// | `unix:///path/to/socket[?db=1&user=name&pass=word]` | one server, by its socket; also `redis+unix://` |
/// | `redis-sentinel://[user:password@]host[:port],host[:port][/database]#name` | the primary of the group `name`, by its Sentinels. The login is for the primary; that for the Sentinels is set by [`sentinel_user`](Self::sentinel_user). The port is 26379 unless named |
/// | `rediss-sentinel://…` | the same, the primary and the Sentinels encrypted (feature `tls`) |
/// | `redis-cluster://[user:password@]host[:port],host[:port]` | a cluster, by some of its nodes |
/// | `rediss-cluster://…` | the same, encrypted (feature `tls`) |
///
/// `valkey` and `valkeys` may stand for `redis` and `rediss` where one server is named. A password with
/// characters that mean something in a URL is percent-encoded.
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
    /// What may be shown.
    shown: String,
    has_password: bool,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Server(RedisStoreBuilder),
    Cluster(ClusterStoreBuilder),
}

/// Does with both builders what both can.
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
    /// A builder for the store at `url`, in one of the [forms above](Self).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](tidegate_core::ErrorKind::InvalidConfig) if it is of none of these forms, or needs a feature that is not there. The
    /// message shows the URL, its password masked.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (kind, servers) = match scheme {
            "redis-cluster" => of_cluster("redis", rest),
            "rediss-cluster" => of_cluster("rediss", rest),
            "redis-sentinel" => of_sentinels(url, "redis", rest)?,
            "rediss-sentinel" => of_sentinels(url, "rediss", rest)?,
            "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix" => {
                (Kind::Server(RedisStore::builder().url(url)), vec![url.to_owned()])
            }
            _ => return Err(of_no_form(url)),
        };
        let servers = servers.iter().map(|server| parse_url(server).map(|it| has_password(&it)));
        let has_password = servers.collect::<Result<Vec<_>, _>>()?.contains(&true);
        Ok(Self { shown: without_password(url), has_password, kind })
    }

    /// The password, if the URL has none, as from the environment.
    pub fn password_if_none(self, password: impl Into<String>) -> Self {
        if self.has_password {
            return self;
        }
        let password = password.into();
        each!(self, builder => builder.password(password))
    }

    /// Calls `provider` for the user and the password of each login at a server: see
    /// [`RedisStoreBuilder::credentials`].
    pub fn credentials<F>(self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ProvidedCredentials> + Send + 'static,
    {
        each!(self, builder => builder.credentials(provider))
    }

    /// The ACL user and its password for the Sentinels, if the URL names some: see
    /// [`RedisStoreBuilder::sentinel_user`].
    pub fn sentinel_user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.server(|builder| builder.sentinel_user(name, password))
    }

    /// The password for the Sentinels, if the URL names some: see [`RedisStoreBuilder::sentinel_password`].
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        self.server(|builder| builder.sentinel_password(password))
    }

    fn server(self, change: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        match self.kind {
            Kind::Server(builder) => Self { kind: Kind::Server(change(builder)), ..self },
            Kind::Cluster(_) => self,
        }
    }

    /// What all keys begin with. Default: `tidegate`. Two stores of one prefix share their states.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        each!(self, builder => builder.prefix(prefix))
    }

    /// How many connections to each server to use in turn: see [`RedisStoreBuilder::connections`].
    pub fn connections(self, connections: usize) -> Self {
        each!(self, builder => builder.connections(connections))
    }

    /// How long connecting may take: see [`RedisStoreBuilder::connect_timeout`].
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        each!(self, builder => builder.connect_timeout(timeout))
    }

    /// How long to wait for an answer: see [`RedisStoreBuilder::response_timeout`].
    pub fn response_timeout(self, timeout: Duration) -> Self {
        each!(self, builder => builder.response_timeout(timeout))
    }

    /// Trusts the certificates that these ones sign (PEM): see [`RedisStoreBuilder::root_certificates`].
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        each!(self, builder => builder.root_certificates(pem))
    }

    /// Shows servers this certificate, or chain, with its key (both PEM): see
    /// [`RedisStoreBuilder::client_certificate`].
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (pem, key) = (pem.into(), key.into());
        each!(self, builder => builder.client_certificate(pem, key))
    }

    /// The clock that counts instead of the servers', for tests.
    #[cfg(feature = "virtual-time")]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        each!(self, builder => builder.clock(clock))
    }

    /// The store. It does not connect yet.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::build`] and [`ClusterStoreBuilder::build`].
    pub fn build(self) -> Result<Arc<dyn Store>, Error> {
        Ok(match self.kind {
            Kind::Server(builder) => Arc::new(builder.build()?),
            Kind::Cluster(builder) => Arc::new(builder.build()?),
        })
    }
}

/// A cluster by the nodes that stand in one URL: the login is that of all.
fn of_cluster(scheme: &str, rest: &str) -> (Kind, Vec<String>) {
    let (login, hosts) = split_login(rest);
    let urls: Vec<_> = hosts.split(',').map(|host| format!("{scheme}://{login}{host}")).collect();
    (Kind::Cluster(ClusterStore::builder().urls(urls.clone())), urls)
}

/// A group by its Sentinels and its name.
fn of_sentinels(url: &str, scheme: &str, rest: &str) -> Result<(Kind, Vec<String>), Error> {
    let (login, rest) = split_login(rest);
    let (rest, name) = rest
        .split_once('#')
        .filter(|(_, name)| !name.is_empty())
        .ok_or_else(|| unusable(url, "the name of the group is missing: it ends in `#name`"))?;
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    // The host is that of whichever server is the primary.
    let server = format!("{scheme}://{login}primary/{database}");
    let mut sentinels = vec![];
    for host in hosts.split(',') {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
        sentinels.push(format!("{scheme}://{host}{port}"));
    }
    let builder = RedisStore::builder().url(&server).sentinel(sentinels.clone(), name);
    // Those of the Sentinels too, so that all that is wrong shows here.
    let urls = [server].into_iter().chain(sentinels).collect();
    Ok((Kind::Server(builder), urls))
}

/// The login with its `@`, if there is one, and what follows.
fn split_login(authority: &str) -> (&str, &str) {
    match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    }
}

fn unusable(url: &str, why: &str) -> Error {
    tidegate_redis::connection::unusable_url(url, why)
}

fn of_no_form(url: &str) -> Error {
    unusable(
        url,
        "it is not the URL of a store; expected is `redis://[user:password@]host[:port][/database]`, \
         `unix:///path/to/socket`, `redis-sentinel://host[:port],host[:port]#name` or \
         `redis-cluster://host[:port],host[:port]`, each of the others also with `rediss` for TLS",
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
    fn what_is_of_no_form_is_refused_with_the_forms_and_without_the_password() {
        for (url, why) in [
            ("", "redis-cluster://host"),
            ("localhost", "redis-sentinel://host"),
            ("http://:S3CRET@a", "`http://:***@a`"),
            ("redis-cluster:a", "it is not the URL of a store"),
            ("redis-cluster://", "it names no host"),
            ("redis-cluster://a,", "it names no host"),
            ("redis-cluster://:S3CRET@a:99999", "`99999` is not a port"),
            ("redis-sentinel://:S3CRET@a", "ends in `#name`"),
            ("redis-sentinel://:S3CRET@a#", "ends in `#name`"),
            ("redis-sentinel://:S3CRET@a:x#limits", "`x` is not a port"),
            ("redis-sentinel://:S3CRET@a/x#limits", "Invalid database number"),
            ("redis://:S3CRET@a:x", "`redis://:***@a:x`"),
        ] {
            let error = StoreBuilder::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(why), "{error}");
            assert!(!error.to_string().contains("S3CRET"), "{error}");
        }
        // A cluster has no databases, which its builder knows.
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
