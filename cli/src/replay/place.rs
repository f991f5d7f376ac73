use std::fmt;
use std::str::FromStr;

use tidegate_cluster::ClusterStore;
use tidegate_redis::RedisStore;

use crate::report::escape::visible;

/// What keeps the states of a replay.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Place {
    /// This process's memory.
    #[default]
    Memory,
    /// The Redis at this URL.
    Redis(String),
    /// The Redis Cluster that the nodes at these URLs belong to.
    Cluster(Vec<String>),
}

/// What the URL of a server begins with.
const SERVER: [&str; 5] = ["redis://", "rediss://", "redis+unix://", "unix://", "valkey://"];

/// What the URL of a cluster begins with, and then those of its nodes.
const CLUSTER: [(&str, &str); 2] =
    [("redis-cluster://", "redis://"), ("rediss-cluster://", "rediss://")];

impl Place {
    /// The place that a text names, with a password for a server whose URL has none.
    ///
    /// # Errors
    ///
    /// If the text is not the URL of a store. The message does not repeat the URL, which may hold a
    /// password; [`without_login`] is what may be shown of it.
    pub fn parse(text: &str, password: Option<&str>) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let url = match password {
            Some(password) => with_password(text, password),
            None => text.to_owned(),
        };
        if !cfg!(feature = "tls") && text.starts_with("rediss") {
            return Err("this program was built without TLS; build it with `--features tls`".into());
        }
        let of_cluster = CLUSTER
            .iter()
            .find_map(|(scheme, its_nodes)| Some(nodes(url.strip_prefix(scheme)?, its_nodes)));
        if let Some(urls) = of_cluster {
            ClusterStore::connect(&urls).map_err(|error| error.to_string())?;
            return Ok(Self::Cluster(urls));
        }
        if SERVER.iter().any(|scheme| url.starts_with(scheme)) {
            RedisStore::connect(&url).map_err(|error| error.to_string())?;
            return Ok(Self::Redis(url));
        }
        Err("a store is `memory`, the URL of a Redis such as redis://127.0.0.1, or that of a Redis \
             Cluster such as redis-cluster://10.0.0.1:7000,10.0.0.2:7000"
            .into())
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, None)
    }
}

/// Without logins.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("Memory"),
            Self::Redis(url) => f.debug_tuple("Redis").field(&without_login(url)).finish(),
            Self::Cluster(urls) => {
                let urls: Vec<String> = urls.iter().map(|url| without_login(url)).collect();
                f.debug_tuple("Cluster").field(&urls).finish()
            }
        }
    }
}

/// What may be shown of the URL of a store: its scheme and its hosts. Where it is not clear what is a
/// login and what is not, less is shown.
///
/// ```
/// use tidegate::replay::without_login;
///
/// assert_eq!(without_login("redis://user:secret@127.0.0.1:6379/1"), "redis://…@127.0.0.1:6379/1");
/// ```
#[must_use]
pub fn without_login(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let hosts = match address.rsplit_once('@') {
        // Behind a `?` there may be a password, or it is a part of one.
        _ if query.contains('@') => "…".to_owned(),
        Some((_, hosts)) => format!("…@{hosts}"),
        None => address.to_owned(),
    };
    let query = if query.is_empty() { "" } else { "?…" };
    format!("{}{}{query}", visible(&scheme), visible(&hosts))
}

/// The URL with a password, if it has none.
fn with_password(url: &str, password: &str) -> String {
    // Whatever means something in a URL is encoded, and so may all else be.
    let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    if scheme.ends_with("unix") {
        let parted = if rest.contains('?') { '&' } else { '?' };
        return if rest.contains("pass=") {
            url.to_owned()
        } else {
            format!("{url}{parted}pass={encoded}")
        };
    }
    match rest.rsplit_once('@') {
        Some((login, _)) if login.contains(':') => url.to_owned(),
        Some((user, hosts)) => format!("{scheme}://{user}:{encoded}@{hosts}"),
        None => format!("{scheme}://:{encoded}@{rest}"),
    }
}

/// The URLs of nodes that stand in one, as `user:password@host:port,host:port`: the login is that of all.
fn nodes(authority: &str, scheme: &str) -> Vec<String> {
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    hosts.split(',').map(|host| format!("{scheme}{login}{host}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(urls: &[&str]) -> Result<Place, String> {
        Ok(Place::Cluster(urls.iter().map(|&url| url.to_owned()).collect()))
    }

    #[test]
    fn the_nodes_of_a_cluster_stand_in_one_url() {
        assert_eq!("redis-cluster://a".parse(), cluster(&["redis://a"]));
        assert_eq!(
            "redis-cluster://a:7000,b,[::1]:7001".parse(),
            cluster(&["redis://a:7000", "redis://b", "redis://[::1]:7001"])
        );
        assert_eq!(
            "redis-cluster://user:p,a@ss@a:1,b:2".parse(),
            cluster(&["redis://user:p,a@ss@a:1", "redis://user:p,a@ss@b:2"])
        );
    }

    #[test]
    fn what_is_no_store_is_told_with_what_would_be_one() {
        for text in ["", "redis", "http://127.0.0.1", "memcached://127.0.0.1", "redis-cluster:a"] {
            let told = text.parse::<Place>().unwrap_err();
            assert!(told.contains("redis://127.0.0.1"), "{text}: {told}");
        }
        for text in ["redis-cluster://", "redis-cluster://a,", "redis-cluster://a/3"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_of_a_login_is_shown() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/1", "redis://127.0.0.1:6379/1"),
            ("redis://user:S3CRET@host/x", "redis://…@host/x"),
            ("redis://:S3@CRET@host", "redis://…@host"),
            ("redis://user:S3?CRET@host", "redis://…?…"),
            ("redis+unix:///run/redis?user=u&pass=S3CRET", "redis+unix:///run/redis?…"),
            ("redis+unix:///run/redis?pass=S3@CRET", "redis+unix://…?…"),
            ("redis-cluster://u:S3CRET@a:1,b:2/3", "redis-cluster://…@a:1,b:2/3"),
            ("user:S3CRET@host", "…@host"),
            ("redis://\u{1b}[31m", "redis://\\u{1b}[31m"),
        ] {
            assert_eq!(without_login(url), shown);
        }
        let place: Place = "redis-cluster://u:S3CRET@a:1,b:2".parse().unwrap();
        assert_eq!(format!("{place:?}"), r#"Cluster(["redis://…@a:1", "redis://…@b:2"])"#);
        let place: Place = "redis://u:S3CRET@a".parse().unwrap();
        assert_eq!(format!("{place:?}"), r#"Redis("redis://…@a")"#);
    }

    #[test]
    fn a_password_from_elsewhere_goes_where_the_url_has_none() {
        for (url, with) in [
            ("redis://a:1/2", "redis://:%40%3A@a:1/2"),
            ("redis://user@a", "redis://user:%40%3A@a"),
            ("redis://user:own@a", "redis://user:own@a"),
            ("redis://:own@a", "redis://:own@a"),
            ("unix:///run/redis", "unix:///run/redis?pass=%40%3A"),
            ("unix:///run/redis?db=1", "unix:///run/redis?db=1&pass=%40%3A"),
            ("unix:///run/redis?pass=own", "unix:///run/redis?pass=own"),
            ("memory", "memory"),
        ] {
            assert_eq!(with_password(url, "@:"), with);
        }
        assert_eq!(
            Place::parse("redis-cluster://user@a,b", Some("s")),
            cluster(&["redis://user:%73@a", "redis://user:%73@b"])
        );
    }
}
