//! The address of the client.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName};
use http::request::Parts;
use http::{Extensions, HeaderMap};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tidegate_core::{Error, Subject};

use super::hops::{Syntax, address_of_node};
use super::peer::default_peer;
use super::{ExtractSubject, field_name, invalid, shown};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The maximum number of proxies between the client and this server. This bounds the work for a
/// long list.
const MAX_PROXIES: usize = 64;

/// The address of the client. This is the address of the peer or, if the peer is a trusted proxy,
/// an address that proxies wrote into a field.
///
/// By default, no field is read ([`peer`](Self::peer)), because any client can send any field. A
/// server behind proxies uses another constructor, which takes the addresses or networks of the
/// proxies, such as `127.0.0.1` and `10.0.0.0/8`, and reads one field:
///
/// | constructor | field | address |
/// |---|---|---|
/// | [`x_forwarded_for`](Self::x_forwarded_for) | `X-Forwarded-For` | the rightmost address that is not in a trusted network |
/// | [`forwarded`](Self::forwarded) | `Forwarded` (RFC 7239), parameter `for` | the rightmost address that is not in a trusted network |
/// | [`x_real_ip`](Self::x_real_ip) | `X-Real-IP` | the address in the field |
/// | [`header`](Self::header) | another field, such as `CF-Connecting-IP` | the address in the field |
///
/// | request | address of the client |
/// |---|---|
/// | the peer is not trusted | the address of the peer, regardless of the field |
/// | the peer is trusted, and the field is absent | the address of the peer |
/// | all addresses of the list are trusted | the leftmost address, which is the most distant |
/// | the deciding element is invalid, `unknown`, an obfuscated name, or empty | none |
/// | a field with one address is sent twice | none |
/// | the list has more than 64 trusted proxies, or an element longer than 1 KiB | none |
///
/// Ports, brackets and zones are removed, and an IPv4-mapped address becomes the IPv4 address. An
/// IPv6 client has a whole network of addresses, so IPv6 addresses are counted by their
/// [`prefix`](Self::v6_prefix), which is /64 by default. For example, the subject of an IPv4 client
/// is `203.0.113.9`, and the subject of an IPv6 client is `2001:db8:7:1::/64`.
///
/// ```
/// use http::Request;
/// use tidegate_core::Subject;
/// use tidegate_http::subject::{ClientAddress, ExtractSubject, PeerAddr};
///
/// let client = ClientAddress::x_forwarded_for(["127.0.0.1", "10.0.0.0/8", "fd00::/8"])?;
/// let mut request = Request::new(());
/// request.headers_mut().insert("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.7".parse()?);
///
/// request.extensions_mut().insert(PeerAddr("10.0.0.8:4711".parse()?));
/// let (request, ()) = request.into_parts();
/// // The client sent 6.6.6.6, and the proxy appended the address of the client.
/// assert_eq!(client.extract(&request), Some(Subject::from("203.0.113.9")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClientAddress {
    field: Field,
    trusted: Box<[IpNet]>,
    v6_prefix: u8,
    peer: fn(&Extensions) -> Option<IpAddr>,
}

#[derive(Debug, Clone)]
enum Field {
    None,
    List(HeaderName, Syntax),
    One(HeaderName),
}

impl ClientAddress {
    /// Creates an extractor that returns the address of the peer and reads no field.
    #[must_use]
    pub fn peer() -> Self {
        Self::new(Field::None, Box::default())
    }

    /// Creates an extractor that reads `X-Forwarded-For` if the peer is a trusted proxy. `trusted`
    /// contains the addresses and networks of the proxies.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`](tidegate_core::ErrorKind::InvalidConfig) if an element
    /// of `trusted` is neither an address nor a network. The error names the element and its
    /// position.
    pub fn x_forwarded_for(
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        let field = Field::List(X_FORWARDED_FOR, Syntax::Addresses);
        Ok(Self::new(field, networks(trusted)?))
    }

