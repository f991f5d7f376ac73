//! Workers that stay within the quota of a third party's API. All processes of workers share one
//! limit through Redis.
//!
//! ```sh
//! cargo run --release -p tidegate-examples --bin worker
//! ```
//!
//! The program starts a Redis, or uses the Redis of `REDIS_URL`. It also starts a small API that
//! answers with status 429 beyond its quota, and three processes of eight workers each, which call
//! the API as often as the limit permits. The program ends with status 1 if the API answered a
//! request with status 429.

mod demo;
mod third_party;
mod work;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demo::run().await,
        ["work", redis, prefix, api, seconds] => work::run(redis, prefix, api, seconds).await,
        _ => Err("usage: worker (with REDIS_URL=redis://… for a Redis of yours)".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}
