//! The store that a server keeps its counts in: by a URL, or by the environment variables of envoyproxy/ratelimit.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tidegate_cluster::StoreBuilder;
use tidegate_core::layers::BreakerWatch;
use tidegate_core::{Breaker, Error, ErrorKind, Store, StoreExt};
use tidegate_memory::MemoryStore;

/// The URL of this process's memory.
pub const MEMORY: &str = "memory";

/// Opens the store at `url`: `memory`, or one of the forms of [`StoreBuilder`]. It does not connect yet.
///
/// A server's calls have a timeout, a circuit breaker and metrics around them.
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
/// If the URL is not of these forms.
pub fn open(url: &str, settings: &StoreSettings) -> Result<Arc<dyn Store>, Error> {
    open_watched(url, settings).map(|(store, _)| store)
}

/// The same, with a handle that shows the state of the circuit breaker, if the store has one.
///
/// # Errors
///
/// Those of [`open`].
pub fn open_watched(
    url: &str,
    settings: &StoreSettings,
) -> Result<(Arc<dyn Store>, Option<BreakerWatch>), Error> {
    if url == MEMORY {
        return Ok((Arc::new(MemoryStore::new().observed()), None));
    }
    let builder = StoreBuilder::from_url(url).map_err(|error| match url.contains("://") {
        true => error,
        false => error.with_context(format!("it is not `{MEMORY}`")),
    })?;
    let mut builder = builder.connections(settings.connections);
    if !settings.prefix.is_empty() {
        builder = builder.prefix(&settings.prefix);
    }
    builder = match settings.sentinel_auth.parts() {
        Some((Some(user), password)) => builder.sentinel_user(user, password),
        Some((None, password)) => builder.sentinel_password(password),
        None => builder,
    };
    #[cfg(feature = "tls")]
    if is_encrypted(url) {
        builder = settings.certificates.add_to(builder);
    }
    let store = builder.response_timeout(settings.timeout).build()?;
    let store = store.timeout(settings.timeout).breaker(Breaker::new());
    let breaker = store.watch();
    Ok((Arc::new(store.observed()), Some(breaker)))
}

/// How to talk to the server of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// What all keys begin with; empty for `tidegate` (`CACHE_KEY_PREFIX`).
    pub prefix: String,
    /// How long to wait for an answer (`REDIS_TIMEOUT`).
    pub timeout: Duration,
    /// How many connections to use in turn, each for any number of calls at the same time.
    pub connections: usize,
    /// The login at Sentinels (`REDIS_SENTINEL_AUTH`).
    pub sentinel_auth: Auth,
    /// The certificates of encrypted connections.
    #[cfg(feature = "tls")]
    pub certificates: Certificates,
}

/// A password, or `user:password`; empty for none.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Auth(pub String);

impl Auth {
    /// The user, if there is one, and the password.
    fn parts(&self) -> Option<(Option<&str>, &str)> {
        match self.0.split_once(':') {
            _ if self.0.is_empty() => None,
            Some(("", password)) => Some((None, password)),
            Some((user, password)) => Some((Some(user), password)),
            None => Some((None, &self.0)),
        }
    }
}

/// Only whether there is one.
impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// The certificates of encrypted connections to a store (PEM).
#[cfg(feature = "tls")]
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Certificates {
    /// The roots to trust in place of those of the system (`REDIS_TLS_CACERT`).
    pub roots: Option<Vec<u8>>,
    /// The certificate that the store is shown, and its key (`REDIS_TLS_CLIENT_CERT`, `REDIS_TLS_CLIENT_KEY`).
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

#[cfg(feature = "tls")]
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

/// Without the key.
#[cfg(feature = "tls")]
impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

/// Whether connections to the store at `url` are encrypted.
#[must_use]
pub fn is_encrypted(url: &str) -> bool {
    url.starts_with("rediss") || url.starts_with("valkeys:")
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            timeout: Duration::from_secs(10),
            connections: 1,
            sentinel_auth: Auth::default(),
            #[cfg(feature = "tls")]
            certificates: Certificates::default(),
        }
    }
}

/// The answer to a request that the store cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnStoreError {
    /// An error, by which Envoy decides on its own: by its `failure_mode_deny`.
    #[default]
    Error,
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
}

impl OnStoreError {
    /// The store for calls that are answered in this way.
    #[must_use]
    pub fn around(self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        match self {
            Self::Error => store,
            Self::Allow => Arc::new(store.or_fail_open()),
            Self::Deny => Arc::new(store.or_fail_closed()),
        }
    }
}

/// A server of Redis, as the environment variables of envoyproxy/ratelimit name it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisVariables<'a> {
    /// `REDIS_TYPE`: `SINGLE`, `SENTINEL` or `CLUSTER`.
    pub kind: &'a str,
    /// `REDIS_SOCKET_TYPE`: `tcp` or `unix`.
    pub socket: &'a str,
    /// `REDIS_URL`: one `host:port`, a path, or several of them with commas between; before those of Sentinels the
    /// name of the group.
    pub url: &'a str,
    /// `REDIS_AUTH`: a password, or `user:password`; empty for none.
    pub auth: &'a str,
    /// `REDIS_TLS`.
    pub is_tls: bool,
}

