//! What a decision costs, beside what others do. Not published.
//!
//! ```sh
//! cargo run --release -p tidegate-bench -- memory
//! cargo run --release -p tidegate-bench -- redis
//! ```

mod memory;
mod redis;

use std::error::Error;
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
    /// This process's memory: `tidegate-memory` beside other limiters.
    Memory(memory::Options),
    /// One Redis: the scripts of `tidegate-redis` beside plain commands and the usual scripts.
    ///
    /// Starts a server of its own: `redis-server` from the PATH, or what TIDEGATE_REDIS_SERVER names.
    Redis(redis::Options),
}

/// What goes wrong ends the benchmark; there is nobody who would tell the kinds apart.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let (outcome, check) = match Args::parse().what {
        What::Memory(options) => (memory::run(&options), options.check),
        What::Redis(options) => (redis::run(&options), options.check),
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

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
