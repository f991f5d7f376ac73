//! The memory that one client can take.

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::resp::{MAX_ARGUMENTS, RespSettings, serve_stream};
use tokio::io::AsyncWriteExt;

use crate::scene::block_on;

#[test]
fn arguments_that_come_one_by_one_keep_about_what_they_have() {
    let memory = measure(|| {
        block_on(async {
            let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let served = tokio::spawn(serve_stream(server, calls, RespSettings::default()));
            client.write_all(format!("*{MAX_ARGUMENTS}\r\n").as_bytes()).await.unwrap();
            for _ in 1..MAX_ARGUMENTS {
                client.write_all(b"$1\r\nx\r\n").await.unwrap();
                // The server has read it before the next one comes.
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
            }
            drop(client);
            tokio::time::timeout(Duration::from_secs(60), served).await.unwrap().unwrap().unwrap();
        });
    });
    // A buffer of 16 KiB for each of them would be 16 MiB.
    assert!(memory.bytes_max < 1 << 20, "{}", memory.bytes_max);
}
