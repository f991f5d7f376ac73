//! Tests the messages of errors. A message names the server, the problem and its solution. The
//! message does not repeat the message of its cause.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::error::Error as StdError;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use crate::certificates::Certificates;
use crate::common::policy;
use tidegate_redis::core::layers::CircuitState;
use tidegate_redis::{
    Breaker, Call, Charge, Error, ErrorKind, OnFailure, RedisStore, RedisStoreBuilder, Store,
    StoreExt,
};
use tidegate_test_servers::{Redis, Sentinel, eventually, free_port};

async fn acquire(store: &impl Store) -> Result<bool, Error> {
    let policy = policy("p: gcra 500/1h");
    let charge = [Charge::new(&policy, "s")];
    store.decide(Call::acquire(&charge)).await.map(|decision| decision.is_allowed())
}

/// Returns a builder with long timeouts, because the machine is possibly slow and these tests do
/// not depend on timeouts.
fn builder(url: &str) -> RedisStoreBuilder {
    let patience = Duration::from_secs(10);
    RedisStore::builder().url(url).connect_timeout(patience).response_timeout(patience)
}

/// Returns the error of a call. Also checks that a batch fails with an error of the same kind, that
/// no error repeats the text of its source, and that no error contains a password.
async fn call_error(builder: RedisStoreBuilder) -> Error {
    let store = builder.build().unwrap();
    let error = acquire(&store).await.unwrap_err();
    check_chain(&error);
    let policy = policy("p: gcra 500/1h");
    let charge = [Charge::new(&policy, "s")];
    for each in store.decide_many(&[Call::acquire(&charge), Call::acquire(&charge)]).await {
        let each = each.unwrap_err();
        assert_eq!(each.kind(), error.kind(), "{each:#}");
        check_chain(&each);
    }
    error
}

/// Checks the chain of an error's sources: no text contains another text, is empty, or contains a
/// password.
fn check_chain(error: &Error) {
    let chain: Vec<String> = std::iter::successors(Some(error as &dyn StdError), |&e| e.source())
        .map(ToString::to_string)
        .collect();
    println!("{}", chain.join("\n  because: "));
    for (index, text) in chain.iter().enumerate() {
        assert!(!text.is_empty() && !text.contains("S3CRET"), "{chain:?}");
        for (other_index, other) in chain.iter().enumerate() {
            assert!(index == other_index || !text.contains(other.as_str()), "{chain:?}");
        }
    }
    assert_eq!(format!("{error:#}"), chain.join(": "));
}

#[track_caller]
fn check_message(error: &Error, kind: ErrorKind, texts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:#}");
    for text in texts {
        assert!(error.to_string().contains(text), "`{text}` is not in: {error}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_named_by_the_error() {
    let port = free_port().unwrap();
    let server = format!("127.0.0.1:{port}");
    let error = call_error(builder(&format!("redis://user:S3CRET@{server}/1"))).await;
    check_message(&error, ErrorKind::Unavailable, &[&server, "nothing accepts connections there"]);
    assert!(error.is_definitely_not_charged());
    let error = call_error(builder("unix:///nowhere/redis.sock?pass=S3CRET")).await;
    check_message(&error, ErrorKind::Unavailable, &["/nowhere/redis.sock", "no such socket"]);
    let error = call_error(builder("redis://nowhere.invalid:7000")).await;
    check_message(&error, ErrorKind::Unavailable, &["nowhere.invalid:7000", "cannot be resolved"]);
    let error = call_error(builder(&format!("redis://[::1]:{port}"))).await;
    check_message(&error, ErrorKind::Unavailable, &[&format!("[::1]:{port}")]);
}

#[tokio::test]
async fn a_lost_connection_and_a_late_answer_name_the_server() {
    let redis = Redis::start().await.unwrap();
    let store = RedisStore::builder().url(redis.url()).build().unwrap();
    let server = format!("127.0.0.1:{}", redis.port());
    assert!(acquire(&store).await.unwrap());
    redis.pause().await.unwrap();
    let error = acquire(&store).await.unwrap_err();
    check_chain(&error);
    check_message(&error, ErrorKind::Timeout, &[&server, "has not answered within 500ms"]);
    redis.resume().await.unwrap();
    let store = builder(&redis.url()).build().unwrap();
    assert!(acquire(&store).await.unwrap());
    redis.pause().await.unwrap();
    let (lost, killed) = tokio::join!(acquire(&store), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        redis.kill().await
    });
    killed.unwrap();
    let error = lost.unwrap_err();
    check_chain(&error);
    check_message(&error, ErrorKind::Unavailable, &[&server, "was lost"]);
    assert!(!error.is_definitely_not_charged());
}

#[tokio::test]
async fn an_error_reply_is_reported_with_the_server() {
    let redis = Redis::start().await.unwrap();
    let server = format!("127.0.0.1:{}", redis.port());
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let error = call_error(builder(&redis.url())).await;
    check_message(&error, ErrorKind::OutOfMemory, &[&server, "has no memory left"]);
    assert!(error.source().unwrap().to_string().starts_with("OOM "), "{error:#}");
}

#[tokio::test]
async fn a_silent_server_is_distinguished_from_an_unreachable_one() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let soon = Duration::from_secs(1);
    let error = call_error(builder(&format!("redis://{server}")).connect_timeout(soon)).await;
    check_message(
        &error,
        ErrorKind::Unavailable,
        &[&server, "within 1s", "no answer to the login"],
    );
}

