//! Decides which clients can send requests over HTTP.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use metrics::{Counter, counter};
use subtle::ConstantTimeEq;

use super::login::{DEFAULT_USER, Login};

/// The header fields of the response to a client without the right login. They also close the
/// connection, so that each guess of the password costs a connection.
pub(crate) const CHALLENGE: [(HeaderName, &str); 2] = [
    (header::WWW_AUTHENTICATE, "Basic realm=\"tidegate\", charset=\"UTF-8\""),
    (header::CONNECTION, "close"),
];

/// The clients that may send calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// All clients.
    Open,
    /// Clients with this login.
    Login(Login),
    /// No client, because no login is configured and other machines can reach the address.
    Closed,
}

/// A check of the header field `Authorization`, which contains a scheme and credentials. `basic`
/// and `bearer` are the expected credentials for the schemes of these names.
#[derive(Clone)]
pub(crate) struct Guard {
    access: Access,
    basic: String,
    /// The expected token, which is the password. `None` if the login has another user than the
    /// default user, because a token contains no user.
    bearer: Option<String>,
    refused: Counter,
}

impl Guard {
    pub(crate) fn new(access: Access) -> Self {
        let (mut basic, mut bearer) = (String::new(), None);
        if let Access::Login(Login { user, password }) = &access {
            basic = STANDARD.encode(format!("{user}:{password}"));
            bearer = (user == DEFAULT_USER).then(|| password.clone());
        }
        let refused = counter!("tidegate_server_http_refused_logins_total");
        Self { access, basic, bearer, refused }
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Returns `true` if the header fields contain the login. Counts a missing or wrong login.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let is_admitted = self.is_login(headers);
        if !is_admitted {
            self.count_refusal();
        }
        is_admitted
    }

    /// Counts a missing or wrong login.
    pub(crate) fn count_refusal(&self) {
        self.refused.increment(1);
    }

    /// Returns `true` if the header fields contain the login. The comparison takes constant time.
    pub(crate) fn is_login(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.unwrap_or_default();
        let Some(end) = given.iter().position(|byte| *byte == b' ') else { return false };
        let (scheme, credentials) = given.split_at(end);
        let credentials = credentials.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"basic") {
            return credentials.ct_eq(self.basic.as_bytes()).into();
        }
        let is_bearer = scheme.eq_ignore_ascii_case(b"bearer");
        let is = |token: &String| bool::from(credentials.ct_eq(token.as_bytes()));
        is_bearer && self.bearer.as_ref().is_some_and(is)
    }
}

/// Returns `true` if the `Host` of the request is an IP address or `localhost`. Other names are not
/// safe: a foreign site can resolve its own name to the address of this server (DNS rebinding), and
/// a browser would then let the scripts of the site send requests to this server, and read the
/// responses.
pub(crate) fn is_address(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    // The last colon precedes the port, except in an address without a port, such as `[::1]`.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_told_from_names() {
        let is = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.append(header::HOST, host.parse().unwrap());
            is_address(&headers)
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:6060",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:6060",
            "localhost",
            "LocalHost:6060",
            "a.localhost:1",
            "[2001:db8::1]:6060",
        ] {
            assert!(is(host), "{host}");
        }
        for host in [
            "",
            ":6060",
            "evil.example",
            "evil.example:6060",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1:6060:evil",
            "::1",
            "[::1",
            "[evil]",
            "1:a",
            "127.0.0.1 ",
            "0x7f000001",
            "127.1",
            "notlocalhost",
            "localhost:a",
        ] {
            assert!(!is(host), "{host}");
        }
        assert!(!is_address(&HeaderMap::new()));
        let mut two = HeaderMap::new();
        two.append(header::HOST, "127.0.0.1".parse().unwrap());
        two.append(header::HOST, "evil.example".parse().unwrap());
        assert!(!is_address(&two));
    }
}
