//! What a decision costs, beside what others do. Not published.
//!
//! ```sh
//! cargo run --release -p tidegate-bench -- redis
//! cargo run --release -p tidegate-bench -- denied
//! ```

mod denied;
mod redis;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What a decision costs, beside what others do.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// One Redis: the scripts of `tidegate-redis` beside plain commands and the usual scripts.
    ///
    /// Starts a server of its own: `redis-server` from the PATH, or what TIDEGATE_REDIS_SERVER names.
    Redis(redis::Options),
    /// A load of which nine tenths are refused, on one Redis, with and without the deny cache.
    ///
    /// Starts a server of its own, as `redis` does.
    Denied(denied::Options),
}

fn main() -> ExitCode {
    let (outcome, check) = match Args::parse().what {
        What::Redis(options) => (redis::run(&options), options.check),
        What::Denied(options) => (denied::run(&options), options.check),
    };
    match outcome {
        Ok(all_met) if all_met || !check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