    /// Creates an extractor that reads `Forwarded` if the peer is a trusted proxy. `trusted`
    /// contains the addresses and networks of the proxies.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn forwarded(trusted: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        Ok(Self::new(Field::List(FORWARDED, Syntax::Parameters), networks(trusted)?))
    }

    /// Creates an extractor that reads `X-Real-IP` if the peer is a trusted proxy. `trusted`
    /// contains the addresses and networks of the proxies.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn x_real_ip(trusted: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        Ok(Self::new(Field::One(X_REAL_IP), networks(trusted)?))
    }

    /// Creates an extractor that reads a field with one address, such as `CF-Connecting-IP` or
    /// `Fly-Client-IP`, if the peer is a trusted proxy. `trusted` contains the addresses and
    /// networks of the proxies. If the client sent the field, the proxy must overwrite it.
    ///
    /// ```
    /// use tidegate_http::subject::ClientAddress;
    ///
    /// let cloudflare = ["173.245.48.0/20", "2400:cb00::/32"]; // and so on
    /// let client = ClientAddress::header("cf-connecting-ip", cloudflare)?;
    /// # drop(client);
    /// # Ok::<(), tidegate_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`x_forwarded_for`](Self::x_forwarded_for), and an error if `name` is
    /// not the name of a field.
    pub fn header(
        name: impl AsRef<str>,
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        Ok(Self::new(Field::One(field_name(name.as_ref())?), networks(trusted)?))
    }

    fn new(field: Field, trusted: Box<[IpNet]>) -> Self {
        Self { field, trusted, v6_prefix: 64, peer: default_peer }
    }

    /// Sets the length of the prefix by which IPv6 addresses are counted. With 128, each address is
    /// counted separately. The default is 64, because a subscriber has at least a /64 network. Many
    /// subscribers have a /56 or a /48.
    ///
    /// ```
    /// use tidegate_core::Subject;
    /// use tidegate_http::subject::{ClientAddress, ExtractSubject, PeerAddr};
    ///
    /// let (mut request, ()) = http::Request::new(()).into_parts();
    /// request.extensions.insert(PeerAddr("[2001:db8:7:1::9]:4711".parse()?));
    /// for (prefix, subject) in
    ///     [(48, "2001:db8:7::/48"), (64, "2001:db8:7:1::/64"), (128, "2001:db8:7:1::9")]
    /// {
    ///     let client = ClientAddress::peer().v6_prefix(prefix);
    ///     assert_eq!(client.extract(&request), Some(Subject::from(subject)));
    /// }
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn v6_prefix(self, length: u8) -> Self {
        Self { v6_prefix: length, ..self }
    }

    /// Sets a function that returns the address of the peer from the extensions of the request. By
    /// default, [`PeerAddr`](super::PeerAddr) is read, and with the feature `axum` also
    /// `ConnectInfo<SocketAddr>`.
    ///
    /// A connection through a Unix socket has no address. For such a connection, the function
    /// should return an address in a trusted network, such as 127.0.0.1.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use tidegate_http::subject::ClientAddress;
    ///
    /// #[derive(Clone)]
    /// struct TcpConnectInfo {
    ///     remote_addr: SocketAddr, // as in tonic
    /// }
    ///
    /// let client = ClientAddress::peer()
    ///     .peer_by(|extensions| Some(extensions.get::<TcpConnectInfo>()?.remote_addr.ip()));
    /// # drop(client);
    /// ```
    #[must_use]
    pub fn peer_by(self, peer: fn(&Extensions) -> Option<IpAddr>) -> Self {
        Self { peer, ..self }
    }

    /// Returns the address of the client. Returns `None` if the extensions do not contain the
    /// address of the peer, and in the cases in the table of [`ClientAddress`].
    #[must_use]
    pub fn address(&self, request: &Parts) -> Option<IpAddr> {
        let peer = (self.peer)(&request.extensions)?.to_canonical();
        if !self.is_trusted(peer) {
            return Some(peer);
        }
        match &self.field {
            Field::None => Some(peer),
            Field::List(name, syntax) => {
                self.first_untrusted(&request.headers, name, *syntax, peer)
            }
            Field::One(name) => {
                let mut lines = request.headers.get_all(name).iter();
                match (lines.next(), lines.next()) {
                    (None, _) => Some(peer),
                    (Some(line), None) => address_of_node(line.as_bytes().trim_ascii()),
                    _ => None,
                }
            }
        }
    }

    fn first_untrusted(
        &self,
        headers: &HeaderMap,
        name: &HeaderName,
        syntax: Syntax,
        peer: IpAddr,
    ) -> Option<IpAddr> {
        let mut farthest = peer;
        let mut proxies = 1;
        for line in headers.get_all(name).iter().rev() {
            let mut rest = Some(line.as_bytes());
            while let Some(line) = rest {
                let (address, left) = syntax.last_address(line)?;
                if !self.is_trusted(address) {
                    return Some(address);
                }
                proxies += 1;
                if proxies > MAX_PROXIES {
                    return None;
                }
                (farthest, rest) = (address, left);
            }
        }
        Some(farthest)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

impl ExtractSubject for ClientAddress {
    fn extract<'r>(&'r self, request: &'r Parts) -> Option<Subject<'r>> {
        let address = self.address(request)?;
        let network = match address {
            // `Ipv6Net::new` cannot fail, because a prefix below 128 is always valid.
            IpAddr::V6(address) if self.v6_prefix < 128 => {
                Ipv6Net::new(address, self.v6_prefix).ok()
            }
            _ => None,
        };
        Some(
            network.map_or_else(
                || Subject::from(address),
                |network| Subject::display(&network.trunc()),
            ),
        )
    }

    fn remedy(&self, request: &Parts) -> Option<&'static str> {
        (self.peer)(&request.extensions).is_none().then_some(
            "the server does not pass the address of the peer on; with axum, enable the feature `axum` and serve \
             with `into_make_service_with_connect_info::<SocketAddr>()`; with tonic, set `ClientAddress::peer_by`; \
             with hyper, insert `PeerAddr` into the extensions",
        )
    }
}

/// Parses addresses and networks, and merges networks that overlap.
fn networks(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Box<[IpNet]>, Error> {
    let texts = texts.into_iter().enumerate();
    let networks: Result<Vec<_>, _> =
        texts.map(|(index, text)| network(index, text.as_ref())).collect();
    Ok(IpNet::aggregate(&networks?).into())
}

/// Parses a network such as `10.0.0.0/8`, or an address as a network with one address.
fn network(index: usize, text: &str) -> Result<IpNet, Error> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let network = text.parse().ok().or_else(address).ok_or_else(|| {
        let number = index + 1;
        invalid(format!(
            "trusted proxy {number} is `{}`; it must be an address such as 127.0.0.1, or a network such as \
             10.0.0.0/8 or fd00::/8",
            shown(text)
        ))
    });
    network.map(canonical)
}

/// Converts a network of IPv4-mapped addresses to a network of IPv4 addresses.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    let v4 = v4.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}
