//! The `tidegate` program.
//!
//! Exit codes: 0 done, 1 bad input or a store that fails, 2 bad usage, 130 ended by Ctrl-C. A broken
//! pipe ends it quietly. A few malformed lines, or what a replay could not take away again from a
//! server, are reported on standard error and change no code; if half of all lines or more are
//! malformed, the code is 1.

mod args;
mod command;
mod interrupt;
mod outputs;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match args::Cli::parse().command {
        args::Command::Replay(replay) => command::replay(&replay),
        args::Command::Sample(sample) => command::sample(&sample),
        args::Command::Plan(plan) => command::plan(&plan),
        args::Command::Scripts(scripts) => command::scripts(&scripts),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
