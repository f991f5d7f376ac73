//! A flood of incomplete handshakes that takes all places of the server.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::program::{Running, with_limits};
use super::*;
use crate::hostile::many::{TURN, memory_of, places};
use crate::program::settings;

/// A bound in bytes above the memory that the server keeps for an incomplete handshake, in a build
/// without optimizations.
const MAX_HANDSHAKE_BYTES: usize = 100 << 10;

#[tokio::test]
async fn ten_thousand_handshakes_that_do_not_end_disturb_no_client_and_end_in_time() {
    let _turn = TURN.lock().await;
    let places = places();
    let directory = tempfile::tempdir().unwrap();
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let mut program = with_limits(directory.path());
    settings(&mut program, &format!("[grpc]\nmax_connections = {places}"));
    program.env("GRPC_SERVER_USE_TLS", "true");
    program.env("GRPC_SERVER_TLS_CERT", files.path("tls.crt"));
    program.env("GRPC_SERVER_TLS_KEY", files.path("tls.key"));
    let running = Running::start(program).await;
    let address = running.grpc;
    let kept = channel(address, root.client(None)).await.unwrap();
    let mut kept = RateLimitServiceClient::new(kept);
    call(&mut kept).await.unwrap();

    let before = memory_of(&running.child);
    let begun = Arc::new(AtomicUsize::new(0));
    let mut slow = JoinSet::new();
    for _ in 0..places {
        let begun = Arc::clone(&begun);
        slow.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // The bytes are the start of a handshake record. If no place is free, the server may
            // already have closed the connection.
            let _ = stream.write_all(&[22, 3, 1]).await;
            begun.fetch_add(1, Ordering::Relaxed);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        });
    }
    let mut memory = 0;
    while begun.load(Ordering::Relaxed) < places {
        call(&mut kept).await.unwrap();
        memory = memory.max(memory_of(&running.child));
    }
    let each = memory.saturating_sub(before) / places;
    println!("{each} bytes for each of {places} handshakes");
    assert!(each < MAX_HANDSHAKE_BYTES, "{each}");

    // All handshakes end, and then their places are free again.
    let ended = async { while slow.join_next().await.is_some() {} };
    timeout(PATIENCE * 5, ended).await.unwrap();
    call(&mut kept).await.unwrap();
    let new = channel(address, root.client(None)).await.unwrap();
    call(&mut RateLimitServiceClient::new(new)).await.unwrap();
}
