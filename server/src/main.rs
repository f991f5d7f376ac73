//! The program `tidegate-server`: see the README.
//!
//! | exit code | reason |
//! |---|---|
//! | 0 | a signal has ended the server, or the checked directory is valid |
//! | 1 | a configuration, an address or a store is not valid |
//! | 2 | a setting is not valid |

mod app;
mod log;
mod settings;

use std::error::Error;
use std::pin::pin;
use std::process::ExitCode;

use app::{App, Failure};
use settings::{Settings, Task};

/// The number of tasks that a thread runs before it looks for connections that have become
/// readable. With the default of Tokio, a request would wait for 61 tasks.
const EVENT_INTERVAL: u32 = 4;

fn main() -> ExitCode {
    let result = match settings::read() {
        Task::Serve(mut settings) => {
            log::start(settings.log);
            serve(&mut settings).map_err(|error| match tracing::enabled!(tracing::Level::ERROR) {
                true => tracing::error!("{error}"),
                // The log is off, but the reason why the server does not start must be seen.
                false => command_failed(&*error),
            })
        }
        Task::Check { settings, limits, same_domain } => {
            app::check(&settings, limits.as_deref(), same_domain)
                .map_err(|error| command_failed(&*error))
        }
        Task::Limits(settings, action) => {
            app::change_limits(&settings.store, action).map_err(|error| command_failed(&*error))
        }
        Task::Top(top) => top.run().map_err(|error| command_failed(&error)),
        Task::Done => Ok(()),
    };
    result.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn command_failed(error: &dyn Error) {
    log::write_error(format_args!("tidegate-server: {error}"));
}

fn serve(settings: &mut Settings) -> Result<(), Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().event_interval(EVENT_INTERVAL).build()?.block_on(async {
        let mut shutdown = pin!(app::shutdown()?);
        // A signal can cancel `App::build`, because it waits for a store that does not answer.
        let app = tokio::select! {
            app = App::build(settings) => app?,
            () = &mut shutdown => return Ok(()),
        };
        app.run(shutdown).await
    })
}
