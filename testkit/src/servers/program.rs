//! Any other server.

use std::path::{Path, PathBuf};

use super::Error;
use super::watchdog::{State, Watchdog};

/// A server that this crate knows nothing about, in a directory of its own. Both end with it.
///
/// ```
/// use tidegate_testkit::servers::Program;
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
    /// Starts the command that `prepare` gives, which may put files into the directory that the server
    /// will run in. It is not ready yet when this returns.
    ///
    /// # Errors
    /// If the directory cannot be made or filled, or the command cannot be started.
    pub fn start(
        prepare: impl FnOnce(&Path) -> std::io::Result<Vec<PathBuf>>,
    ) -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("tidegate-").tempdir();
        let dir = dir.map_err(|error| Error::io("cannot make a directory", error))?;
        let command = prepare(dir.path()).map_err(|error| Error::io("cannot prepare", error))?;
        let command: Vec<&Path> = command.iter().map(PathBuf::as_path).collect();
        // From here on the shell removes the directory, which it does even if this process is killed.
        let process = Watchdog::new(dir.keep(), &command)?;
        process.start()?;
        Ok(Self(process))
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.state() == State::Exited
    }

    /// What it has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.0.log(0)
    }
}
