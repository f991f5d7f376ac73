//! Opens the store in which a server keeps its counts. The store is given by a URL or by the
//! environment variables of envoyproxy/ratelimit.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tidegate_cluster::StoreBuilder;
use tidegate_core::layers::BreakerWatch;
use tidegate_core::{Breaker, Error, ErrorKind, Store, StoreExt};
use tidegate_memory::MemoryStore;

/// The URL of the store in the memory of this process.
pub const MEMORY: &str = "memory";

/// Opens the store at `url`, which is `memory` or a URL that [`StoreBuilder`] supports. The store
/// connects later.
///
/// Every store has metrics. A store on a server also has a timeout and a circuit breaker.
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
/// Returns an error if the URL has none of these forms.
pub fn open(url: &str, settings: &StoreSettings) -> Result<Arc<dyn Store>, Error> {
    open_watched(url, settings).map(|(store, _)| store)
}

/// Like [`open`], but also returns a handle that shows the state of the circuit breaker, if the
/// store has one.
///
/// # Errors
///
/// Returns the same errors as [`open`].
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

/// The settings of connections to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// The prefix of all keys; empty for `tidegate` (`CACHE_KEY_PREFIX`).
    pub prefix: String,
    /// The timeout of calls (`REDIS_TIMEOUT`).
    pub timeout: Duration,
    /// The number of connections, which are used in turn. Each connection carries any number of
    /// concurrent calls.
    pub connections: usize,
    /// The login for Sentinels (`REDIS_SENTINEL_AUTH`).
    pub sentinel_auth: Auth,
    /// The certificates of encrypted connections.
    #[cfg(feature = "tls")]
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

/// Formats only whether there is a password.
impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// The certificates of encrypted connections to a store (PEM).
#[cfg(feature = "tls")]
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Certificates {
    /// The trusted root certificates; `None` for the roots of the system (`REDIS_TLS_CACERT`).
    pub roots: Option<Vec<u8>>,
    /// The client certificate that is presented to the store, and its private key
    /// (`REDIS_TLS_CLIENT_CERT`, `REDIS_TLS_CLIENT_KEY`).
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

/// Formats the certificates without the key.
#[cfg(feature = "tls")]
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
            connections: 1,
            sentinel_auth: Auth::default(),
            #[cfg(feature = "tls")]
            certificates: Certificates::default(),
        }
    }
}

/// A Redis server, as the environment variables of envoyproxy/ratelimit describe it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisVariables<'a> {
    /// `REDIS_TYPE`: `SINGLE`, `SENTINEL` or `CLUSTER`.
    pub kind: &'a str,
    /// `REDIS_SOCKET_TYPE`: `tcp` or `unix`.
    pub socket: &'a str,
    /// `REDIS_URL`: a `host:port` or the path of a socket. Several addresses are separated by
    /// commas. For Sentinels, the name of the group precedes the addresses.
    pub url: &'a str,
    /// `REDIS_AUTH`: a password or `user:password`; empty for no login.
    pub auth: &'a str,
    /// `REDIS_TLS`: whether connections are encrypted.
    pub is_tls: bool,
}

/// Formats the variables without the login.
impl std::fmt::Debug for RedisVariables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisVariables").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl RedisVariables<'_> {
    /// Returns the URL for [`open`].
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
    /// Returns an error if a variable has an invalid value. The message contains no login.
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
            // A URL contains its own login, if one is needed.
            "SINGLE" if self.url.contains("://") => Ok(self.url.to_owned()),
            // The message does not contain the value, because it may contain a login.
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
                    "REDIS_URL does not have the form for REDIS_TYPE SENTINEL; it must be the name of the group and \
                     the addresses of the Sentinels, separated by commas"
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

/// The characters that are percent-encoded: all except letters, digits and characters that are
/// never special.
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
