use std::str::FromStr;

use super::server::Server;
use crate::report::escape::visible;

/// The place where a replay stores its states.
#[derive(Debug, Clone, Default)]
pub enum Backend {
    /// The memory of this process.
    #[default]
    Memory,
    /// A Redis, a Sentinel group or a Redis Cluster.
    Server(Server),
}

impl Backend {
    /// Parses `memory` or the URL of a store. If the URL contains no password, the store uses
    /// `password`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not the URL of a store. The message shows the URL without
    /// its password. [`without_login`] returns the part of a URL that can be shown.
    pub fn parse(text: &str, password: Option<&str>) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        if !text.contains("://") {
            return Err("a store is `memory`, the URL of a Redis such as redis://127.0.0.1, that of a \
                        Sentinel group such as redis-sentinel://10.0.0.1,10.0.0.2#name, or that of a Redis \
                        Cluster such as redis-cluster://10.0.0.1:7000,10.0.0.2:7000"
                .into());
        }
        Server::parse(text, password).map(Self::Server)
    }

    /// Returns `true` if the backend is the memory of this process.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory)
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, None)
    }
}

/// Returns the part of the URL of a store that can be shown: its scheme and its hosts, without the
/// user and the password. If the hosts cannot be distinguished from the password, they are omitted
/// too.
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
        // If an `@` follows the first `?` of the URL, this `?` may be a character of the password.
        // The hosts are not shown, because their start is not known.
        _ if query.contains('@') => "…".to_owned(),
        Some((_, hosts)) => format!("…@{hosts}"),
        None => address.to_owned(),
    };
    let query = if query.is_empty() { "" } else { "?…" };
    format!("{}{}{query}", visible(&scheme), visible(&hosts))
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_a_store_is_an_error_that_shows_valid_ones() {
        for text in ["", "redis", "http://127.0.0.1", "memcached://127.0.0.1", "redis-cluster:a"] {
            let message = text.parse::<Backend>().unwrap_err();
            for form in ["redis://", "redis-sentinel://", "redis-cluster://"] {
                assert!(message.contains(form), "{text}: {message}");
            }
        }
        for text in
            ["redis-cluster://", "redis-cluster://a,", "redis-cluster://a/3", "redis-sentinel://a"]
        {
            assert!(text.parse::<Backend>().is_err(), "{text}");
        }
        for text in
            ["redis-cluster://a,b", "redis-sentinel://a#b", "unix:///run/redis", "redis://a"]
        {
            assert!(!text.parse::<Backend>().unwrap().is_memory(), "{text}");
        }
        assert!("memory".parse::<Backend>().unwrap().is_memory());
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
        for url in ["redis-cluster://u:S3CRET@a:1,b:2", "redis://u:S3CRET@a"] {
            let backend: Backend = url.parse().unwrap();
            assert!(!format!("{backend:?}").contains("S3CRET"), "{backend:?}");
        }
    }
}
