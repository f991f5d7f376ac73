//! Tests of the effect of each mode of the proxy on a client and on the server.
#![cfg(unix)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helper functions of tests fail by panicking, like tests"
)]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tidegate_test_servers::{Client, Counts, End, Mode, Proxy, Redis, Reply, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
/// The time without bytes after which a test considers a connection silent.
const SILENCE: Duration = Duration::from_millis(100);
const INCR: &[u8] = b"*2\r\n$4\r\nINCR\r\n$3\r\nkey\r\n";

struct Bench {
    redis: Redis,
    proxy: Proxy,
}

impl Bench {
    async fn start() -> Self {
        let redis = Redis::start().await.unwrap();
        let proxy = Proxy::start(redis.port()).await.unwrap();
        Self { redis, proxy }
    }

    /// Opens a connection through the proxy, and sends one command over it.
    async fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.proxy.port())).await.unwrap();
        stream.write_all(b"PING\r\n").await.unwrap();
        assert_eq!(read(&mut stream).await.unwrap(), b"+PONG\r\n");
        stream
    }

    /// Waits until the counter on the server, which `INCR` increments, has the value `count`.
    async fn counted(&self, count: &str) {
        let what = format!("the server to count to {count}");
        let counted = async || {
            let counted = self.redis.command(&["GET", "key"]).await.unwrap().text();
            (counted == count).then_some(())
        };
        eventually(SOON, &what, counted).await.unwrap();
    }
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut buffer = [0; 64];
    let read = timeout(SOON, stream.read(&mut buffer)).await.expect("an answer or an end")?;
    Ok(buffer[..read].to_vec())
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(SILENCE, stream.read(&mut [0; 64])).await.is_err()
}

#[tokio::test]
async fn everything_passes_and_is_counted() {
    let bench = Bench::start().await;
    assert_eq!(bench.proxy.counts(), Counts::default());
    let mut client = Client::connect(bench.proxy.port()).await.unwrap();
    let value = vec![7; 1 << 20];
    let set = [b"SET", b"key".as_slice(), &value];
    assert_eq!(client.call(&set).await.unwrap().text(), "OK");
    assert_eq!(client.call(&["GET", "key"]).await.unwrap(), Reply::Bytes(value));
    assert_eq!(client.call(&["ECHO", "*1"]).await.unwrap().text(), "*1");
    let counts = bench.proxy.counts();
    assert_eq!((counts.connections, counts.commands), (1, 3));
    assert_eq!(counts.bytes_to_server, 1_048_576 + 34 + 22 + 22);
    assert_eq!(counts.bytes_to_client, 5 + 1_048_576 + 12 + 8);
}

#[tokio::test]
async fn each_way_has_a_delay_of_its_own() {
    let bench = Bench::start().await;
    let mut stream = bench.connect().await;
    let delay = Duration::from_millis(300);

    let mode = Mode::Delay { requests: delay, answers: Duration::ZERO };
    bench.proxy.set(mode).await.unwrap();
    let start = Instant::now();
    stream.write_all(INCR).await.unwrap();
    assert_eq!(bench.redis.command(&["GET", "key"]).await.unwrap(), Reply::Nil);
    assert_eq!(read(&mut stream).await.unwrap(), b":1\r\n");
    assert!(start.elapsed() >= delay);

    let mode = Mode::Delay { requests: Duration::ZERO, answers: delay };
    bench.proxy.set(mode).await.unwrap();
    let start = Instant::now();
    stream.write_all(INCR).await.unwrap();
    bench.counted("2").await;
    assert!(start.elapsed() < delay, "the request was delayed too");
    assert_eq!(read(&mut stream).await.unwrap(), b":2\r\n");
    assert!(start.elapsed() >= delay);
}

