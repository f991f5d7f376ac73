//! A watchdog for a server process. When the test process that started the server ends, even if it
//! is killed, the watchdog ends the server.

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

/// The maximum number of lines of a server's log in the message of an error or a panic.
const TAIL: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    /// The process runs under this process id.
    Running(u32),
    /// The process has this process id, and is stopped by SIGSTOP.
    Paused(u32),
    Exited,
}

/// A server process and its directory, which the shell script `watchdog.sh` supervises.
///
/// The watchdog is a shell script, because a script needs no unsafe code and works on every Unix.
/// The parent-death signal of Linux does not suffice: the kernel sends it when the *thread* that
/// started the server ends, but tests in other threads can still use the server.
#[derive(Debug)]
pub(super) struct Watchdog {
    dir: PathBuf,
    shell: Child,
    /// The input of the shell that runs the watchdog script, or `None` after the input was closed.
    /// Closing the input ends the server.
    orders: Mutex<Option<ChildStdin>>,
    state: Arc<Mutex<State>>,
}

impl Watchdog {
    /// Starts the shell that runs the watchdog script. The shell runs `command` in the directory
    /// `dir` when `start` is called. From now on, the shell owns `dir`, and removes `dir` at its
    /// end.
    pub(super) fn new(dir: PathBuf, command: &[&Path]) -> Result<Self, Error> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "tidegate-watchdog"])
            .arg(&dir)
            .args(command)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal must end only the tests, and not the shell, which cleans up
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

    /// Starts the server, which must not be running already. The state is `Idle` until the server's
    /// process runs.
    pub(super) fn start(&self) -> Result<(), Error> {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Idle;
        self.order("start")
    }

    /// Sends the signal with this name to the server, unless the server has ended.
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

    pub(super) async fn wait_for(
        &self,
        within: Duration,
        what: &str,
        is_wanted: impl Fn(State) -> bool,
    ) -> Result<State, Error> {
        eventually(within, what, async || Some(self.state()).filter(|&state| is_wanted(state)))
            .await
    }

    /// Returns the output of the server so far, from the byte `offset` on.
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

    /// Keeps the directory of the server and prints the end of its log, after the test has failed.
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
        // Close the input of the shell. The shell then kills the server, removes the directory of
        // the server unless `keep` has marked it, and ends.
        self.orders.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.shell.wait();
    }
}

pub(super) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

/// Reads the events that the shell prints, and updates the state after each event. Returns when the
/// shell has ended.
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
    // The shell has ended and reports nothing more, so the server counts as ended.
    set("exited");
}
