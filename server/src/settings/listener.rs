//! The settings of one listener: its address, its certificates, its login, and its connections.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_server::net::access::Access;
use tidegate_server::net::listener::Listener as Socket;
use tidegate_server::net::login::Login;
use tidegate_server::net::tls::{Protocol, Tls, TlsSettings};
use tokio::net::TcpListener;

use super::Mistake;
use super::values::{Address, Values, connections, file, optional, switch, text};
use super::values::{Origin, secret};
use tidegate_server::net::descriptors::MaxConnections;

/// A protocol with a listener. The settings file has a section with the name of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Grpc,
    Http,
    Resp,
    Page,
}

impl Section {
    pub(super) const ALL: [Self; 4] = [Self::Grpc, Self::Http, Self::Resp, Self::Page];

    /// Returns the key of the setting `name` in this section.
    pub(super) fn key(self, name: &str) -> String {
        let section = match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Resp => "resp",
            Self::Page => "page",
        };
        format!("{section}.{name}")
    }

    fn max_connections_key(self) -> &'static str {
        match self {
            Self::Grpc => "grpc.max_connections",
            Self::Http => "http.max_connections",
            Self::Resp => "resp.max_connections",
            Self::Page => "page.max_connections",
        }
    }
}

/// The settings of a listener. gRPC has no login, and the maximum number of connections of the page
/// is fixed.
pub(crate) struct Listener {
    section: Section,
    /// The address; `None` if the protocol is not served.
    pub(crate) address: Option<Address>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    client_name: Option<String>,
    /// The login that clients need.
    pub(super) login: Option<Login>,
    /// Whether other machines may connect without a login.
    pub(super) without_password: bool,
    /// The maximum number of connections. `None` if the server chooses it after it has read the
    /// limit of open files.
    pub(super) max_connections: Option<usize>,
}

impl Listener {
    pub(super) fn read(section: Section, values: &mut Values) -> Result<Self, Mistake> {
        let key = |name| section.key(name);
        let address = values.get_address(&key("address"))?;
        let certificate = values.get(&key("tls_certificate"), file())?;
        let private_key = values.get(&key("tls_key"), file())?;
        let client_ca = values.get(&key("tls_client_ca"), file())?;
        let client_name = values.get(&key("tls_client_name"), optional(text()))?;
        let (mut login, mut without_password) = (None, false);
        if section != Section::Grpc {
            let user = values.get(&key("user"), text())?;
            let password = secret_of(values, &key("password"))?;
            login = password.map(|password| Login { user, password });
            without_password = values.get(&key("without_password"), switch())?;
        }
        let max_connections = match section {
            Section::Page => None,
            _ => values.get(&key("max_connections"), connections())?,
        };
        Ok(Self {
            section,
            address,
            certificate,
            key: private_key,
            client_ca,
            client_name,
            login,
            without_password,
            max_connections,
        })
    }

    /// Returns the address of a protocol that is always served.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is empty.
    pub(crate) fn required_address(&self) -> Result<&Address, String> {
        let empty = || format!("{} is empty; it must be HOST:PORT", self.section.key("address"));
        self.address.as_ref().ok_or_else(empty)
    }

    /// Returns the clients that may send requests to `address`.
    pub(crate) fn access(&self, address: SocketAddr) -> Access {
        match &self.login {
            Some(login) => Access::Login(login.clone()),
            None if self.without_password || address.ip().is_loopback() => Access::Open,
            None => Access::Closed,
        }
    }

    /// Returns the key of the setting for the maximum number of connections, and its value.
    pub(super) fn max_connections(&mut self) -> MaxConnections<'_> {
        (self.section.max_connections_key(), &mut self.max_connections)
    }

    /// Creates a listener on `tcp`. If the listener has certificates, spawns a task that loads them
    /// again when their files change.
    ///
    /// # Errors
    ///
    /// Returns an error if a certificate or a key cannot be used.
    pub(crate) fn open(&self, tcp: TcpListener) -> Result<Socket, String> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            return Ok(tcp.into());
        };
        let mut settings = TlsSettings::new(certificate, key);
        settings.client_roots.clone_from(&self.client_ca);
        settings.client_name.clone_from(&self.client_name);
        let protocol = match self.section {
            Section::Grpc => Protocol::Grpc,
            Section::Http => Protocol::Http,
            Section::Resp => Protocol::Resp,
            Section::Page => Protocol::Page,
        };
        let name = protocol.name();
        let tls = Tls::open(protocol, settings)
            .map_err(|error| format!("the certificates of {name}: {error}"))?;
        warn(&tls);
        let followed = tls.clone();
        // Ends with the program.
        tokio::spawn(async move {
            let report = |loaded| match loaded {
                Ok(()) => {
                    tracing::info!("the certificates of {name} were loaded again");
                    warn(&followed);
                }
                Err(error) => {
                    tracing::error!("the certificates of {name} stay as they were: {error}");
                }
            };
            followed.follow(report).await;
        });
        Ok(Socket::encrypted(tcp, tls))
    }
}

fn warn(tls: &Tls) {
    if let Some(warning) = tls.warning() {
        tracing::warn!("{warning}");
    }
}

/// The maximum size of a file with a password, in bytes.
const MAX_SECRET_BYTES: usize = 4096;

/// Reads a password from a setting such as `resp.password`, or from the file that the setting
/// `resp.password_file` names. If a variable sets `resp.password`, the file is not read.
pub(super) fn secret_of(values: &mut Values, key: &str) -> Result<Option<String>, Mistake> {
    let password = values.get(key, optional(secret()))?;
    let file_key = format!("{key}_file");
    let path = values.get(&file_key, file())?;
    let path = match (password, path) {
        (password, None) => return Ok(password),
        (Some(_), Some(_)) if matches!(values.origin(key), Origin::File(_)) => {
            let message = format!("{key} and {file_key} are set; one of them must be removed");
            return Err(Mistake::from(message));
        }
        (Some(password), Some(_)) => return Ok(Some(password)),
        (None, Some(path)) => path,
    };
    let place = format!("{file_key}: {}", path.display());
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{place}: the file cannot be read: {error}"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || text.len() > MAX_SECRET_BYTES {
        let bound = format!("it must have 1 to {MAX_SECRET_BYTES}");
        return Err(format!("{place}: the file has {} bytes; {bound}", text.len()).into());
    }
    Ok(Some(text.to_owned()))
}
