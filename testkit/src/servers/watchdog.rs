//! A server process that ends with the process that started it, even if that process is killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io, thread};

use super::error::Error;
use super::wait::eventually;

const SCRIPT: &str = include_str!("watchdog.sh");

/// The maximum number of lines of a log that an error or panic shows.
const TAIL: usize = 20;

/// The state of the server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The process is about to start.
    Idle,
    /// The process runs under this process id.
    Running(u32),
    /// The process is stopped by SIGSTOP.
    Paused(u32),
    /// The process has ended.
    Exited,
}

/// A directory and the server process that runs in it, supervised by `watchdog.sh`.
///
/// A shell script needs no unsafe code and works on every Unix. Linux's parent-death signal does
/// not suffice: the kernel sends it when the *thread* that started the server ends, and a server
/// that several tests share outlives the thread of the first test.
#[derive(Debug)]
pub(super) struct Watchdog {
    dir: PathBuf,
    shell: Child,
    /// The shell's input. Closing it ends the server. It is `None` after that.
    orders: Mutex<Option<ChildStdin>>,
    state: Arc<Mutex<State>>,
}

impl Watchdog {
    /// Starts the shell, which will run `command` in `dir`. From now on the shell owns `dir` and
    /// removes it at the end.
    pub(super) fn new(dir: PathBuf, command: &[&Path]) -> Result<Self, Error> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "tidegate-watchdog"])
            .arg(&dir)
            .args(command)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal must reach the tests only, not the watchdog, which cleans up
            // after the tests.
            .process_group(0)
            .spawn()
            .map_err(|error| Error::io("cannot run `sh`", error))?;
        let orders = Mutex::new(shell.stdin.take());
        let state = Arc::new(Mutex::new(State::Idle));
        if let Some(events) = shell.stdout.take() {
            let state = Arc::clone(&state);
            thread::spawn(move || follow(BufReader::new(events), &state));
        }
        Ok(Self { dir, shell, orders, state })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the server, which must not be running. The state is `Idle` until the process runs.
    pub(super) fn start(&self) -> Result<(), Error> {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Idle;
        self.order("start")
    }

    /// Sends the signal with this name. Does nothing if the server has ended.
    pub(super) fn signal(&self, name: &str) -> Result<(), Error> {
        self.order(name)
    }

    fn order(&self, order: &str) -> Result<(), Error> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        orders
            .as_mut()
            .ok_or_else(closed)
            .and_then(|orders| orders.write_all(format!("{order}\n").as_bytes()))
            .map_err(|error| Error::io(format!("cannot give the order {order:?}"), error))
    }

    /// Waits until `is_wanted` returns `true` for the server's state.
    pub(super) async fn wait_for(
        &self,
        within: Duration,
        what: &str,
        is_wanted: impl Fn(State) -> bool,
    ) -> Result<State, Error> {
        eventually(within, what, async || Some(self.state()).filter(|&state| is_wanted(state)))
            .await
    }

    /// Returns the server's output so far, from the byte at `offset`.
    pub(super) fn log(&self, offset: usize) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(log.get(offset..).unwrap_or_default()).into_owned()
    }

    /// Returns the length of the server's output so far, in bytes.
    pub(super) fn log_len(&self) -> usize {
        fs::read(self.log_path()).map_or(0, |log| log.len())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Keeps the directory, and prints the end of the log, because the test has failed.
    fn keep(&self) {
        let kept = fs::write(self.dir.join("keep"), "");
        let hint = if kept.is_ok() { "kept" } else { "not kept" };
        eprintln!(
            "the log of the server ({hint}: {}) ends with\n{}",
            self.log_path().display(),
            tail(&self.log(0))
        );
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if thread::panicking() {
            self.keep();
        }
        // Closing the input makes the shell clean up. The shell ends when it has finished.
        self.orders.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.shell.wait();
    }
}

/// Returns the last lines of a log.
pub(super) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

/// Updates the state with each event that the shell prints, until the shell ends.
fn follow(events: impl BufRead, state: &Mutex<State>) {
    let set = |event: &str| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match (event.split_once(' ').unwrap_or((event, "")), *state) {
            (("running", pid), _) => pid.parse().map_or(State::Exited, State::Running),
            (("paused", _), State::Running(pid)) => State::Paused(pid),
            (("resumed", _), State::Paused(pid)) => State::Running(pid),
            (("exited", _), _) => State::Exited,
            (_, state) => state,
        };
    };
    events.lines().map_while(Result::ok).for_each(|event| set(&event));
    // Without the shell, the state of the server is unknown. The server counts as ended.
    set("exited");
}
