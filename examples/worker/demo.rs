//! The demonstration. It starts a Redis, a stub of a third party's API and three processes of
//! workers, and prints the result.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use tidegate_redis::Policy;
use tidegate_test_servers::Redis;
use tokio::task::spawn_blocking;

use crate::third_party::ThirdParty;
use crate::work::{POLICY, WORKERS};

const PROCESSES: u32 = 3;
const SECONDS: u64 = 5;

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let (redis, _own) = redis().await?;
    let third_party = ThirdParty::start().await?;
    // The prefix of the keys is unique to this run, so that the run does not use the states of an
    // earlier run in the same Redis.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let prefix = format!("worker-{}-{}", std::process::id(), now.as_micros());
    println!("{PROCESSES} processes of {WORKERS} workers, {SECONDS} s, all under `{POLICY}`");

    let mut processes = vec![];
    for _ in 0..PROCESSES {
        let process = Command::new(std::env::current_exe()?)
            .args(["work", &redis, &prefix, &third_party.address.to_string(), &SECONDS.to_string()])
            .stdin(Stdio::null())
            .spawn();
        processes.push(process?);
    }
    for mut process in processes {
        // `wait` blocks its thread. It runs in another thread, so that the stub of the API in this
        // program continues to answer.
        if !spawn_blocking(move || process.wait()).await??.success() {
            return Err("a process of workers failed".into());
        }
    }
    report(&third_party)
}

/// Returns the URL of a Redis. If this function started the Redis, the second value is its handle,
/// and the Redis ends when the handle is dropped.
async fn redis() -> Result<(String, Option<Redis>), Box<dyn Error>> {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return Ok((url, None));
    }
    let own = Redis::start().await?;
    Ok((own.url(), Some(own)))
}

fn report(third_party: &ThirdParty) -> Result<(), Box<dyn Error>> {
    let books = third_party.books();
    let (Some(first), Some(last)) = (books.first, books.last) else {
        return Err("no request has come".into());
    };
    let lasted = last.saturating_duration_since(first);
    let burst = u128::from(POLICY.parse::<Policy>()?.limit());
    let might = burst + 50 * lasted.as_millis() / 1_000;
    println!(
        "{} requests served of the {might} that might have been ({} %), {} answered with 429",
        books.served,
        books.served * 100 / might,
        books.too_many,
    );
    if books.too_many > 0 { Err("the quota was overrun".into()) } else { Ok(()) }
}
