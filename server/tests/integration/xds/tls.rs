//! Tests encrypted connections to a management server (case G19).

use std::path::PathBuf;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use tidegate_server::limits::xds::XdsTls;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tls::certificates::{Files, Issued, Root};

const NAME: &str = "envoy-gateway";

/// Starts a management server with the certificate `shown`. With `clients`, it accepts only clients
/// whose certificates this root has signed.
async fn start(shown: &Issued, clients: Option<&Root>) -> Management {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(root) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(root.store()), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(vec![shown.der()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (service, streams) = service();
    let incoming = stream::unfold((listener, acceptor), |(listener, acceptor)| async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                return Some((std::io::Result::Ok(stream), (listener, acceptor)));
            }
        }
    });
    let task = tokio::spawn(async move {
        let _ = Server::builder().add_service(service).serve_with_incoming(incoming).await;
    });
    Management { address, streams, task }
}

fn settings(server: &Management, tls: XdsTls) -> XdsSettings {
    let mut settings = server.settings();
    settings.tls = Some(tls);
    settings
}

fn tls(roots: PathBuf, name: Option<&str>) -> XdsTls {
    let mut tls = XdsTls::default();
    tls.roots = Some(roots);
    tls.server_name = name.map(str::to_owned);
    tls
}

async fn reason(server: &Management, tls: XdsTls) -> String {
    let mut client = Client::start(settings(server, tls));
    client.disconnected().await.0
}

async fn is_served(server: &mut Management, client: &Client, n: u32) {
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(n)]);
    peer.accepted("1", "n1").await;
    assert_eq!(client.limit().await, format!("{n}/DAY"));
}

#[tokio::test]
async fn g19_the_certificate_has_to_be_of_the_root_and_for_the_name() {
    let (root, other) = (Root::new(), Root::new());
    let files = Files::issued(&root.issue(NAME), &root.pem());
    let others = Files::issued(&other.issue(NAME), &other.pem());
    let mut server = start(&root.issue(NAME), None).await;

    let error = reason(&server, tls(others.path("ca.crt"), Some(NAME))).await;
    assert!(error.contains("certificate"), "{error}");
    let error = reason(&server, tls(files.path("ca.crt"), Some("other.example"))).await;
    assert!(error.contains("certificate not valid for name"), "{error}");
    // By default, the certificate must contain the host of the address.
    let error = reason(&server, tls(files.path("ca.crt"), None)).await;
    assert!(error.contains("certificate not valid for name"), "{error}");
    assert!(server.streams.try_recv().is_err());

    let client = Client::start(settings(&server, tls(files.path("ca.crt"), Some(NAME))));
    is_served(&mut server, &client, 1).await;
    let mut server = start(&root.issue("127.0.0.1"), None).await;
    let client = Client::start(settings(&server, tls(files.path("ca.crt"), None)));
    is_served(&mut server, &client, 2).await;
}

#[tokio::test]
async fn g19_a_client_shows_its_certificate_as_it_is_on_disk_now() {
    let (root, other) = (Root::new(), Root::new());
    let files = Files::issued(&other.issue("ratelimit"), &root.pem());
    let mut server = start(&root.issue(NAME), Some(&root)).await;
    let mut tls = tls(files.path("ca.crt"), Some(NAME));
    // The first client has no certificate. The second one has a certificate of another root.
    assert!(!reason(&server, tls.clone()).await.is_empty());
    tls.identity = Some((files.path("tls.crt"), files.path("tls.key")));
    let mut client = Client::start(settings(&server, tls));
    client.disconnected().await;
    assert!(server.streams.try_recv().is_err());

    let issued = root.issue("ratelimit");
    files.swap(&issued.certificate, &issued.key, &root.pem());
    is_served(&mut server, &client, 1).await;

    // If the certificate files become invalid, the client reports an error, and its limits stay in
    // force.
    files.swap("", &issued.key, &root.pem());
    drop(server);
    client.disconnected().await;
    let (error, _) = client.disconnected().await;
    assert!(!error.contains("refused"), "before anything is connected: {error}");
    assert_eq!(client.limit().await, "1/DAY");
}

#[tokio::test]
async fn a_server_without_encryption_is_an_error_and_so_is_the_reverse() {
    let root = Root::new();
    let files = Files::issued(&root.issue(NAME), &root.pem());
    let server = Management::start().await;
    let error = reason(&server, tls(files.path("ca.crt"), Some(NAME))).await;
    assert!(!error.is_empty());
    let server = start(&root.issue(NAME), None).await;
    let mut client = Client::start(server.settings());
    assert!(!client.disconnected().await.0.is_empty());
}

#[test]
fn files_that_cannot_be_used_are_an_error_at_the_start() {
    let root = Root::new();
    let (issued, other) = (root.issue(NAME), root.issue(NAME));
    let files = Files::new(&issued.certificate, &other.key, "no PEM");
    let check = |tls: XdsTls| {
        let mut settings = XdsSettings::new("localhost:1");
        settings.tls = Some(tls);
        settings.check().unwrap_err()
    };
    let error = check(tls(files.path("ca.crt"), None));
    assert!(error.ends_with("ca.crt: there is no certificate in it (PEM)"), "{error}");
    let error = check(tls(files.path("none.crt"), None));
    assert!(error.contains("none.crt: the file cannot be read"), "{error}");
    let mut mismatch = tls(files.path("tls.crt"), None);
    mismatch.identity = Some((files.path("tls.crt"), files.path("tls.key")));
    let error = check(mismatch);
    assert!(error.contains("key"), "{error}");
}
