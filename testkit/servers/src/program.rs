//! Server programs other than Redis.

use std::path::{Path, PathBuf};

use super::error::Error;
use super::watchdog::{State, Watchdog};

/// A server process that runs any program, in its own directory. Dropping this value kills the
/// process and removes the directory.
///
/// ```
/// use tidegate_test_servers::Program;
///
/// let sleeper = Program::start(|dir| {
///     std::fs::write(dir.join("settings"), "quiet")?;
///     Ok(vec!["sleep".into(), "60".into()])
/// });
/// assert_eq!(sleeper.unwrap().log(), "");
/// ```
#[derive(Debug)]
pub struct Program(Watchdog);

impl Program {
    /// Starts the command that `prepare` returns. The function `prepare` receives the directory in
    /// which the server will run, and can create files there. When `start` returns, the server is
    /// not ready yet.
    pub fn start(
        prepare: impl FnOnce(&Path) -> std::io::Result<Vec<PathBuf>>,
    ) -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("tidegate-").tempdir();
        let dir = dir.map_err(|error| Error::io("cannot make a directory", error))?;
        let command = prepare(dir.path()).map_err(|error| Error::io("cannot prepare", error))?;
        let command: Vec<&Path> = command.iter().map(PathBuf::as_path).collect();
        // From now on, the watchdog script removes the directory, even if the test process is
        // killed.
        let process = Watchdog::new(dir.keep(), &command)?;
        process.start()?;
        Ok(Self(process))
    }

    /// Returns `true` if the server has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.state() == State::Exited
    }

    /// Returns the server's output so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.0.log(0)
    }
}
