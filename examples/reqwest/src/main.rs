//! Calls a service whose limit changes each second, and obeys the pauses that the service
//! announces.
//!
//! ```sh
//! cargo run -p tidegate-example-reqwest
//! REDIS_URL=redis://127.0.0.1/ cargo run -p tidegate-example-reqwest
//! ```
//!
//! Without `REDIS_URL`, the program runs eight tasks in one process. With `REDIS_URL`, it runs
//! eight processes that share the Redis. It ends with status 1 if it sent a request during a pause.

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use tidegate_example_reqwest::service::Service;
use tidegate_example_reqwest::work::{POLICY, TASKS, process, work};
use tidegate_memory::MemoryStore;
use tokio::task::spawn_blocking;

const PROCESSES: u32 = 8;
const TIME: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demo().await,
        ["work", redis, prefix, url, millis] => process(redis, prefix, url, millis).await,
        _ => {
            Err("usage: tidegate-example-reqwest (with REDIS_URL=redis://… for eight processes)"
                .into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-example-reqwest: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<(), Box<dyn Error + Send + Sync>> {
    let service = Service::start().await?;
    match std::env::var("REDIS_URL") {
        Ok(redis) => {
            println!("{PROCESSES} processes, {} s, all under `{POLICY}`", TIME.as_secs());
            fleet(&redis, &service.url()).await?;
        }
        Err(_) => {
            println!("{TASKS} tasks, {} s, all under `{POLICY}`", TIME.as_secs());
            work(MemoryStore::new(), &service.url(), TASKS, TIME).await?;
        }
    }
    let books = service.books();
    println!(
        "{} answered, {} refused with Retry-After, {} pauses announced to clients, {} requests sent in one",
        books.answered,
        books.refused,
        books.received(),
        books.too_early()
    );
    if books.too_early() > 0 { Err("a request came too early".into()) } else { Ok(()) }
}

/// Starts the processes of this program, and waits until they end. The prefix of their keys in
/// Redis is unique to this run.
async fn fleet(redis: &str, url: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let prefix = format!("reqwest-{}-{}", std::process::id(), now.as_micros());
    let mut processes = vec![];
    for _ in 0..PROCESSES {
        let process = Command::new(std::env::current_exe()?)
            .args(["work", redis, &prefix, url, &TIME.as_millis().to_string()])
            .stdin(Stdio::null())
            .spawn();
        processes.push(process?);
    }
    for mut process in processes {
        // `wait` blocks its thread. It runs in another thread, so that the service in this program
        // continues to answer.
        if !spawn_blocking(move || process.wait()).await??.success() {
            return Err("a process failed".into());
        }
    }
    Ok(())
}
