//! The address of the client.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName};
use http::request::Parts;
use http::{Extensions, HeaderMap};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tidegate_core::Subject;

use super::ExtractSubject;
use super::hops::{Syntax, address_of_node};
use super::peer::default_peer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The maximum number of proxies between the client and this server. Bounds the work for a long list.
const MAX_PROXIES: usize = 64;

/// The address of the client: of the peer, or, if the peer is a trusted proxy, what proxies wrote into one
/// field.
///
/// Any client can send any field. So by default none is read ([`peer`](Self::peer)), and where the server
/// stands behind proxies, their networks have to be named. Then one field is read, and no other one in its
/// place:
///
/// | constructor | field | what is taken |
/// |---|---|---|
/// | [`x_forwarded_for`](Self::x_forwarded_for) | `X-Forwarded-For` | from the right, the first address that is not of a trusted network |
/// | [`forwarded`](Self::forwarded) | `Forwarded` (RFC 7239), parameter `for` | the same |
/// | [`x_real_ip`](Self::x_real_ip) | `X-Real-IP` | its address |
/// | [`header`](Self::header) | another one, such as `CF-Connecting-IP` | its address |
///
/// | the request | its address |
/// |---|---|
/// | the peer is not trusted | the peer's, whatever the field says |
/// | the peer is trusted, and the field is absent | the peer's |
/// | all addresses of the list are trusted | the leftmost, which is farthest away |
/// | the address that decides is junk, `unknown`, an obfuscated name, or empty | none |
/// | a field that holds one address is there twice | none |
/// | there are more than 64 trusted proxies, or an element is longer than 1 KiB | none |
///
/// Ports, brackets and zones are dropped, and an IPv4-mapped address is the IPv4 address. An IPv6 client
/// has a whole network of addresses, so IPv6 addresses count by [`prefix`](Self::v6_prefix): /64 unless set
/// otherwise. The subject of an IPv4 client is `203.0.113.9`, that of an IPv6 client `2001:db8:7:1::/64`.
///
/// ```
/// use http::Request;
/// use tidegate_core::Subject;
/// use tidegate_http::subject::{ClientAddress, ExtractSubject, PeerAddr};
///
/// let client = ClientAddress::x_forwarded_for(["10.0.0.0/8".parse()?, "fd00::/8".parse()?]);
/// let mut request = Request::new(());
/// request.headers_mut().insert("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.7".parse()?);
///
/// request.extensions_mut().insert(PeerAddr("10.0.0.8:4711".parse()?));
/// let (request, ()) = request.into_parts();
/// // 6.6.6.6 is what the client has sent; the proxy has added its address.
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
    /// The address of the peer. No field is read.
    #[must_use]
    pub fn peer() -> Self {
        Self::new(Field::None, [])
    }

    /// Reads `X-Forwarded-For` of peers in these networks.
    #[must_use]
    pub fn x_forwarded_for(trusted: impl IntoIterator<Item = IpNet>) -> Self {
        Self::new(Field::List(X_FORWARDED_FOR, Syntax::Addresses), trusted)
    }

    /// Reads `Forwarded` of peers in these networks.
    #[must_use]
    pub fn forwarded(trusted: impl IntoIterator<Item = IpNet>) -> Self {
        Self::new(Field::List(FORWARDED, Syntax::Parameters), trusted)
    }

    /// Reads `X-Real-IP` of peers in these networks.
    #[must_use]
    pub fn x_real_ip(trusted: impl IntoIterator<Item = IpNet>) -> Self {
        Self::header(X_REAL_IP, trusted)
    }

    /// Reads a field that holds one address, such as `CF-Connecting-IP` or `Fly-Client-IP`, of peers
    /// in these networks. The proxy must overwrite what clients send in it.
    ///
    /// ```
    /// use http::HeaderName;
    /// use tidegate_http::subject::ClientAddress;
    ///
    /// let networks = ["173.245.48.0/20".parse()?, "2400:cb00::/32".parse()?]; // and so on
    /// let client = ClientAddress::header(HeaderName::from_static("cf-connecting-ip"), networks);
    /// # drop(client);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn header(name: HeaderName, trusted: impl IntoIterator<Item = IpNet>) -> Self {
        Self::new(Field::One(name), trusted)
    }

    fn new(field: Field, trusted: impl IntoIterator<Item = IpNet>) -> Self {
        let trusted: Vec<_> = trusted.into_iter().map(canonical).collect();
        let trusted = IpNet::aggregate(&trusted).into();
        Self { field, trusted, v6_prefix: 64, peer: default_peer }
    }

    /// The length of the prefix that IPv6 addresses count by; with 128, each address counts by itself.
    /// Default: 64, the smallest network that a subscriber gets. Many get a /56 or a /48.
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

    /// Where the server puts the peer's address. Default: [`PeerAddr`](super::PeerAddr), and with the
    /// feature `axum` its `ConnectInfo<SocketAddr>`.
    ///
    /// For a connection without an address, as through a Unix socket, return one of a network that is trusted,
    /// such as 127.0.0.1.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use tidegate_http::subject::ClientAddress;
    ///
    /// #[derive(Clone)]
    /// struct TcpConnectInfo {
    ///     remote_addr: SocketAddr, // as tonic has it
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

    /// The address. `None` if the server has not put the peer's address into the request, or by the table
    /// at [`ClientAddress`].
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
            // Fails if the prefix is longer than an address.
            IpAddr::V6(address) if self.v6_prefix < 128 => {
                Ipv6Net::new(address, self.v6_prefix).ok()
            }
            _ => None,
        };
        Some(network.map_or_else(|| Subject::from(address), |it| Subject::display(&it.trunc())))
    }
}

/// A network of IPv4-mapped addresses is one of IPv4 addresses.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    let v4 = v4.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}
