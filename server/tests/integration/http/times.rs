//! Tests slow clients, in virtual time and over connections in memory.

use axum::routing::get;
use tidegate_server::net::http::serve_stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use super::client::read_answer;
use super::*;

/// Opens a connection that buffers `bytes` in each direction.
fn connect(bytes: usize) -> (DuplexStream, JoinHandle<std::io::Result<()>>) {
    connect_to(all_routes(), bytes)
}

fn connect_to(routes: Router, bytes: usize) -> (DuplexStream, JoinHandle<std::io::Result<()>>) {
    let (client, server) = tokio::io::duplex(bytes);
    let served = async move { serve_stream(server, routes, &HttpSettings::default()).await };
    (client, tokio::spawn(served))
}

/// Waits for the end of a connection, and fails if it does not end.
async fn ended(served: JoinHandle<std::io::Result<()>>) -> std::io::Result<()> {
    timeout(Duration::from_secs(10_000), served).await.unwrap().unwrap()
}

/// Sends a byte per second. Returns the number of seconds until the server closes the connection.
async fn trickle(stream: &mut DuplexStream) -> u64 {
    let start = Instant::now();
    for _ in 0..500 {
        sleep(Duration::from_secs(1)).await;
        if stream.write_all(b"x").await.is_err() {
            return start.elapsed().as_secs();
        }
    }
    panic!("it is still served after {:?}", start.elapsed());
}

/// Returns the number of seconds until the server closes the connection.
async fn end(stream: &mut DuplexStream) -> u64 {
    let start = Instant::now();
    let read = timeout(Duration::from_secs(10_000), stream.read(&mut [0])).await.unwrap();
    assert_eq!(read.unwrap_or(0), 0);
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_head_has_its_time_from_its_first_byte_on() {
    let (mut client, served) = connect(256);
    // The timeout for the head of a request does not run while the connection is idle.
    sleep(Duration::from_secs(100)).await;
    client.write_all(b"POST /v1/peek HTTP/1.1\r\nA: ").await.unwrap();
    assert!((30..=32).contains(&trickle(&mut client).await));
    assert!(ended(served).await.is_err());

    let (mut client, _) = connect(100_000);
    for _ in 0..3 {
        sleep(Duration::from_secs(100)).await;
        let all = request("POST", "/v1/peek", JSON, BODY);
        let (begin, rest) = all.split_at(20);
        client.write_all(begin.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(29)).await;
        client.write_all(rest.as_bytes()).await.unwrap();
        assert_eq!(read_answer(&mut client).await.unwrap().status, 200);
    }
    client.write_all(b"POST").await.unwrap();
    assert_eq!(end(&mut client).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends_before_and_after_a_request() {
    let (mut client, served) = connect(100_000);
    assert_eq!(end(&mut client).await, 120);
    ended(served).await.unwrap();

    let (mut client, served) = connect(100_000);
    sleep(Duration::from_secs(119)).await;
    let all = request("POST", "/v1/peek", JSON, BODY);
    client.write_all(all.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut client).await.unwrap().status, 200);
    assert_eq!(end(&mut client).await, 120);
    ended(served).await.unwrap();

    // The connection must end 120 s after the answer, even if the request arrives byte by byte and
    // the server polls the connection many times.
    let (mut client, served) = connect(100_000);
    for byte in all.as_bytes() {
        client.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(read_answer(&mut client).await.unwrap().status, 200);
    assert_eq!(end(&mut client).await, 120);
    ended(served).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_has_its_time_and_bytes_do_not_prolong_it() {
    for body in ["Content-Length: 99999\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nfffff\r\n"] {
        let (client, served) = connect(256);
        let head = format!("POST /v1/peek HTTP/1.1\r\nHost: x\r\n{JSON}{body}");
        let (mut reader, mut writer) = tokio::io::split(client);
        writer.write_all(head.as_bytes()).await.unwrap();
        let start = Instant::now();
        let slow = tokio::spawn(async move {
            while writer.write_all(b" ").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let answer = read_answer(&mut reader).await.unwrap();
        assert_eq!((answer.status, start.elapsed().as_secs()), (408, 30));
        assert!(answer.body.contains("the body did not arrive within 30s"), "{answer:?}");
        assert_eq!(read_answer(&mut reader).await, None);
        drop(reader);
        slow.await.unwrap();
        let _ = ended(served).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_has_its_time_and_taking_a_few_bytes_does_not_prolong_it() {
    let get = request("GET", "/openapi.json", "", "");
    let (mut client, served) = connect(256);
    client.write_all(get.as_bytes()).await.unwrap();
    let start = Instant::now();
    assert!(ended(served).await.is_err());
    assert_eq!(start.elapsed().as_secs(), 30);

    let (mut client, served) = connect(256);
    client.write_all(get.as_bytes()).await.unwrap();
    let start = Instant::now();
    let taking = async {
        let mut taken = 0;
        while client.read(&mut [0; 100]).await.unwrap_or(0) > 0 {
            taken += 1;
            sleep(Duration::from_secs(1)).await;
        }
        taken
    };
    let (taken, served) = tokio::join!(taking, ended(served));
    assert!(served.is_err());
    assert!((25..45).contains(&taken), "{taken}");
    assert!(start.elapsed().as_secs() < 45);

    // The timeout of 30 s applies to each response separately. The client takes 20 s for each of
    // five responses, so the connection stays open.
    let (mut client, _) = connect(2_000);
    for _ in 0..5 {
        client.write_all(get.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        assert_eq!(read_answer(&mut client).await.unwrap().body, OPENAPI);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_decides_no_time_of_the_client_runs() {
    let slow = || async { sleep(Duration::from_secs(1_000)).await };
    let (mut client, _) = connect_to(Router::new().route("/", get(slow)), 1_000);
    for _ in 0..2 {
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(read_answer(&mut client).await.unwrap().status, 200);
    }
}
