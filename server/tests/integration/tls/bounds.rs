//! Tests slow clients, clients that do not encrypt, and many clients.

use super::*;

async fn silent(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Returns `true` if the server closes a connection within the time limit, with or without an
/// answer.
async fn ends(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn slow_handshakes_delay_no_other_client_and_end() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut tls = settings(&files);
    // The timeout is longer than the test, so that the slow connections stay open.
    tls.handshake_timeout = PATIENCE * 60;
    let server = Server::start(tls.clone()).await;
    let mut slow = vec![];
    for _ in 0..50 {
        let mut stream = silent(server.address).await;
        // These bytes are the start of a TLS handshake record.
        stream.write_all(&[22, 3, 1]).await.unwrap();
        slow.push(stream);
    }
    server.call(root.client(None)).await.unwrap();

    tls.handshake_timeout = Duration::from_millis(100);
    let server = Server::start(tls).await;
    let mut begun = silent(server.address).await;
    begun.write_all(&[22, 3, 1]).await.unwrap();
    assert!(ends(begun).await && ends(silent(server.address).await).await);
    server.call(root.client(None)).await.unwrap();
}

#[tokio::test]
async fn bytes_do_not_prolong_a_handshake() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut tls = settings(&files);
    tls.handshake_timeout = Duration::from_millis(100);
    let server = Server::start(tls).await;
    let mut stream = silent(server.address).await;
    // The client sends a handshake record of 16 KiB byte by byte.
    let record = [&[22, 3, 1, 0x40, 0][..], &[0; 16 << 10]].concat();
    let mut sent = 0;
    while sent < record.len() && stream.write_all(&record[sent..=sent]).await.is_ok() {
        sent += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(sent < record.len());
}

#[tokio::test]
async fn plain_text_to_an_encrypted_port_ends_that_connection_alone() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut tls = settings(&files);
    tls.handshake_timeout = PATIENCE * 60;
    let server = Server::start(tls).await;
    let kept = channel(server.address, root.client(None)).await.unwrap();
    let mut kept = RateLimitServiceClient::new(kept);
    call(&mut kept).await.unwrap();
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PING\r\n",
        &[0; 64],
        &[0xff; 64],
    ] {
        let mut stream = silent(server.address).await;
        stream.write_all(bytes).await.unwrap();
        assert!(ends(stream).await, "{bytes:?}");
    }
    let url = format!("http://{}", server.address);
    let plain = timeout(PATIENCE, Endpoint::from_shared(url).unwrap().connect()).await.unwrap();
    if let Ok(plain) = plain {
        assert!(call(&mut RateLimitServiceClient::new(plain)).await.is_err());
    }
    call(&mut kept).await.unwrap();
}

#[tokio::test]
async fn handshakes_count_as_connections_and_give_their_places_back() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut tls = settings(&files);
    tls.handshake_timeout = PATIENCE * 60;
    let mut bounds = GrpcSettings::default();
    bounds.max_connections = 2;
    let server = Server::with(tls, bounds).await;
    let first = channel(server.address, root.client(None)).await.unwrap();
    let mut first = RateLimitServiceClient::new(first);
    call(&mut first).await.unwrap();
    let slow = silent(server.address).await;
    // The server allows two connections, so it refuses a third one.
    assert!(ends(silent(server.address).await).await);
    assert!(server.call(root.client(None)).await.is_err());
    call(&mut first).await.unwrap();
    drop(slow);
    until(async || server.call(root.client(None)).await.is_ok()).await;
}

#[tokio::test]
async fn the_end_of_the_server_waits_for_no_handshake_beyond_its_timeout() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut tls = settings(&files);
    tls.handshake_timeout = Duration::from_millis(200);
    let mut server = Server::start(tls).await;
    let slow = silent(server.address).await;
    server.call(root.client(None)).await.unwrap();
    let _ = server.stop.take().unwrap().send(());
    timeout(PATIENCE, &mut server.task).await.unwrap().unwrap();
    assert!(ends(slow).await);
}

#[tokio::test]
async fn a_stream_whose_handshake_has_failed_stays_failed() {
    let files = Files::issued(&Root::new().issue("localhost"), "");
    let (listener, _, address) = listener(Protocol::Resp, settings(&files)).await;
    let mut client = silent(address).await;
    client.write_all(b"PING\r\n").await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    for _ in 0..2 {
        assert!(timeout(PATIENCE, stream.read(&mut [0])).await.unwrap().is_err());
        assert!(timeout(PATIENCE, stream.write(b"x")).await.unwrap().is_err());
    }
    timeout(PATIENCE, stream.shutdown()).await.unwrap().unwrap();
}