/// Starts a server that replies to each connection with `answer` and closes it. Returns its
/// address.
fn server_that_says(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_reported_in_one_line_with_its_reply() {
    for (answer, said) in [
        (&b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n"[..], "`HTTP/1.1 400 Bad Request`"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "`SSH-2.0-OpenSSH_9.2`"),
        (b"<!DOCTYPE html>\n<html>", "`<!DOCTYPE html>`"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "uses TLS; its URL must begin with `rediss://`"),
    ] {
        let server = server_that_says(answer);
        let error = call_error(builder(&format!("redis://:S3CRET@{server}"))).await;
        let message = format!("{server} does not answer as a Redis server: ");
        check_message(&error, ErrorKind::Unavailable, &[&message, said]);
        assert!(error.source().is_none(), "{error:#}");
    }
    let closes = server_that_says(b"");
    let error = call_error(builder(&format!("redis://{closes}"))).await;
    check_message(
        &error,
        ErrorKind::Unavailable,
        &[&closes, "closed the connection", "`rediss://`"],
    );
}

#[tokio::test]
async fn encryption_on_one_side_only_is_reported() {
    let certificates = Certificates::new();
    let encrypted = certificates.server().start().await.unwrap();
    let error = call_error(builder(&encrypted.url().replace("rediss://", "redis://"))).await;
    check_message(
        &error,
        ErrorKind::Unavailable,
        &[&format!("{}", encrypted.port()), "TLS", "`rediss://`"],
    );
    // A server without TLS reads the TLS handshake as the start of a command. It waits for more
    // bytes, or replies that the command is unknown.
    let plain = Redis::start().await.unwrap();
    let server = format!("127.0.0.1:{}", plain.port());
    let soon = Duration::from_secs(1);
    let error = call_error(builder(&format!("rediss://{server}")).connect_timeout(soon)).await;
    check_message(&error, ErrorKind::Unavailable, &[&server, "TLS", "`redis://`"]);
    let http = server_that_says(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = call_error(builder(&format!("rediss://{http}"))).await;
    check_message(&error, ErrorKind::Unavailable, &[&http, "does not answer in TLS"]);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_names_another_host_is_reported() {
    let certificates = Certificates::new();
    let redis = certificates.server().config("bind", "127.0.0.1 127.0.0.2").start().await.unwrap();
    let server = format!("127.0.0.1:{}", redis.port());
    let error = call_error(builder(&redis.url())).await;
    check_message(&error, ErrorKind::Misconfigured, &[&server, "its certificate is not trusted"]);
    assert!(error.is_definitely_not_charged());
    let elsewhere = redis.url().replace("127.0.0.1", "127.0.0.2");
    let error = call_error(builder(&elsewhere).root_certificates(certificates.root())).await;
    check_message(
        &error,
        ErrorKind::Misconfigured,
        &["127.0.0.2", "its certificate is for another name"],
    );
}

#[tokio::test]
async fn errors_name_the_sentinels_and_the_group() {
    let port = free_port().unwrap();
    let nowhere = format!("127.0.0.1:{port}");
    let with = |urls: Vec<String>, group: &str| builder("redis://a").sentinel(urls, group);
    let error = call_error(with(vec![format!("redis://:S3CRET@{nowhere}")], "limits")).await;
    let texts = ["the primary of `limits`", &format!("Sentinel at {nowhere}")];
    check_message(&error, ErrorKind::Unavailable, &texts);
    let group = Sentinel::start().await.unwrap();
    let error = call_error(with(group.sentinel_urls(), "other")).await;
    check_message(&error, ErrorKind::Unavailable, &["`other`", "Sentinel at ", "knows no primary"]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let builder = with(vec![format!("redis://{silent}")], "limits");
    let error = call_error(builder.connect_timeout(Duration::from_millis(200))).await;
    check_message(&error, ErrorKind::Unavailable, &["`limits`", &silent]);
}

/// Checks that the server rejects the login: the source of the error is the server's reply, and the
/// message points at the settings.
fn check_login_error(error: &Error, server: &str, why: &str) {
    check_message(
        error,
        ErrorKind::Misconfigured,
        &[server, "refuses the user, the password or the database"],
    );
    assert!(error.source().unwrap().to_string().starts_with(why), "{error:#}");
    assert!(error.is_definitely_not_charged());
}

#[tokio::test]
async fn a_wrong_password_or_database_is_misconfigured() {
    let redis = Redis::builder().password("sesame").start().await.unwrap();
    let server = format!("127.0.0.1:{}", redis.port());
    let url = |login: &str, database: &str| format!("redis://{login}{server}{database}");
    for login in [":S3CRET@", "nobody:S3CRET@", "default:S3CRET@"] {
        check_login_error(&call_error(builder(&url(login, ""))).await, &server, "WRONGPASS ");
    }
    check_login_error(&call_error(builder(&url(":sesame@", "/99"))).await, &server, "ERR DB index");
    // If the URL has no password, the store does not log in, and the server rejects the first call.
    let error = call_error(builder(&url("", ""))).await;
    check_message(&error, ErrorKind::Misconfigured, &[&server]);
    assert!(error.source().unwrap().to_string().starts_with("NOAUTH "), "{error:#}");
    assert!(error.is_definitely_not_charged());
    let open = Redis::start().await.unwrap();
    let needless = open.url().replace("redis://", "redis://:S3CRET@");
    check_login_error(&call_error(builder(&needless)).await, "127.0.0.1", "ERR AUTH ");
}

#[tokio::test]
async fn a_password_may_be_set_separately_from_the_user() {
    let redis =
        Redis::builder().user("limiter", "secret", "~tidegate:* +@all").start().await.unwrap();
    let url = format!("redis://limiter:S3CRET@127.0.0.1:{}", redis.port());
    assert!(acquire(&builder(&url).password("secret").build().unwrap()).await.unwrap());
    let with_user = builder(&url).user("limiter", "S3CRET").password("secret");
    assert!(acquire(&with_user.build().unwrap()).await.unwrap());
    let error = call_error(builder(&url)).await;
    check_message(&error, ErrorKind::Misconfigured, &["refuses the user, the password"]);
}

/// Guards against a defect: a server with too many clients replies to the login with an error,
/// which was reported as a wrong password.
#[tokio::test]
async fn a_server_with_too_many_clients_is_not_reported_as_a_wrong_password() {
    for login in ["", ":S3CRET@"] {
        let server = server_that_says(b"-ERR max number of clients reached\r\n");
        let error = call_error(builder(&format!("redis://{login}{server}"))).await;
        check_message(&error, ErrorKind::Unavailable, &[&server, "refuses the connection"]);
        assert!(error.source().unwrap().to_string().contains("max number of clients"), "{error:#}");
    }
    let server = server_that_says(b"-DENIED Redis is running in protected mode\r\n");
    let error = call_error(builder(&format!("redis://{server}"))).await;
    check_message(&error, ErrorKind::Misconfigured, &[&server]);
}

#[tokio::test]
async fn failure_policies_and_breakers_hide_a_wrong_password_only_if_configured() {
    let redis = Redis::builder().password("sesame").start().await.unwrap();
    let url = format!("redis://:guess@127.0.0.1:{}", redis.port());
    let open = builder(&url).build().unwrap().breaker(Breaker::new().failures(2)).or_fail_open();
    for _ in 0..9 {
        assert_eq!(acquire(&open).await.unwrap_err().kind(), ErrorKind::Misconfigured);
    }
    assert_eq!(open.inner().state(), CircuitState::Closed);
    let policy = OnFailure::open().also_on(ErrorKind::Misconfigured);
    assert!(acquire(&builder(&url).build().unwrap().on_failure(policy)).await.unwrap());
    // The failure policy does not hide a wrong password, but still applies if the server is
    // unavailable.
    redis.kill().await.unwrap();
    let passes = async || acquire(&open).await.ok();
    assert!(eventually(Duration::from_secs(5), "to fail open", passes).await.unwrap());
}

#[tokio::test]
async fn a_corrected_password_on_the_server_needs_no_restart_of_the_client() {
    let rules = "~tidegate:* +@all";
    let redis = Redis::builder().user("limiter", "old", rules).start().await.unwrap();
    let store = builder(&redis.url()).user("limiter", "new").build().unwrap();
    assert_eq!(acquire(&store).await.unwrap_err().kind(), ErrorKind::Misconfigured);
    redis.command(&["ACL", "SETUSER", "limiter", ">new"]).await.unwrap();
    let decided = async || acquire(&store).await.ok();
    assert!(eventually(Duration::from_secs(5), "the login", decided).await.unwrap());
    // The test revokes a permission and grants it again, while the connection stays open.
    redis.command(&["ACL", "SETUSER", "limiter", "-evalsha"]).await.unwrap();
    let error = acquire(&store).await.unwrap_err();
    check_chain(&error);
    check_message(&error, ErrorKind::Misconfigured, &["permission"]);
    assert!(error.is_definitely_not_charged(), "the server rejected the script call before it ran");
    redis.command(&["ACL", "SETUSER", "limiter", "+evalsha"]).await.unwrap();
    assert!(acquire(&store).await.unwrap());
    // Deleting a user closes its connections.
    redis.command(&["ACL", "DELUSER", "limiter"]).await.unwrap();
    let rejected =
        async || acquire(&store).await.err().filter(|e| e.kind() == ErrorKind::Misconfigured);
    eventually(Duration::from_secs(5), "the error", rejected).await.unwrap();
    redis
        .command(&["ACL", "SETUSER", "limiter", "on", ">new", "~tidegate:*", "+@all"])
        .await
        .unwrap();
    assert!(eventually(Duration::from_secs(5), "the login", decided).await.unwrap());
}

/// If the user lacks a permission, the script possibly fails only after its first write. So the
/// error leaves open whether the call was charged.
#[tokio::test]
async fn a_missing_permission_of_a_script_leaves_open_whether_it_charged() {
    let rules = "~tidegate:* +@all -set -psetex";
    let redis = Redis::builder().user("limiter", "secret", rules).start().await.unwrap();
    let store = builder(&redis.url()).user("limiter", "secret").build().unwrap();
    let error = acquire(&store).await.unwrap_err();
    check_chain(&error);
    check_message(&error, ErrorKind::Misconfigured, &["permission"]);
    assert!(!error.is_definitely_not_charged());
    redis.command(&["ACL", "SETUSER", "limiter", "+set", "+psetex"]).await.unwrap();
    assert!(acquire(&store).await.unwrap());
}

#[tokio::test]
async fn a_restarted_server_with_another_password_refuses_until_it_has_the_old_one() {
    let redis = Redis::start().await.unwrap();
    let store = builder(&format!("redis://127.0.0.1:{}", redis.port())).build().unwrap();
    assert!(acquire(&store).await.unwrap());
    redis.command(&["CONFIG", "SET", "requirepass", "sesame"]).await.unwrap();
    let mut operator = redis.client().await.unwrap();
    operator.call(&["AUTH", "sesame"]).await.unwrap();
    let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    operator.call(&kill).await.unwrap();
    let error = acquire(&store).await.unwrap_err();
    check_message(&error, ErrorKind::Misconfigured, &[&format!("{}", redis.port())]);
    operator.call(&["CONFIG", "SET", "requirepass", ""]).await.unwrap();
    let decided = async || acquire(&store).await.ok();
    assert!(eventually(Duration::from_secs(5), "the login", decided).await.unwrap());
}
