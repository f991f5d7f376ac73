//! Tests a flood of incomplete handshakes that use all connections of the server.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::program::{Running, with_limits};
use super::*;
use crate::hostile::many::{TURN, memory_of, places};
use crate::program::settings;

/// The maximum memory of the server for an incomplete handshake, in bytes, in a build without
/// optimizations.
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
            // These bytes are the start of a TLS handshake record. The write may fail, because the
            // server closes connections beyond its maximum.
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

    // The server ends all handshakes after their timeout. Then it accepts new connections.
    let ended = async { while slow.join_next().await.is_some() {} };
    timeout(PATIENCE * 5, ended).await.unwrap();
    call(&mut kept).await.unwrap();
    let new = channel(address, root.client(None)).await.unwrap();
    call(&mut RateLimitServiceClient::new(new)).await.unwrap();
}
