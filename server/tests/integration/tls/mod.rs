//! Tests encrypted connections with clients over sockets.

#![cfg(unix)]

mod bounds;
pub(crate) mod certificates;
mod clients;
mod files;
#[cfg(target_os = "linux")]
mod flood;
mod listeners;
mod program;
mod store;
mod swap;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tidegate_server::envoy::grpc::{GrpcSettings, serve};
use tidegate_server::envoy::service::Service;
use tidegate_server::net::listener::Listener;
use tidegate_server::net::tls::{Protocol, Tls, TlsSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::scene::{Scene, descriptor, is_ok, message, request};
use certificates::{Files, Root};

const CONFIG: &str = "domain: d\ndescriptors: [{key: a, policy: gcra 1_000_000/s}]\n";

const PATIENCE: Duration = Duration::from_secs(60);

fn settings(files: &Files) -> TlsSettings {
    TlsSettings::new(files.path("tls.crt"), files.path("tls.key"))
}

/// Returns settings that also require a client certificate.
fn with_clients(files: &Files) -> TlsSettings {
    let mut settings = settings(files);
    settings.client_roots = Some(files.path("ca.crt"));
    settings
}

async fn listener(protocol: Protocol, settings: TlsSettings) -> (Listener, Tls, SocketAddr) {
    let tls = Tls::open(protocol, settings).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    (Listener::encrypted(tcp, tls.clone()), tls, address)
}

struct Server {
    address: SocketAddr,
    tls: Tls,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(tls: TlsSettings) -> Self {
        Self::with(tls, GrpcSettings::default()).await
    }

    async fn with(tls: TlsSettings, settings: GrpcSettings) -> Self {
        let service = Arc::new(Service::new(Scene::new(CONFIG).decider));
        let (listener, tls, address) = listener(Protocol::Grpc, tls).await;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, service, settings, async {
            let _ = stopped.await;
        }));
        Self { address, tls, stop: Some(stop), task }
    }

    async fn call(&self, client: ClientConfig) -> Result<(), Status> {
        let mut client = RateLimitServiceClient::new(channel(self.address, client).await?);
        call(&mut client).await
    }
}

async fn call(client: &mut RateLimitServiceClient<Channel>) -> Result<(), Status> {
    let asked = message(&request("d", vec![descriptor(&[("a", "x")])]));
    let response = timeout(PATIENCE, client.should_rate_limit(asked)).await.unwrap()?;
    assert!(is_ok(response.get_ref()));
    Ok(())
}

/// Opens a channel of tonic over rustls.
async fn channel(address: SocketAddr, mut client: ClientConfig) -> Result<Channel, Status> {
    client.alpn_protocols = vec![b"h2".to_vec()];
    let client = Arc::new(client);
    let connector = tower::service_fn(move |_| {
        let client = Arc::clone(&client);
        async move { io::Result::Ok(TokioIo::new(connect(address, client).await?)) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let connected = timeout(PATIENCE, endpoint.connect_with_connector(connector)).await.unwrap();
    connected.map_err(|error| Status::unavailable(format!("{error:?}")))
}

async fn connect(
    address: SocketAddr,
    client: impl Into<Arc<ClientConfig>>,
) -> io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").unwrap();
    timeout(PATIENCE, TlsConnector::from(client.into()).connect(name, tcp)).await?
}

/// Returns the certificate that the server sends on a new connection.
async fn certificate(address: SocketAddr, client: ClientConfig) -> CertificateDer<'static> {
    let stream = connect(address, client).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

/// Sends bytes on a new encrypted connection. Returns the answer until the end of the connection.
async fn answer(
    address: SocketAddr,
    client: ClientConfig,
    bytes: impl AsRef<[u8]>,
) -> io::Result<String> {
    let mut stream = connect(address, client).await?;
    let mut answer = Vec::new();
    let conversation = async {
        stream.write_all(bytes.as_ref()).await?;
        stream.flush().await?;
        stream.read_to_end(&mut answer).await
    };
    timeout(PATIENCE, conversation).await??;
    Ok(String::from_utf8(answer).unwrap())
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap();
}
