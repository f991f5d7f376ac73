//! Tests of client certificates: accepted and refused clients.

use rustls::version::{TLS12, TLS13};

use super::*;

#[tokio::test]
async fn a_client_that_trusts_the_root_is_served_over_http_2() {
    let root = Root::new();
    let server = Server::start(settings(&Files::issued(&root.issue("localhost"), ""))).await;
    for versions in [&[&TLS12], &[&TLS13]] {
        server.call(root.client_of(None, versions)).await.unwrap();
    }
    let mut client = root.client(None);
    client.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let stream = connect(server.address, client).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_root_refuses() {
    let server = Server::start(settings(&Files::issued(&Root::new().issue("localhost"), ""))).await;
    let error = server.call(Root::new().client(None)).await.unwrap_err();
    assert!(error.message().contains("InvalidCertificate"), "{error}");
}

/// Creates one root for the server and another root for clients, so that no certificate fits both.
fn two_roots() -> (Root, Root, Files) {
    let (root, clients) = (Root::new(), Root::new());
    let files = Files::issued(&root.issue("localhost"), &clients.pem());
    (root, clients, files)
}

#[tokio::test]
async fn a_client_has_to_show_a_certificate_of_the_given_roots() {
    let (root, clients, files) = two_roots();
    let server = Server::start(with_clients(&files)).await;
    let known = clients.issue("envoy");
    let expired =
        clients.issue_with("envoy", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let server_only = clients.issue_with("envoy", |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let other = root.issue("envoy");
    for versions in [&[&TLS12], &[&TLS13]] {
        let call = |identity| server.call(root.client_of(identity, versions));
        call(Some(&known)).await.unwrap();
        for (why, identity) in [
            ("none", None),
            ("of another root", Some(&other)),
            ("expired", Some(&expired)),
            ("for servers only", Some(&server_only)),
        ] {
            assert!(call(identity).await.is_err(), "{why} {versions:?}");
        }
        call(Some(&known)).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_has_to_have_the_given_name() {
    let (root, clients, files) = two_roots();
    let mut settings = with_clients(&files);
    settings.client_name = Some("envoy.example.com".to_owned());
    let server = Server::start(settings).await;
    for (name, is_served) in [
        ("envoy.example.com", true),
        ("*.example.com", true),
        ("ENVOY.example.com", true),
        ("other.example.com", false),
        ("envoy.example.com.evil.org", false),
        ("127.0.0.1", false),
    ] {
        let called = server.call(root.client(Some(&clients.issue(name)))).await;
        assert_eq!(called.is_ok(), is_served, "{name}: {called:?}");
    }
    assert!(server.call(root.client(None)).await.is_err());
    // The certificate contains the right name, but another root has signed it.
    assert!(server.call(root.client(Some(&root.issue("envoy.example.com")))).await.is_err());
}

#[tokio::test]
async fn an_address_is_a_name_too() {
    let (root, clients, files) = two_roots();
    let mut settings = with_clients(&files);
    settings.client_name = Some("10.1.2.3".to_owned());
    let server = Server::start(settings).await;
    for (name, is_served) in [("10.1.2.3", true), ("10.1.2.4", false), ("envoy", false)] {
        let called = server.call(root.client(Some(&clients.issue(name)))).await;
        assert_eq!(called.is_ok(), is_served, "{name}: {called:?}");
    }
}

#[tokio::test]
async fn intermediate_certificates_of_the_server_are_sent() {
    let root = Root::new();
    let (intermediate, chain) = root.intermediate();
    let issued = intermediate.issue("localhost");
    let files = Files::new(&(issued.certificate + &chain), &issued.key, "");
    let server = Server::start(settings(&files)).await;
    server.call(root.client(None)).await.unwrap();
}
