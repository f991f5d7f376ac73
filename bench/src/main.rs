//! What a decision costs, beside what others do. Not published.
//!
//! ```sh
//! cargo run --release -p tidegate-bench -- redis
//! ```

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
}

fn main() -> ExitCode {
    let What::Redis(options) = Args::parse().what;
    match redis::run(&options) {
        Ok(all_met) if all_met || !options.check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
