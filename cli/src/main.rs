//! The `tidegate` program.
//!
//! The exit codes are 0 for success, 1 for invalid input or a failed store, 2 for invalid usage,
//! and 130 after Ctrl-C. If the reader of the output closes the pipe, the program ends with 0 and
//! no message. If at least half of all lines are malformed, the exit code is 1. The program reports
//! fewer malformed lines, and keys that a replay could not delete from a server, on standard error
//! without changing the exit code.

mod args;
mod command;
#[cfg(feature = "redis")]
mod interrupt;
mod outputs;
#[cfg(feature = "redis")]
mod redis_commands;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match args::Cli::parse().command {
        args::Command::Replay(replay) => command::replay(&replay),
        #[cfg(feature = "redis")]
        args::Command::Redis(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
