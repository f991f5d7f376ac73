//! Tests the memory of the server that a single client can use.

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::resp::{MAX_ARGUMENTS, RespSettings, serve_stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

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
                // The server reads each argument before the client sends the next argument.
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
            }
            drop(client);
            tokio::time::timeout(Duration::from_secs(60), served).await.unwrap().unwrap().unwrap();
        });
    });
    // A buffer of 16 KiB for each of the 1,024 arguments would take 16 MiB.
    assert!(memory.bytes_max < 1 << 20, "{}", memory.bytes_max);
}

/// Sends commands, and reads replies with a total length of `reply_len`.
async fn exchange(client: &mut DuplexStream, commands: &str, reply_len: usize) {
    let (mut reader, mut writer) = tokio::io::split(client);
    let mut reply = vec![0; reply_len];
    let (sent, read) =
        tokio::join!(writer.write_all(commands.as_bytes()), reader.read_exact(&mut reply));
    sent.unwrap();
    read.unwrap();
}

#[test]
fn a_connection_keeps_no_memory_of_what_was_large() {
    const LARGE: usize = 1_000_000;
    let large = format!("*2\r\n$4\r\nECHO\r\n${LARGE}\r\n{}\r\n", "x".repeat(LARGE));
    // The name of the client arrives in the same buffer as the large argument of `ECHO`. The server
    // must not keep the buffer because of the name.
    let name = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$4\r\nname\r\n";
    let commands = format!("{large}{name}");
    let reply_len = format!("${LARGE}\r\n\r\n+OK\r\n").len() + LARGE;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let calls = Arc::new(Calls::new(Arc::new(MemoryStore::new())));
    let (mut client, server) = tokio::io::duplex(8 << 10);
    let mut idle = None;
    let memory = measure(|| {
        runtime.block_on(async {
            idle = Some(tokio::spawn(serve_stream(server, calls, RespSettings::default())));
            exchange(&mut client, &commands, reply_len).await;
            exchange(&mut client, "PING\r\n", "+PONG\r\n".len()).await;
        });
    });
    assert!(memory.bytes_max > LARGE as u64, "{}", memory.bytes_max);
    assert!(memory.bytes_current < 300_000, "{}", memory.bytes_current);
    assert!(idle.is_some_and(|idle| !idle.is_finished()));
}
