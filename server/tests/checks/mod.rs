//! Properties that hold for any bytes that a client sends or a file contains. The tests and the
//! targets in `fuzz` share them.

pub(crate) mod config;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod request;
pub(crate) mod resp;

use std::sync::Arc;

use tidegate_core::{ManualClock, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::service::Service;
use tidegate_server::limits::config::{Config, ConfigFile, SameDomain};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Limits of all kinds.
const LIMITS: &str = include_str!("limits.yaml");

fn store() -> Arc<MemoryStore<ManualClock>> {
    let clock = ManualClock::new(Timestamp::from_micros(1_704_067_248_000_000));
    Arc::new(MemoryStore::builder().clock(clock).build())
}

fn service() -> Arc<Service> {
    let file = ConfigFile { name: "limits.yaml".into(), text: LIMITS.into() };
    let config = Config::from_files(&[file], SameDomain::Refuse).unwrap();
    let decider = Decider::new(store(), Behaviour::default());
    decider.set_config(config).unwrap();
    Arc::new(Service::new(decider))
}

/// Runs a future in virtual time, so that a busy machine causes no timeout.
fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(future)
}

/// Sends bytes in parts of length `part`, and returns the whole answer.
async fn exchange(client: DuplexStream, bytes: &[u8], part: usize, ends: bool) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(client);
    let sent = async {
        for part in bytes.chunks(part.max(1)) {
            // The write fails if the server has closed the connection.
            if writer.write_all(part).await.is_err() {
                return;
            }
        }
        if ends {
            let _ = writer.shutdown().await;
        }
    };
    let mut answer = Vec::new();
    let (_, received) = tokio::join!(sent, reader.read_to_end(&mut answer));
    received.unwrap();
    answer
}
