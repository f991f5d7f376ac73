use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::net::access::{Access, CHALLENGE, Guard};

/// The header fields of each response. They forbid a browser to load content from other servers, to
/// show the page in a frame, and to cache it.
const FIELDS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Passes requests of clients that may see the page to `next`, and refuses all other requests.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&guard, request.headers()) {
        Some(response) => response,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in FIELDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(guard: &Guard, headers: &HeaderMap) -> Option<Response> {
    let refused = |status, message: &'static str| Some((status, message).into_response());
    match guard.access() {
        Access::Open if is_address(headers) => None,
        Access::Open => refused(
            StatusCode::MISDIRECTED_REQUEST,
            "without a password, the page is served only under `localhost` and IP addresses, because another name may \
             belong to another site\n",
        ),
        Access::Login(_) if guard.admits(headers) => None,
        Access::Login(_) => Some(
            (StatusCode::UNAUTHORIZED, CHALLENGE, "a user and a password are needed\n")
                .into_response(),
        ),
        Access::Closed => refused(
            StatusCode::FORBIDDEN,
            "other machines can reach this address; set a password (TIDEGATE_PAGE_PASSWORD, or \
             page.password_file in the settings file), or page.without_password = true\n",
        ),
    }
}

/// Returns `true` if the `Host` of the request is an IP address or `localhost`. Other names are not
/// safe: a foreign site can resolve its own name to the address of this server (DNS rebinding), and
/// a browser would then let the scripts of the site read the page.
fn is_address(headers: &HeaderMap) -> bool {
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
