//! Tests JSON and RESP over encrypted connections.

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::resp::{self, RespSettings};
use tidegate_server::envoy::json::routes;
use tidegate_server::net::http::{self, HttpSettings};
use tokio_rustls::TlsAcceptor;

use super::*;

async fn json(settings: TlsSettings) -> SocketAddr {
    let (listener, _, address) = listener(Protocol::Http, settings).await;
    let routes = routes(Arc::new(Service::new(Scene::new(CONFIG).decider)), None);
    tokio::spawn(http::serve(listener, routes, HttpSettings::default(), std::future::pending()));
    address
}

struct Resp {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

async fn resp(tls: TlsSettings, settings: RespSettings) -> Resp {
    let (listener, _, address) = listener(Protocol::Resp, tls).await;
    let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(resp::serve(listener, calls, settings, async {
        let _ = stopped.await;
    }));
    Resp { address, stop: Some(stop), task }
}

const HEALTH: &str = "GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const PING: &str = "PING\r\nCL.THROTTLE a 0 1 60\r\nQUIT\r\n";
const PONG: &str = "+PONG\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n+OK\r\n";

#[tokio::test]
async fn json_and_resp_are_served_to_clients_that_may_connect() {
    let (root, clients) = (Root::new(), Root::new());
    let files = Files::issued(&root.issue("localhost"), &clients.pem());
    let known = clients.issue("app");
    let (json_address, resp) = (
        json(with_clients(&files)).await,
        resp(with_clients(&files), RespSettings::default()).await,
    );
    let mut client = root.client(Some(&known));
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let health = answer(json_address, client.clone(), HEALTH).await.unwrap();
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n"), "{health}");
    client.alpn_protocols = vec![];
    assert_eq!(answer(resp.address, client, PING).await.unwrap(), PONG);

    for identity in [None, Some(root.issue("app"))] {
        let client = root.client(identity.as_ref());
        assert!(answer(json_address, client.clone(), HEALTH).await.is_err());
        assert!(answer(resp.address, client, PING).await.is_err());
    }
}

/// Checks that the server flushes TLS, which buffers bytes that the connection does not accept
/// immediately.
#[tokio::test]
async fn replies_that_a_client_reads_late_arrive_in_full() {
    let root = Root::new();
    let issued = root.issue("localhost");
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![issued.der()], key)
        .unwrap();
    // The connection accepts 8 KiB, which is less than the whole reply. TLS buffers the remaining
    // bytes.
    let (ours, theirs) = tokio::io::duplex(8 << 10);
    let served = tokio::spawn(async move {
        let stream = TlsAcceptor::from(Arc::new(config)).accept(theirs).await.unwrap();
        let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
        resp::serve_stream(stream, calls, RespSettings::default()).await
    });
    let connector = TlsConnector::from(Arc::new(root.client(None)));
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = timeout(PATIENCE, connector.connect(name, ours)).await.unwrap().unwrap();
    let text = "x".repeat(20_000);
    let command = format!("*2\r\n$4\r\nECHO\r\n$20000\r\n{text}\r\n");
    let reply = format!("$20000\r\n{text}\r\n");
    for _ in 0..3 {
        let mut read = vec![0; reply.len()];
        let conversation = async {
            stream.write_all(command.as_bytes()).await?;
            stream.flush().await?;
            stream.read_exact(&mut read).await
        };
        timeout(PATIENCE, conversation).await.unwrap().unwrap();
        assert!(read == reply.as_bytes());
    }
    drop(stream);
    assert!(timeout(PATIENCE, served).await.is_ok());
}

#[tokio::test]
async fn resp_ends_without_waiting_for_handshakes() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut tls = settings(&files);
    tls.handshake_timeout = PATIENCE * 60;
    let mut bounds = RespSettings::default();
    bounds.write_timeout = PATIENCE * 60;
    let mut resp = resp(tls, bounds).await;
    let mut slow = TcpStream::connect(resp.address).await.unwrap();
    let mut idle = connect(resp.address, root.client(None)).await.unwrap();
    idle.write_all(b"PING\r\n").await.unwrap();
    let mut pong = [0; 7];
    timeout(PATIENCE, idle.read_exact(&mut pong)).await.unwrap().unwrap();
    let _ = resp.stop.take().unwrap().send(());
    timeout(PATIENCE, &mut resp.task).await.unwrap().unwrap();
    // The server ends an encrypted connection with `close_notify`, so `read` returns 0 instead of
    // an error.
    assert_eq!(timeout(PATIENCE, idle.read(&mut pong)).await.unwrap().unwrap(), 0);
    let _ = timeout(PATIENCE, slow.read(&mut pong)).await.unwrap();
}

#[tokio::test]
async fn resp_closes_encrypted_connections_beyond_the_bound() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut bounds = RespSettings::default();
    bounds.max_connections = 1;
    let resp = resp(settings(&files), bounds).await;
    let first = connect(resp.address, root.client(None)).await.unwrap();
    // The server closes the connection without an answer, because an unencrypted refusal is not a
    // valid answer to a handshake.
    let mut second = TcpStream::connect(resp.address).await.unwrap();
    let mut said = vec![];
    let read = timeout(PATIENCE, second.read_to_end(&mut said)).await.unwrap();
    assert!(read.is_ok() && said.is_empty(), "{said:?}");
    assert!(connect(resp.address, root.client(None)).await.is_err());
    drop(first);
    until(async || {
        answer(resp.address, root.client(None), PING).await.is_ok_and(|answer| answer == PONG)
    })
    .await;
}
