//! The `tidegate` program.
//!
//! Exit codes: 0 done, 1 bad input or a store that fails, 2 bad usage. A broken pipe ends it quietly.
//! What malformed lines there were, or what a replay could not take away again from a server, is told
//! on standard error and changes no code.

mod args;
mod command;
mod outputs;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match args::Cli::parse().command {
        args::Command::Replay(replay) => command::replay(&replay),
        args::Command::Sample(sample) => command::sample(&sample),
        args::Command::Plan(plan) => command::plan(&plan),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
