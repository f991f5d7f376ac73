//! Encrypted connections, to a server with a certificate of its own.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

mod common;

use std::process::Command;

use tidegate_redis::{Call, Charge, ErrorKind, RedisStore, Store};
use tidegate_testkit::servers::Redis;

use common::policy;

#[tokio::test]
async fn a_server_is_trusted_by_the_certificate_that_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &path("key.pem"), "-out", &path("cert.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _redis = Redis::builder()
        .config("tls-port", &free.to_string())
        .config("tls-cert-file", &path("cert.pem"))
        .config("tls-key-file", &path("key.pem"))
        .config("tls-ca-cert-file", &path("cert.pem"))
        .config("tls-auth-clients", "no")
        .start()
        .await
        .unwrap();
    let url = format!("rediss://localhost:{free}");
    let (policy, pem) = (policy("p: gcra 5/1h"), std::fs::read(path("cert.pem")).unwrap());
    let charge = [Charge::new(&policy, "s")];
    let store = RedisStore::builder().url(&url).root_certificates(pem).build().unwrap();
    assert!(store.decide(Call::acquire(&charge)).await.unwrap().is_allowed());
    // The system does not trust it.
    let error =
        RedisStore::connect(&url).unwrap().decide(Call::acquire(&charge)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