/// Without the login.
impl std::fmt::Debug for RedisVariables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisVariables").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl RedisVariables<'_> {
    /// The URL that [`open`] takes.
    ///
    /// ```
    /// use tidegate_server::store::RedisVariables;
    ///
    /// let variables = RedisVariables {
    ///     kind: "SENTINEL", socket: "tcp", url: "limits,10.0.0.1:26379,10.0.0.2", auth: "s/cret", is_tls: false,
    /// };
    /// assert_eq!(
    ///     variables.to_url()?,
    ///     "redis-sentinel://:s%2Fcret@10.0.0.1:26379,10.0.0.2#limits",
    /// );
    /// # Ok::<(), tidegate_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a variable has a value that is not possible. The message shows no login.
    pub fn to_url(&self) -> Result<String, Error> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, message);
        let is_unix = match self.socket.to_ascii_lowercase().as_str() {
            "tcp" => false,
            "unix" => true,
            other => {
                let message = format!("REDIS_SOCKET_TYPE is `{other}`; it must be tcp or unix");
                return Err(invalid(message));
            }
        };
        let tls = if self.is_tls { "s" } else { "" };
        let login = self.login();
        match self.kind.to_ascii_uppercase().as_str() {
            // With a login, if it has to have one.
            "SINGLE" if self.url.contains("://") => Ok(self.url.to_owned()),
            // It may have a login, and is not shown.
            "SINGLE" if is_unix && !self.url.starts_with('/') => Err(invalid(
                "REDIS_URL does not begin with `/`, as the path of a socket does; for a host and a port, \
                 REDIS_SOCKET_TYPE must be tcp, and its default is unix"
                    .to_owned(),
            )),
            "SINGLE" if is_unix && self.auth.is_empty() => Ok(format!("unix://{}", self.url)),
            "SINGLE" if is_unix => {
                let (user, password) = self.auth.split_once(':').unwrap_or(("", self.auth));
                let user = match user {
                    "" => String::new(),
                    user => format!("user={}&", encoded(user)),
                };
                Ok(format!("unix://{}?{user}pass={}", self.url, encoded(password)))
            }
            "SINGLE" => Ok(format!("redis{tls}://{login}{}", self.url)),
            "CLUSTER" => Ok(format!("redis{tls}-cluster://{login}{}", self.url)),
            "SENTINEL" => match self.url.split_once(',') {
                Some((name, hosts)) => Ok(format!("redis{tls}-sentinel://{login}{hosts}#{name}")),
                None => Err(invalid(
                    "REDIS_URL of Sentinels is the name of the group, then their addresses, with \
                     commas between"
                        .to_owned(),
                )),
            },
            other => Err(invalid(format!(
                "REDIS_TYPE is `{other}`; it must be SINGLE, SENTINEL or CLUSTER"
            ))),
        }
    }

    fn login(&self) -> String {
        match self.auth.split_once(':') {
            _ if self.auth.is_empty() => String::new(),
            Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
            None => format!(":{}@", encoded(self.auth)),
        }
    }
}

/// Letters, digits and what is never special.
const SPECIAL: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, &SPECIAL).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_all_kinds_are_urls_of_stores() {
        let single = RedisVariables {
            kind: "SINGLE",
            socket: "tcp",
            url: "a:6379",
            auth: "",
            is_tls: false,
        };
        let cluster = RedisVariables { kind: "cluster", url: "a:1,b:2", ..single.clone() };
        let unix = RedisVariables { socket: "unix", url: "/run/redis", ..single.clone() };
        for (variables, expected) in [
            (single.clone(), "redis://a:6379"),
            (RedisVariables { auth: "p@ss", ..single.clone() }, "redis://:p%40ss@a:6379"),
            (RedisVariables { auth: "u:p:q", ..single.clone() }, "redis://u:p%3Aq@a:6379"),
            (RedisVariables { url: "redis://x/3", ..single.clone() }, "redis://x/3"),
            (unix.clone(), "unix:///run/redis"),
            (RedisVariables { auth: "u:p&", ..unix }, "unix:///run/redis?user=u&pass=p%26"),
            (cluster.clone(), "redis-cluster://a:1,b:2"),
            (RedisVariables { auth: "p", ..cluster }, "redis-cluster://:p@a:1,b:2"),
        ] {
            let url = variables.to_url().unwrap();
            assert_eq!(url, expected);
            assert!(open(&url, &StoreSettings::default()).is_ok(), "{url}");
        }
        let tls = RedisVariables { is_tls: true, ..single.clone() };
        assert_eq!(tls.to_url().unwrap(), "rediss://a:6379");
        for wrong in [
            RedisVariables { kind: "MANY", ..single.clone() },
            RedisVariables { socket: "udp", ..single.clone() },
            RedisVariables { socket: "unix", auth: "S3CRET", ..single.clone() },
            RedisVariables { kind: "SENTINEL", auth: "S3CRET", ..single.clone() },
        ] {
            let error = wrong.to_url().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(!error.to_string().contains("S3CRET"));
        }
    }
}
