//! Functions that parse the URLs of servers, and show URLs without passwords.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};
use tidegate_core::{Error, ErrorKind};

use super::error::printable;

/// The valid forms of URLs, for error messages.
const FORMS: &str = "`redis://[user:password@]host[:port][/database]`, the same with `rediss://` for TLS, or \
                     `unix:///path/to/socket[?db=1&user=name&pass=word]`";

/// Parses the URL of a server. The error for a URL that is not valid contains the URL without its
/// password, the reason, and the valid forms.
pub fn parse_url(url: &str) -> Result<ConnectionInfo, Error> {
    if has_encrypted_scheme(url) && !cfg!(feature = "tls") {
        return Err(unusable_url(url, "it needs the feature `tls` of `tidegate-redis`"));
    }
    url.into_connection_info().map_err(|error| {
        let why = why_unusable(url, &error);
        unusable_url(url, &format!("{why}; it must be {FORMS}"))
    })
}

#[must_use]
pub fn has_password(info: &ConnectionInfo) -> bool {
    info.redis_settings().password().is_some()
}

#[must_use]
pub fn is_encrypted(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Returns `info` with `user` and `password`, if they are set.
pub(crate) fn with_login(
    info: ConnectionInfo,
    user: Option<&str>,
    password: Option<&str>,
) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    info.set_redis_settings(settings)
}

/// Returns the error for a URL that cannot be used.
#[must_use]
pub fn unusable_url(url: &str, why: &str) -> Error {
    let shown = printable(&without_password(url));
    Error::new(ErrorKind::InvalidConfig, format!("the URL `{shown}` cannot be used: {why}"))
}

fn has_encrypted_scheme(url: &str) -> bool {
    ["rediss://", "valkeys://"].iter().any(|scheme| url.starts_with(scheme))
}

fn why_unusable(url: &str, error: &RedisError) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "it has no scheme such as `redis://`".to_owned();
    };
    let schemes = ["redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix"];
    if !schemes.contains(&scheme) {
        return format!("`{}://` is not a scheme of Redis", printable(&scheme));
    }
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    let host = hosts.split(['/', '?', '#']).next().unwrap_or(hosts);
    match host.rsplit_once(':') {
        Some((_, port)) if !port.contains(']') && port.parse::<u16>().is_err() => {
            format!("`{}` is not a port", printable(&port))
        }
        Some(("", _)) => "it names no host".to_owned(),
        None if host.is_empty() && !scheme.ends_with("unix") => "it names no host".to_owned(),
        _ => printable(&error.to_string().replace(" - InvalidClientConfig", "")),
    }
}

/// Returns a URL without its password, for messages and logs. If it is not clear which part of the
/// URL is the password, the result omits a larger part.
#[must_use]
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    // The password can contain an `@` that is not escaped, so split at the last `@`.
    let (login, rest) = match rest.rsplit_once('@') {
        // In the URL of a socket, the password follows `pass=`, and the `@` is possibly a part of
        // it. So omit everything.
        Some((login, _)) if login.contains("pass=") => ("…".to_owned(), ""),
        Some((login, rest)) => match login.split_once(':') {
            Some((user, _)) if !user.contains(['/', '?', '=']) => (format!("{user}:***@"), rest),
            _ => ("***@".to_owned(), rest),
        },
        None => (String::new(), rest),
    };
    let rest = match rest.find("pass") {
        Some(at) => format!("{}pass=***", &rest[..at]),
        None => rest.to_owned(),
    };
    format!("{scheme}{login}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_used_is_refused_with_the_url_the_reason_and_the_forms() {
        for (url, why) in [
            (
                "localhost",
                "the URL `localhost` cannot be used: it has no scheme such as `redis://`",
            ),
            ("127.0.0.1:7700", "`127.0.0.1:7700` cannot be used: it has no scheme"),
            ("localhost:6379", "`localhost:6379` cannot be used: it has no scheme"),
            ("", "the URL `` cannot be used: it has no scheme"),
            ("redis://a:99999", "`redis://a:99999` cannot be used: `99999` is not a port"),
            ("redis://:p@a:port/1", "`redis://:***@a:port/1` cannot be used: `port` is not a port"),
            ("redis://", "it names no host"),
            ("redis://:6379", "it names no host"),
            ("http://a", "`http://` is not a scheme of Redis"),
            ("redis://a/x", "Invalid database number"),
            ("redis://0.0.0.0", "wildcard"),
        ] {
            let error = parse_url(url).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(text.contains(why), "{text}");
            for form in ["redis://[user:password@]host[:port]", "rediss://", "unix://"] {
                assert!(text.contains(form), "{text}");
            }
        }
        for url in ["redis://[::1]:7000/3", "redis://a", "unix:///run/redis", "redis://u:p@a:1/2"] {
            assert!(parse_url(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("redis://a:1/2", "redis://a:1/2"),
            ("redis://user:S3CRET@a:1", "redis://user:***@a:1"),
            ("redis://:S3@CRET@a", "redis://:***@a"),
            ("redis://u:S3/CR?E#T@a:x", "redis://u:***@a:x"),
            ("redis://S3CRET@a:x", "redis://***@a:x"),
            ("u:S3CRET@a", "u:***@a"),
            ("redis//:S3CRET@a", "***@a"),
            ("redis:S3CRET@a", "redis:***@a"),
            ("unix:///run/redis?db=1&pass=S3CRET", "unix:///run/redis?db=1&pass=***"),
            ("redis+unix:///run/redis?pass=S3@CRET", "redis+unix://…"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn encryption_without_its_feature_says_which_is_needed() {
        let error = parse_url("rediss://:S3CRET@a").unwrap_err().to_string();
        assert!(
            error.ends_with(
                "`rediss://:***@a` cannot be used: it needs the feature `tls` of `tidegate-redis`"
            ),
            "{error}"
        );
    }
}
