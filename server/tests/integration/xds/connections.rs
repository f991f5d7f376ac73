//! Tests management servers that are unavailable, close each stream, are silent, or send invalid
//! messages.

use std::time::Instant;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::scene::block_on;

#[tokio::test]
async fn limits_stay_in_force_while_the_management_server_is_away() {
    let mut server = Management::start().await;
    let address = server.address;
    let mut client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(1)]);
    peer.accepted("1", "n1").await;
    drop((peer, server));
    for _ in 0..3 {
        client.disconnected().await;
        assert_eq!(client.limit().await, "1/DAY");
        client.service.ready().await.unwrap();
    }
    let listener = within(async {
        loop {
            if let Ok(listener) = TcpListener::bind(address).await {
                break listener;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut server = Management::on(listener.await);
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(2)]);
    peer.accepted("1", "n1").await;
    assert_eq!(client.limit().await, "2/DAY");
}

#[tokio::test]
async fn a_server_that_accepts_and_ends_at_once_is_asked_after_longer_and_longer_waits() {
    let mut server = Management::start().await;
    let mut settings = server.settings();
    settings.backoff.factor = 2.0;
    settings.backoff.max = Duration::from_millis(400);
    let mut client = Client::start(settings);
    let start = Instant::now();
    for (round, wait) in [100, 200, 400, 400].into_iter().enumerate() {
        let (peer, _) = server.stream().await;
        match round {
            // In the first round, the stream ends without an error. In the second round, it ends
            // with an error.
            0 => {}
            1 => peer.responses.send(Err(Status::unavailable("busy\n"))).unwrap(),
            // A refused response does not reset the wait.
            2 => peer.send("1", "n1", &[bad()]),
            _ => peer.send_response(DiscoveryResponse::default()),
        }
        drop(peer);
        let (reason, retry_in) = client.disconnected().await;
        assert_eq!(retry_in.as_millis(), wait, "{reason}");
        if round == 1 {
            assert_eq!(reason, "The service is currently unavailable: busy\\n");
        }
    }
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());

    // Valid limits reset the wait between connections to its initial value of 100 ms.
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(1)]);
    peer.accepted("1", "n1").await;
    drop(peer);
    assert_eq!(client.disconnected().await.1.as_millis(), 100);
    drop(server.stream().await);
    assert_eq!(client.disconnected().await.1.as_millis(), 200);
}

#[tokio::test]
async fn a_server_that_sends_what_it_was_refused_again_and_again_is_read_slowly() {
    let mut server = Management::start().await;
    let mut settings = server.settings();
    settings.backoff.initial = Duration::from_secs(10);
    let client = Client::start(settings);
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n0", &[per_day(1)]);
    peer.accepted("1", "n0").await;
    let start = Instant::now();
    // The client pauses for 100, 200, 400 and 800 ms between these invalid responses.
    for round in 1..=5 {
        let nonce = format!("n{round}");
        peer.send("2", &nonce, &[bad()]);
        peer.refused("1", &nonce).await;
    }
    assert!(start.elapsed() >= Duration::from_millis(1_500), "{:?}", start.elapsed());
    assert_eq!(client.limit().await, "1/DAY");
    // Valid limits make the next pause short again. The test uses the shortest of five pauses,
    // because the machine may be busy.
    let mut shortest = Duration::MAX;
    for n in 1..=5 {
        peer.send("3", "good", &[per_day(n)]);
        peer.accepted("3", "good").await;
        assert_eq!(client.limit().await, format!("{n}/DAY"));
        peer.send("4", "bad", &[bad()]);
        peer.refused("3", "bad").await;
        let start = Instant::now();
        peer.send("4", "bad", &[bad()]);
        peer.refused("3", "bad").await;
        shortest = shortest.min(start.elapsed());
        if shortest < Duration::from_secs(1) {
            break;
        }
    }
    assert!(shortest < Duration::from_secs(1), "{shortest:?}");
}

#[tokio::test]
async fn a_response_that_is_too_large_is_refused_and_changes_nothing() {
    let mut server = Management::start().await;
    let mut settings = server.settings();
    settings.max_message_bytes = 10_000;
    let client = Client::start(settings);
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(1)]);
    peer.accepted("1", "n1").await;
    peer.send("2", "n2", &[RateLimitConfig { name: "x".repeat(10_000), ..per_day(2) }]);
    let reason = peer.refused("1", "n2").await;
    let expected = "xDS: the response is 10164 bytes; it must be at most 10000";
    assert_eq!(reason, expected);
    assert_eq!(client.limit().await, "1/DAY");
    peer.send("3", "n3", &[per_day(3)]);
    peer.accepted("3", "n3").await;
    assert_eq!(client.limit().await, "3/DAY");
}

