//! The default subject of a client's request.

use http::header::HOST;
use http::request::Parts;
use tidegate_core::Subject;

/// Returns the origin of a request, such as `https://api.example.com:443`. The origin is the
/// default subject of a [`ThrottleLayer`](super::ThrottleLayer).
///
/// The origin is in lower case. It contains the port if the URI contains the port, or if the scheme
/// has a default port. If the URI has no host, the origin is `//` and the value of the field
/// `Host`. Returns `None` if there is no host at all.
///
/// ```
/// use http::Request;
/// use tidegate_core::Subject;
/// use tidegate_http::client::origin;
///
/// let (parts, ()) = Request::get("https://API.example.com/items?page=2").body(())?.into_parts();
/// assert_eq!(origin(&parts), Some(Subject::from("https://api.example.com:443")));
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn origin(request: &Parts) -> Option<Subject<'static>> {
    let uri = &request.uri;
    let mut text = match uri.host() {
        Some(host) => {
            let scheme = uri.scheme_str().unwrap_or_default();
            let port = uri.port_u16().or_else(|| default_port(scheme));
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let colon = if scheme.is_empty() { "" } else { ":" };
            format!("{scheme}{colon}//{host}{port}")
        }
        None => format!("//{}", request.headers.get(HOST)?.to_str().ok()?),
    };
    text.make_ascii_lowercase();
    Some(Subject::from(text))
}

fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn origin_of(uri: &str, host: Option<&str>) -> Option<String> {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        origin(&parts).map(|origin| String::from_utf8(origin.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn all_ways_to_write_an_origin_are_one_subject() {
        for uri in [
            "https://example.com",
            "HTTPS://EXAMPLE.com:443/a",
            "https://user:secret@example.com/b?c",
        ] {
            assert_eq!(
                origin_of(uri, Some("other")).as_deref(),
                Some("https://example.com:443"),
                "{uri}"
            );
        }
        let others = [
            ("http://example.com/", "http://example.com:80"),
            ("https://example.com:8443/", "https://example.com:8443"),
            ("https://[2001:DB8::1]/", "https://[2001:db8::1]:443"),
            ("example.com:8080", "//example.com:8080"),
        ];
        for (uri, expected) in others {
            assert_eq!(origin_of(uri, None).as_deref(), Some(expected), "{uri}");
        }
    }

    #[test]
    fn a_request_without_a_host_in_its_uri_goes_to_that_of_its_field() {
        assert_eq!(
            origin_of("/items", Some("API.example.com")).as_deref(),
            Some("//api.example.com")
        );
        assert_eq!(origin_of("/items", None), None);
    }
}
