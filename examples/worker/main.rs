//! Workers that keep within a third party's quota, shared by all of their processes through Redis.
//!
//! ```sh
//! cargo run --release -p tidegate-examples --bin worker
//! ```
//!
//! starts a Redis of its own (or uses that of `REDIS_URL`), a small API that answers 429 when its quota
//! is overrun, and three processes of eight workers each, which call it as fast as they may. It ends
//! with status 1 if a single 429 came.

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