#[tokio::test]
async fn a_response_of_several_mebibytes_is_refused_by_default() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    let large = RateLimitConfig { name: "x".repeat(20 << 20), ..per_day(2) };
    peer.send("1", "n1", &[large]);
    let reason = peer.refused("", "n1").await;
    assert!(reason.ends_with("; it must be at most 4194304"), "{reason}");
    assert!(!client.service.has_limits());
}

#[test]
fn a_server_that_accepts_and_never_responds_is_asked_again() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let is_connected = || handle.render().contains("tidegate_server_xds_connected 1\n");
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            // This server accepts connections, but does not speak HTTP/2.
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut settings = settings(listener.local_addr().unwrap());
            settings.response_timeout = Duration::from_millis(50);
            let mut client = Client::start(settings);
            for _ in 0..2 {
                let (reason, _) = client.disconnected().await;
                assert_eq!(reason, "there was no response within 50ms");
                assert!(!is_connected());
            }
            drop((client, listener));

            // This server speaks HTTP/2, but does not respond on the stream.
            let mut server = Management::start().await;
            let mut settings = server.settings();
            settings.response_timeout = Duration::from_millis(200);
            let mut client = Client::start(settings);
            let _silent = server.stream().await;
            let (reason, _) = client.disconnected().await;
            assert_eq!(reason, "there was no response within 200ms");
            assert!(!is_connected());
            let (mut peer, _) = server.stream().await;
            peer.send("1", "n1", &[per_day(1)]);
            peer.accepted("1", "n1").await;
            assert!(is_connected());
            // After its first response, the management server may stay silent.
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert!(is_connected() && server.streams.try_recv().is_err());
        });
    });
}

#[tokio::test]
async fn a_silent_server_is_waited_for() {
    let mut server = Management::start().await;
    let mut client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    assert!(matches!(client.event().await, Event::Connected));
    assert!(!client.service.has_limits());
    // The test waits four times as long as the client waits between connections. The client must
    // not open a further connection.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(server.streams.try_recv().is_err());
    peer.send("1", "n1", &[per_day(1)]);
    peer.accepted("1", "n1").await;
    assert_eq!(client.limit().await, "1/DAY");
}

#[tokio::test]
async fn what_is_no_server_of_grpc_is_an_error_and_asked_again() {
    // This server closes each connection, the second one after an answer in HTTP/1. At the end of
    // the test, no server listens any more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Client::start(settings(listener.local_addr().unwrap()));
    for answer in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b""] {
        let (mut stream, _) = within(listener.accept()).await.unwrap();
        let _ = stream.write_all(answer).await;
        drop(stream);
        let (reason, retry_in) = client.disconnected().await;
        assert!(!reason.is_empty() && retry_in.as_millis() == 100, "{reason}");
    }
    drop(listener);
    let (reason, _) = client.disconnected().await;
    assert!(reason.contains("refused"), "{reason}");
    assert!(!client.service.has_limits());
}

#[tokio::test]
async fn a_server_without_the_service_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Client::start(settings(listener.local_addr().unwrap()));
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let server = tokio::spawn(Server::builder().add_service(health).serve_with_incoming(incoming));
    let (reason, _) = client.disconnected().await;
    assert!(reason.contains("not implemented"), "{reason}");
    server.abort();
}

#[tokio::test]
async fn a_client_that_is_dropped_ends_its_stream() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    drop(client);
    let end = within(peer.requests.message()).await;
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");
}

#[test]
fn addresses_are_checked() {
    for good in ["localhost:18000", "10.0.0.1:1", "[::1]:18000", "dns:///envoy-gateway:18001"] {
        XdsSettings::new(good).check().unwrap();
    }
    for bad in [
        "",
        "localhost",
        "localhost:",
        ":18000",
        "a:0",
        "a:65536",
        "http://a:1",
        "a b:1",
        "u@a:1",
        "::1:18000",
        "[x:1",
    ] {
        let error = XdsSettings::new(bad).check().unwrap_err();
        assert!(error.starts_with(&format!("`{bad}` is not the address")), "{bad}: {error}");
    }
}
