//! The program `tidegate-server`: see the README.
//!
//! | exit code | reason |
//! |---|---|
//! | 0 | a signal has ended the server, or the checked directory is valid |
//! | 1 | a configuration, an address or a store is not valid |
//! | 2 | the command line is not valid |

#[macro_use]
mod lines;
mod app;
mod args;

use std::pin::pin;
use std::process::ExitCode;

use app::{App, Failure};
use args::{Cli, Command, Serve};

/// The number of tasks that a thread runs before it looks for connections that have become
/// readable. With Tokio's default, a request waits for 61 tasks.
const EVENT_INTERVAL: u32 = 4;

fn main() -> ExitCode {
    let mut cli = Cli::read();
    let result = match &cli.command {
        Some(Command::Check { directory, domains }) => app::check(directory, domains.same_domain()),
        #[cfg(feature = "top")]
        Some(Command::Top(top)) => top.run().map_err(Into::into),
        None => serve(&mut cli.serve),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr!("tidegate-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(settings: &mut Serve) -> Result<(), Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().event_interval(EVENT_INTERVAL).build()?.block_on(async {
        let mut shutdown = pin!(app::shutdown()?);
        // A store that does not answer delays the start.
        let app = tokio::select! {
            app = App::build(settings) => app?,
            () = &mut shutdown => return Ok(()),
        };
        app.run(shutdown).await
    })
}