/// Checks that requests are delayed concurrently: with a delay of 200 ms, ten requests arrive in
/// less than 1 s, and not after 10 times 200 ms.
#[tokio::test]
async fn delays_of_requests_in_flight_do_not_add_up() {
    let bench = Bench::start().await;
    let mut stream = bench.connect().await;
    let delay = Duration::from_millis(200);
    let mode = Mode::Delay { requests: delay, answers: Duration::ZERO };
    bench.proxy.set(mode).await.unwrap();
    let start = Instant::now();
    for _ in 0..10 {
        stream.write_all(INCR).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.counted("10").await;
    assert!(start.elapsed() < delay * 5, "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_command_of_a_swallowed_answer_is_executed() {
    let bench = Bench::start().await;
    let mut stream = bench.connect().await;
    bench.proxy.set(Mode::SwallowAnswers).await.unwrap();
    stream.write_all(INCR).await.unwrap();
    bench.counted("1").await;
    assert!(is_silent(&mut stream).await);
    // The proxy has dropped the reply to the first command. So the next reply that the client
    // receives belongs to the second command.
    bench.proxy.set(Mode::Pass).await.unwrap();
    stream.write_all(INCR).await.unwrap();
    assert_eq!(read(&mut stream).await.unwrap(), b":2\r\n");
}

#[tokio::test]
async fn nothing_passes_a_black_hole() {
    let bench = Bench::start().await;
    let mut stream = bench.connect().await;
    bench.proxy.set(Mode::BlackHole).await.unwrap();
    let before = bench.proxy.counts();
    stream.write_all(INCR).await.unwrap();
    assert!(is_silent(&mut stream).await);
    assert_eq!(bench.proxy.counts(), before);
    assert_eq!(bench.redis.command(&["GET", "key"]).await.unwrap(), Reply::Nil);
    // In the mode `BlackHole`, the proxy also drops messages that the server sends without a
    // request.
    bench.proxy.set(Mode::Pass).await.unwrap();
    let mut listening = bench.connect().await;
    listening.write_all(b"SUBSCRIBE news\r\n").await.unwrap();
    assert!(read(&mut listening).await.unwrap().starts_with(b"*3\r\n$9\r\nsubscribe"));
    bench.proxy.set(Mode::BlackHole).await.unwrap();
    assert_eq!(bench.redis.command(&["PUBLISH", "news", "x"]).await.unwrap(), Reply::Integer(1));
    assert!(is_silent(&mut listening).await);
    let mut stream = TcpStream::connect(("127.0.0.1", bench.proxy.port())).await.unwrap();
    stream.write_all(INCR).await.unwrap();
    assert!(is_silent(&mut stream).await);
}

#[tokio::test]
async fn the_command_of_a_lost_answer_is_executed_and_its_connection_ends_as_set() {
    let bench = Bench::start().await;
    for (end, count) in [(End::Reset, "1"), (End::Close, "2"), (End::Hang, "3")] {
        bench.proxy.set(Mode::Pass).await.unwrap();
        let mut stream = bench.connect().await;
        bench.proxy.set(Mode::LoseAnswer(end)).await.unwrap();
        stream.write_all(INCR).await.unwrap();
        match end {
            End::Reset => {
                assert_eq!(read(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
            }
            End::Close => assert_eq!(read(&mut stream).await.unwrap(), b""),
            End::Hang => assert!(is_silent(&mut stream).await),
        }
        bench.counted(count).await;
    }
}

#[tokio::test]
async fn a_halved_answer_is_cut_in_the_middle() {
    let bench = Bench::start().await;
    for end in [End::Close, End::Hang] {
        bench.redis.command(&["SET", "key", "98"]).await.unwrap();
        bench.proxy.set(Mode::Pass).await.unwrap();
        let mut stream = bench.connect().await;
        bench.proxy.set(Mode::HalveAnswer(end)).await.unwrap();
        stream.write_all(INCR).await.unwrap();
        assert_eq!(read(&mut stream).await.unwrap(), b":9");
        match end {
            End::Hang => assert!(is_silent(&mut stream).await),
            _ => assert_eq!(read(&mut stream).await.unwrap(), b""),
        }
    }
}

#[tokio::test]
async fn a_refusing_proxy_refuses_new_connections_and_keeps_open_ones() {
    let bench = Bench::start().await;
    let mut stream = bench.connect().await;
    let port = bench.proxy.port();
    bench.proxy.set(Mode::Refuse).await.unwrap();
    let refused = TcpStream::connect(("127.0.0.1", port)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    stream.write_all(INCR).await.unwrap();
    assert_eq!(read(&mut stream).await.unwrap(), b":1\r\n");
    bench.proxy.set(Mode::Pass).await.unwrap();
    bench.connect().await;
    assert_eq!(bench.proxy.counts().connections, 2);
}

#[tokio::test]
async fn open_connections_can_be_cut() {
    let bench = Bench::start().await;
    let (mut first, mut second) = (bench.connect().await, bench.connect().await);
    bench.proxy.cut(End::Reset);
    for stream in [&mut first, &mut second] {
        assert_eq!(read(stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let mut third = bench.connect().await;
    bench.proxy.cut(End::Hang);
    third.write_all(INCR).await.unwrap();
    assert!(is_silent(&mut third).await);
    bench.proxy.cut(End::Reset);
    assert_eq!(read(&mut third).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut fourth = bench.connect().await;
    bench.proxy.cut(End::Close);
    assert_eq!(read(&mut fourth).await.unwrap(), b"");
}

#[tokio::test]
async fn new_connections_go_to_the_new_target() {
    let bench = Bench::start().await;
    let other = Redis::start().await.unwrap();
    let mut old = bench.connect().await;
    bench.proxy.set_target(other.port());
    let mut new = bench.connect().await;
    old.write_all(INCR).await.unwrap();
    assert_eq!(read(&mut old).await.unwrap(), b":1\r\n");
    assert_eq!(other.command(&["GET", "key"]).await.unwrap(), Reply::Nil);
    new.write_all(INCR).await.unwrap();
    assert_eq!(read(&mut new).await.unwrap(), b":1\r\n");
}

#[tokio::test]
async fn a_dead_server_resets_its_clients() {
    let bench = Bench::start().await;
    let mut stream = bench.connect().await;
    bench.redis.kill().await.unwrap();
    assert!(read(&mut stream).await.is_ok_and(|end| end.is_empty()));
    let mut stream = TcpStream::connect(("127.0.0.1", bench.proxy.port())).await.unwrap();
    assert_eq!(read(&mut stream).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_dropped_proxy_ends_its_connections_and_frees_its_port() {
    let Bench { redis: _redis, proxy } = Bench::start().await;
    let port = proxy.port();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    drop(proxy);
    // If the proxy had accepted the connection, dropping the proxy has closed the connection
    // without a reset. Otherwise, the system has reset the connection.
    assert!(read(&mut stream).await.map_or(true, |end| end.is_empty()));
    let refused = async || TcpStream::connect(("127.0.0.1", port)).await.err();
    eventually(SOON, "the port to be free", refused).await.unwrap();
}
