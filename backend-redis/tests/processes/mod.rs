//! Processes that run one test of the current test program.

use std::process::{Child, Command, Stdio};

/// A child process, which is killed when the value is dropped, even if the test fails.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts a process that runs the ignored test with this name. `prepare` sets the environment
    /// of the process.
    pub(crate) fn start(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", test]).stdout(Stdio::null());
        Self(prepare(&mut command).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process gets SIGKILL, so it runs no more code.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
