//! Tests encrypted connections to servers with a certificate that a root of the test has signed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use tidegate_redis::{Call, Charge, Error, ErrorKind, RedisStore, RedisStoreBuilder, Store};
use tidegate_test_servers::{Sentinel, eventually};

use crate::certificates::Certificates;
use crate::common::policy;

async fn acquire(store: &RedisStore) -> Result<bool, Error> {
    let policy = policy("p: gcra 500/1h");
    let charge = [Charge::new(&policy, "s")];
    store.decide(Call::acquire(&charge)).await.map(|decision| decision.is_allowed())
}

/// Builds a store with long timeouts, because the machine is possibly slow and these tests do not
/// depend on timeouts.
fn build(builder: RedisStoreBuilder) -> RedisStore {
    let patience = Duration::from_secs(10);
    builder.connect_timeout(patience).response_timeout(patience).build().unwrap()
}

#[tokio::test]
async fn a_server_is_trusted_by_the_root_that_is_given_and_only_by_it() {
    let certificates = Certificates::new();
    let redis = certificates.server().password("sesame").start().await.unwrap();
    for url in [redis.url(), redis.url().replace("127.0.0.1", "localhost")] {
        let store = RedisStore::builder().url(&url).root_certificates(certificates.root());
        assert!(acquire(&build(store)).await.unwrap());
        for untrusting in [
            // The first store trusts only the roots of the system, which do not include the root of
            // the test. The second store trusts another root of the same name, which did not sign
            // the certificate.
            RedisStore::builder().url(&url),
            RedisStore::builder().url(&url).root_certificates(Certificates::new().root()),
        ] {
            let error = acquire(&build(untrusting)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        }
    }
}

#[tokio::test]
async fn a_sentinel_group_is_trusted_by_the_root_that_is_given_through_a_failover() {
    let certificates = Certificates::new();
    let group = Sentinel::builder().node(certificates.server()).start().await.unwrap();
    assert!(group.sentinel_urls().iter().all(|url| url.starts_with("rediss://")));
    let builder = || {
        let builder = RedisStore::builder().url("rediss://the-primary");
        builder.sentinel(group.sentinel_urls(), group.master_name())
    };
    let store = build(builder().root_certificates(certificates.root()));
    assert!(acquire(&store).await.unwrap());
    for untrusting in [builder(), builder().root_certificates(Certificates::new().root())] {
        let error = acquire(&build(untrusting)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
    let old = group.kill_primary().await.unwrap();
    group.primary_after(old).await.unwrap();
    let decided = async || acquire(&store).await.ok();
    assert!(eventually(Duration::from_secs(20), "the new primary", decided).await.unwrap());
}

#[tokio::test]
async fn a_server_that_requires_client_certificates_gets_one() {
    let certificates = Certificates::new();
    let redis = certificates.server().config("tls-auth-clients", "yes").start().await.unwrap();
    let builder = || RedisStore::builder().url(redis.url()).root_certificates(certificates.root());
    let [certificate, key] = certificates.client_certificate();
    assert!(acquire(&build(builder().client_certificate(certificate, key))).await.unwrap());
    let [certificate, key] = Certificates::new().client_certificate();
    for without in [builder(), builder().client_certificate(certificate, key)] {
        let error = acquire(&build(without)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("this client's certificate"), "{error:#}");
        assert!(error.is_definitely_not_charged());
    }
}

#[test]
fn invalid_roots_are_rejected_when_the_store_is_built() {
    let pem = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
    for builder in [
        RedisStore::builder().url("rediss://127.0.0.1"),
        RedisStore::builder().url("rediss://a").sentinel(["rediss://127.0.0.1"], "name"),
    ] {
        let error = builder.root_certificates(pem).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
}

#[test]
fn unverified_connections_are_rejected_when_the_store_is_built() {
    let root = Certificates::new().root();
    for builder in [
        RedisStore::builder().url("rediss://127.0.0.1/#insecure"),
        RedisStore::builder().url("rediss://a").sentinel(["rediss://127.0.0.1/#insecure"], "name"),
        // With these settings, the store cannot verify or send a certificate: the URL does not use
        // TLS, or the certificates are missing or invalid.
        RedisStore::builder().url("redis://127.0.0.1").root_certificates(root),
        RedisStore::builder().url("rediss://127.0.0.1").root_certificates(""),
        RedisStore::builder().url("rediss://127.0.0.1").root_certificates("no certificate"),
        RedisStore::builder().url("rediss://127.0.0.1").client_certificate("", ""),
        RedisStore::builder().url("redis://127.0.0.1").client_certificate("", ""),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
}
