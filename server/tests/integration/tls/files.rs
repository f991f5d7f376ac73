//! Tests invalid files, and the messages about them.

use std::fs;

use super::*;

fn error(settings: TlsSettings) -> String {
    Tls::open(Protocol::Grpc, settings).unwrap_err().to_string()
}

#[test]
fn an_error_names_the_file_and_what_is_wrong_with_it() {
    let root = Root::new();
    let (issued, other) = (root.issue("localhost"), root.issue("localhost"));
    let (certificate, key, roots) = (&*issued.certificate, &*issued.key, &*root.pem());
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cut = |pem: &str| pem[..pem.len() / 2].to_owned();
    let large = "x".repeat((1 << 20) + 1);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let junk_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (texts, file, why) in [
        (["", key, roots], "tls.crt", "there is no certificate in it (PEM)"),
        (["no pem", key, roots], "tls.crt", "there is no certificate in it (PEM)"),
        ([key, key, roots], "tls.crt", "there is no certificate in it (PEM)"),
        ([&cut(certificate), key, roots], "tls.crt", "it is not PEM: a section has no end"),
        ([junk, key, roots], "tls.crt", "the certificate is not valid"),
        ([&large, key, roots], "tls.crt", "the file has more than 1048576 bytes"),
        ([certificate, "", roots], "tls.key", "there is no private key in it (PEM)"),
        ([certificate, certificate, roots], "tls.key", "there is no private key in it (PEM)"),
        ([certificate, &cut(key), roots], "tls.key", "it is not PEM: a section has no end"),
        ([certificate, junk_key, roots], "tls.key", "the private key is not valid"),
        ([certificate, encrypted, roots], "tls.key", "the key needs a passphrase"),
        ([certificate, &other.key, roots], "tls.key", "does not belong to the certificate in"),
        ([certificate, key, ""], "ca.crt", "there is no certificate in it (PEM)"),
        ([certificate, key, junk], "ca.crt", "the certificate is not valid"),
    ] {
        let files = Files::new(texts[0], texts[1], texts[2]);
        let error = error(with_clients(&files));
        let expected = format!("{}: ", files.path(file).display());
        assert!(error.starts_with(&expected) && error.contains(why), "{error}");
        let secret = key.lines().nth(1).unwrap();
        assert!(!error.contains(secret), "{error}");
    }
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        let files = Files::issued(&issued, roots);
        fs::remove_file(files.path(name)).unwrap();
        let error = error(with_clients(&files));
        let expected = format!("{}: the file cannot be read: ", files.path(name).display());
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_name_of_clients_has_to_be_one_and_needs_roots() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), &root.pem());
    let mut named = with_clients(&files);
    named.client_name = Some("spiffe://cluster/envoy".to_owned());
    assert_eq!(
        error(named.clone()),
        "`spiffe://cluster/envoy` is not a DNS name or an IP address of clients"
    );
    named.client_name = Some("envoy".to_owned());
    assert!(Tls::open(Protocol::Grpc, named.clone()).is_ok());
    named.client_roots = None;
    assert!(error(named).contains("there are no root certificates of clients"));
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_used_with_a_warning() {
    let root = Root::new();
    let issued =
        root.issue_with("localhost", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let files = Files::issued(&issued, "");
    let server = Server::start(settings(&files)).await;
    let warning = server.tls.warning().unwrap();
    let expected = format!("{}: the certificate expired ", files.path("tls.crt").display());
    assert!(warning.starts_with(&expected), "{warning}");
    let error = server.call(root.client(None)).await.unwrap_err();
    assert!(error.message().contains("Expired"), "{error}");

    let files = Files::issued(&root.issue("localhost"), "");
    assert_eq!(Tls::open(Protocol::Grpc, settings(&files)).unwrap().warning(), None);
}

#[test]
fn keys_of_all_usual_forms_are_read() {
    // The three commands write private keys in different formats.
    let directory = tempfile::tempdir().unwrap();
    for make in [
        "openssl ecparam -name prime256v1 -genkey -out key",
        "openssl genrsa -traditional -out key 2048",
        "openssl genpkey -algorithm ed25519 -out key",
    ] {
        let make = format!("{make} && openssl req -x509 -key key -subj /CN=a -days 2 -out crt");
        let mut run = std::process::Command::new("sh");
        let run = run.args(["-c", &make]).current_dir(&directory).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let [certificate, key] = ["crt", "key"].map(|name| directory.path().join(name));
        let opened = Tls::open(Protocol::Resp, TlsSettings::new(certificate, key));
        assert_eq!(opened.unwrap().warning(), None, "{make}");
    }
}
