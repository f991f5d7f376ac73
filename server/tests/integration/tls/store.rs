//! Tests encrypted connections to Redis, which the variables of envoyproxy/ratelimit configure.

use tidegate_test_servers::Redis;

use super::program::{Running, failure, with_limits};
use super::*;

#[tokio::test]
async fn the_store_is_verified_by_the_given_roots_and_shown_the_given_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), &root.pem());
    let (certificate, key, roots) =
        (files.path("tls.crt"), files.path("tls.key"), files.path("ca.crt"));
    let redis = Redis::builder().tls(&certificate, &key, &roots).config("tls-auth-clients", "yes");
    let redis = redis.start().await.unwrap();
    let store = |variables: &[(&str, &std::path::Path)]| {
        let mut program = with_limits(directory.path());
        program.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_TLS", "true");
        program.env("REDIS_URL", format!("localhost:{}", redis.port()));
        program.envs(variables.iter().copied());
        program
    };
    let all = [
        ("REDIS_TLS_CACERT", &*roots),
        ("REDIS_TLS_CLIENT_CERT", &*certificate),
        ("REDIS_TLS_CLIENT_KEY", &*key),
    ];
    let get = "GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for (variables, status) in [(&all[..], "200 OK"), (&all[..1], "500 ")] {
        let running = Running::start(store(variables)).await;
        let mut stream = TcpStream::connect(running.http).await.unwrap();
        stream.write_all(get.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }

    for (variables, why) in [
        (&all[..2], "REDIS_TLS_CLIENT_CERT needs REDIS_TLS_CLIENT_KEY"),
        (&all[2..], "REDIS_TLS_CLIENT_KEY needs REDIS_TLS_CLIENT_CERT"),
        (&[("REDIS_TLS_CACERT", "/nowhere".as_ref())], "/nowhere: the file cannot be read"),
        (&[("REDIS_TLS_CACERT", &*key)], "the certificates cannot be used"),
        (
            &[("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true".as_ref())],
            "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION is set",
        ),
    ] {
        let stderr = failure(store(variables)).await;
        assert!(stderr.contains(why), "{stderr}");
    }
}
