//! A watchdog for a server process. When the test process that started the server ends, the server
//! ends too, even if the test process is killed.

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

/// The maximum number of lines of a server's log that the message of an error or a panic contains.
const TAIL: usize = 20;

/// The state of the server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The process has not started yet.
    Idle,
    /// The process runs and has this process id.
    Running(u32),
    /// The process with this process id is stopped by SIGSTOP.
    Paused(u32),
    /// The process has ended.
    Exited,
}

/// A server process, and the directory in which it runs. The shell script `watchdog.sh` supervises
/// the process.
///
/// The watchdog is a shell script, because a script needs no unsafe code and works on every Unix.
/// The parent-death signal of Linux does not suffice. The kernel sends this signal when the
/// *thread* that started the server ends. A server that several tests share must live longer than
/// the thread of the first test.
#[derive(Debug)]
pub(super) struct Watchdog {
    dir: PathBuf,
    shell: Child,
    /// The input of the shell. Closing the input ends the server. It is `None` after the input was
    /// closed.
    orders: Mutex<Option<ChildStdin>>,
    state: Arc<Mutex<State>>,
}

impl Watchdog {
    /// Starts the shell. The shell will run `command` in the directory `dir` when `start` is
    /// called. From now on, the shell owns `dir`, and removes `dir` at its end.
    pub(super) fn new(dir: PathBuf, command: &[&Path]) -> Result<Self, Error> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "tidegate-watchdog"])
            .arg(&dir)
            .args(command)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal must end the tests only. It must not end the shell, which cleans
            // up after the tests.
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

    /// Starts the server. The server must not be running. The state is `Idle` until the process
    /// runs.
    pub(super) fn start(&self) -> Result<(), Error> {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Idle;
        self.order("start")
    }

    /// Sends the signal with this name to the server. Does nothing if the server has ended.
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

    /// Returns the output of the server so far, beginning with the byte at `offset`.
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

    /// Keeps the directory of the server and prints the end of its log. This is called if the test
    /// has failed.
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
        // When the input is closed, the shell cleans up and ends.
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
    // The shell has ended, so that the state of the server is unknown. The server counts as ended.
    set("exited");
}
