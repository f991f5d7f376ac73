//! Tests the bounds on RESP commands, and the timeouts of RESP connections.

use std::io;

use metrics_exporter_prometheus::PrometheusBuilder;
use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_server::calls::resp::serve_stream;
use tidegate_testkit::generate::Bytes;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;
use crate::scene::block_on;

#[tokio::test]
async fn what_is_no_command_ends_its_connection_with_a_reason() {
    let server = Server::start().await;
    for (bytes, why) in [
        (
            "PING\r\n*1\r\n$9999999999\r\n",
            "+PONG\r\n-ERR Protocol error: an argument has a length of 9999999999; 0 to 1048576 are possible\r\n",
        ),
        (
            "*99999999\r\n",
            "-ERR Protocol error: a command has 99999999 arguments; at most 1024 are possible\r\n",
        ),
        ("*1\r\n*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
        ("POST /json HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n", "-ERR this is not an HTTP server\r\n"),
    ] {
        assert_eq!(server.answer(bytes.as_bytes()).await, why);
    }
    let client = &mut server.client().await;
    assert_eq!(ask(client, "PING").await, "PONG");
    let expected = format!("-ERR unknown command '{}...'", "x".repeat(40));
    assert_eq!(ask(client, &"x".repeat(100)).await, expected);
}

#[tokio::test]
async fn a_silent_client_and_one_that_sends_too_slowly_are_disconnected() {
    let mut settings = RespSettings::default();
    settings.idle_timeout = Duration::from_millis(50);
    settings.command_timeout = Duration::from_millis(40);
    let server = Server::with(settings).await;
    assert_eq!(server.answer(b"").await, "-ERR no command arrived within 50ms\r\n");
    let answer = server.answer(b"PING\r\n*2\r\n$4\r\nEC").await;
    assert_eq!(answer, "+PONG\r\n-ERR a command did not arrive within 40ms\r\n");
}

/// Serves a stream in memory. A command must arrive within 30 s, and the next one within 60 s.
/// Returns the client's side of the stream, and the task that serves the other side.
fn serve_in_memory() -> (DuplexStream, JoinHandle<io::Result<()>>) {
    let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
    let mut settings = RespSettings::default();
    (settings.command_timeout, settings.idle_timeout) =
        (Duration::from_secs(30), Duration::from_secs(60));
    let (client, server) = tokio::io::duplex(256);
    (client, tokio::spawn(serve_stream(server, calls, settings)))
}

#[tokio::test(start_paused = true)]
async fn bytes_do_not_prolong_the_time_of_a_command() {
    let (mut client, served) = serve_in_memory();
    client.write_all(b"*2\r\n$4\r\nECHO\r\n$1000\r\n").await.unwrap();
    let mut bytes = 0;
    while bytes < 100 && client.write_all(b"x").await.is_ok() {
        bytes += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // After its answer, the server accepts and drops bytes for one more second.
    assert!((29..=32).contains(&bytes), "{bytes}");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "-ERR a command did not arrive within 30s\r\n");
    served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_command_has_its_own_time() {
    let (mut client, served) = serve_in_memory();
    // The end of each command arrives with the beginning of the next command.
    for part in ["PIN", "G\r\nPIN", "G\r\n*1\r\n$4\r\nPI", "NG\r\n"] {
        client.write_all(part.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(25)).await;
    }
    // The idle timeout of 60 s begins after the last command.
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "+PONG\r\n".repeat(3) + "-ERR no command arrived within 60s\r\n");
    served.await.unwrap().unwrap();
}

/// An empty command, such as an empty line, is ignored, and ends like every other command.
#[tokio::test(start_paused = true)]
async fn an_empty_command_has_its_own_time() {
    let (mut client, served) = serve_in_memory();
    for (part, pause) in [("\r", 1), ("\n", 40), ("PI", 1), ("NG\r\n", 1)] {
        client.write_all(part.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(pause)).await;
    }
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "+PONG\r\n");
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn spans_and_numbers_beyond_what_can_be_counted_are_no_limit() {
    let mut settings = RespSettings::default();
    (settings.idle_timeout, settings.command_timeout) = (Duration::MAX, Duration::MAX);
    (settings.write_timeout, settings.max_connections) = (Duration::MAX, usize::MAX);
    let server = Server::with(settings).await;
    let mut stream = server.stream().await;
    for part in ["PI", "NG\r\n*1\r\n$4", "\r\nQUIT\r\n"] {
        stream.write_all(part.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(rest(&mut stream).await, "+PONG\r\n+OK\r\n");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_replies_is_disconnected() {
    let mut settings = RespSettings::default();
    settings.write_timeout = Duration::from_millis(50);
    let mut server = Server::with(settings).await;
    let mut stream = server.stream().await;
    let command = format!("*2\r\n$4\r\nECHO\r\n$1000000\r\n{}\r\n", "x".repeat(1_000_000));
    // The first writes succeed because of the buffers of the sockets. Then the server disconnects
    // the client.
    for _ in 0..100 {
        if stream.write_all(command.as_bytes()).await.is_err() {
            break;
        }
    }
    server.stop();
    tokio::time::timeout(Duration::from_secs(60), &mut server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_beyond_the_maximum_are_refused_and_later_ones_served() {
    let mut settings = RespSettings::default();
    settings.max_connections = 2;
    let server = Server::with(settings).await;
    let (mut one, mut two) = (server.client().await, server.client().await);
    assert_eq!(ask(&mut one, "PING").await, "PONG");
    assert_eq!(ask(&mut two, "PING").await, "PONG");
    assert_eq!(server.answer(b"").await, "-ERR max number of clients reached: 2\r\n");
    assert_eq!(ask(&mut one, "QUIT").await, "OK");
    let served = async {
        while server.answer(b"QUIT\r\n").await != "+OK\r\n" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.unwrap();
    assert_eq!(ask(&mut two, "PING").await, "PONG");
    // Ended connections are not counted.
    let info = async {
        while !ask(&mut two, "INFO").await.contains("connected_clients:1\r\nmaxclients:2\r\n") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), info).await.unwrap();
}

#[tokio::test]
async fn at_the_end_what_has_come_is_answered() {
    let mut server = Server::start().await;
    let mut idle = server.stream().await;
    let mut busy = server.stream().await;
    busy.write_all("CL.THROTTLE k 9999 1 60\r\n".repeat(5_000).as_bytes()).await.unwrap();
    // The first byte of a reply shows that the server has begun with the commands.
    let mut first = [0];
    busy.read_exact(&mut first).await.unwrap();
    server.stop();
    assert_eq!(rest(&mut idle).await, "");
    // The last reply is complete, although the server has not read all commands.
    let answer = rest(&mut busy).await;
    let replies = answer.matches("*5\r\n:0\r\n:10000\r\n").count();
    assert!(replies > 0 && answer.ends_with("\r\n"), "{replies}");
    tokio::time::timeout(Duration::from_secs(60), server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[test]
fn commands_and_connections_are_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            let server = Server::start().await;
            let client = &mut server.client().await;
            for line in ["CL.THROTTLE k 0 1 60", "CL.THROTTLE k 0 1 60", "CL.THROTTLE k", "NO"] {
                ask(client, line).await;
            }
            server.answer(b"*x\r\n").await;
            // The server notices the end of the connection only a moment later.
            let open = "tidegate_server_resp_connections 1\n";
            let ended = async {
                while !handle.render().contains(open) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
            let text = handle.render();
            for (command, outcome, count) in [
                ("cl.throttle", "done", 1),
                ("cl.throttle", "refused", 1),
                ("cl.throttle", "failed", 1),
                ("unknown", "failed", 2),
            ] {
                let line = format!(
                    "tidegate_server_commands_total{{protocol=\"resp\",command=\"{command}\",outcome=\"{outcome}\"}} {count}\n"
                );
                assert!(text.contains(&line), "{line}\n{text}");
            }
            assert!(text.contains("tidegate_server_resp_protocol_errors_total 1\n"), "{text}");
        });
    });
}

/// Generates bytes that are often nearly valid commands.
fn hostile() -> impl Strategy<Value = Bytes> {
    let words = prop_oneof![
        Just(b"*5\r\n".to_vec()),
        Just(b"$3\r\nfoo\r\n".to_vec()),
        Just(b"$11\r\nCL.THROTTLE\r\n".to_vec()),
        Just(b"$20\r\n-9223372036854775808\r\n".to_vec()),
        Just(b"$19\r\n9223372036854775807\r\n".to_vec()),
        Just(b"TG.HOLD a 'gcra 1/s' COST 18446744073709551615 ID x EX 1\r\n".to_vec()),
        Just(b"TG.ACQUIRE a 'fixed-window 5/1m' AND b 'gcra 1/s' CHECK\r\n".to_vec()),
        Just(b"TG.BLOCK a 'gcra 1/s' PX 9223372036854775807\r\n".to_vec()),
        Just(b"HELLO 3 AUTH\r\n".to_vec()),
        Just(b"MULTI\r\n".to_vec()),
        Just(b"EXEC\r\n".to_vec()),
        Just(b"COMMAND DOCS\r\n".to_vec()),
        Just(b"\"\\x\r\n".to_vec()),
        vec(any::<u8>(), 0..12),
    ];
    vec(words, 0..25).prop_map(|words| Bytes::from(words.concat()))
}

proptest! {
    #[test]
    fn any_bytes_are_answered_and_end(bytes in hostile(), part in 1_usize..200) {
        block_on(async {
            let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
            let (client, server) = tokio::io::duplex(256);
            let mut settings = RespSettings::default();
            settings.command_timeout = Duration::from_millis(20);
            let served = tokio::spawn(serve_stream(server, Arc::clone(&calls), settings));
            let (mut reader, mut writer) = tokio::io::split(client);
            let sent = async {
                for part in bytes.chunks(part) {
                    // The write fails if the server has closed the connection.
                    if writer.write_all(part).await.is_err() {
                        break;
                    }
                }
                let _ = writer.shutdown().await;
            };
            let mut answer = Vec::new();
            let received = reader.read_to_end(&mut answer);
            let (_, received) = tokio::join!(sent, received);
            received.unwrap();
            drop((reader, writer));
            let _ = served.await.unwrap();
            assert!(answer.is_empty() || answer.ends_with(b"\r\n"));
        });
    }
}
