//! The processes of the servers.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidegate_test_servers::free_port;

use super::call::Protocol;
use crate::Outcome;

const THROTTLECRAB: &str = "throttlecrab-server-0.4.40";

/// The directory of the programs that the workspace built.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target");

/// The settings of tidegate-server.
pub(super) const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/settings.toml");

const START: Duration = Duration::from_secs(60);

/// The CPU cores of the programs, which `taskset` assigns if the machine has two or more cores.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cores {
    Any,
    /// A server with this number of worker threads and the client share all cores.
    Shared {
        workers: usize,
    },
    /// The servers run on this number of cores, the first cores of the machine.
    First(usize),
}

impl Cores {
    /// Reserves the first core for servers, and moves this process, the client, to the second core.
    pub(super) fn choose() -> Self {
        Self::split(1, 2)
    }

    /// Reserves the first cores for servers, and moves this process, the client, to the next cores.
    /// `all` is the number of cores for servers and client.
    pub(super) fn split(servers: usize, all: usize) -> Self {
        // `taskset` fails if no core is left for the client, or if the machine has fewer cores.
        match pin(&format!("{servers}-{}", all.saturating_sub(1)), std::process::id()) {
            Ok(()) => Self::First(servers),
            Err(_) => Self::Any,
        }
    }

    /// Lets this process and a server with this number of worker threads use all cores.
    pub(super) fn shared(workers: usize) -> Self {
        use_all_cores();
        Self::Shared { workers }
    }

    pub(super) fn command(self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Any | Self::Shared { .. } => Command::new(program),
            Self::First(servers) => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", &first(servers)]).arg(program);
                command
            }
        }
    }

    /// Moves a running server to the cores that are reserved for servers.
    pub(super) fn place(self, pid: u32) -> Outcome<()> {
        match self {
            Self::Any | Self::Shared { .. } => Ok(()),
            Self::First(servers) => pin(&first(servers), pid),
        }
    }
}

/// Returns the list of the first cores for `taskset`, such as `0-3`.
fn first(count: usize) -> String {
    format!("0-{}", count.saturating_sub(1))
}

/// Allows this process to use all cores again after a measurement.
pub(crate) fn use_all_cores() {
    // If `taskset` does not exist, no measurement has restricted this process.
    let _ = pin("0-1023", std::process::id());
}

/// Restricts all threads of a process to a list of cores.
fn pin(cores: &str, pid: u32) -> Outcome<()> {
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--cpu-list", "--pid", cores, &pid.to_string()]);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

/// The process of a server, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The output of the server stays open, so that the server can write to it.
    _output: Option<BufReader<ChildStdout>>,
    grpc: SocketAddr,
    http: SocketAddr,
    resp: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts tidegate-server with a store and a directory of limits.
    pub(super) fn tidegate(cores: Cores, store: &str, limits: &str) -> Outcome<Self> {
        Self::tidegate_with(Path::new(SETTINGS), cores, store, limits)
    }

    /// Starts tidegate-server with other settings than those of the benchmarks.
    pub(super) fn tidegate_with(
        settings: &Path,
        cores: Cores,
        store: &str,
        limits: &str,
    ) -> Outcome<Self> {
        let program = tidegate_server()?;
        let mut command = cores.command(&program);
        command.arg("--settings").arg(settings).args(["--store", store, "--config", limits]);
        for listener in ["--grpc", "--http", "--resp"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        if let Cores::First(workers) | Cores::Shared { workers } = cores {
            command.env("TOKIO_WORKER_THREADS", workers.to_string());
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = child.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            output.read_line(line)?;
        }
        let address = |line: &str, before: &str| -> Outcome<SocketAddr> {
            let rest = line.split_once(before).ok_or_else(|| {
                format!("tidegate-server has not started: {lines:?}; see --config {limits}")
            })?;
            let end = rest.1.find([',', '\n']).unwrap_or(rest.1.len());
            Ok(rest.1[..end].parse()?)
        };
        Ok(Self {
            grpc: address(&lines[0], "gRPC on ")?,
            http: address(&lines[0], "http://")?,
            resp: address(&lines[1], "RESP on ")?,
            child,
            _output: Some(output),
        })
    }

    /// Starts throttlecrab's server with its default settings, and without logs of requests.
    pub(super) fn throttlecrab(cores: Cores, program: &PathBuf) -> Outcome<Self> {
        let ports = [free_port()?, free_port()?, free_port()?];
        let [grpc, http, resp] = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut command = cores.command(program);
        for (protocol, address) in [("grpc", grpc), ("http", http), ("redis", resp)] {
            command.arg(format!("--{protocol}"));
            command.args([format!("--{protocol}-host"), address.ip().to_string()]);
            command.args([format!("--{protocol}-port"), address.port().to_string()]);
        }
        command.args(["--log-level", "error"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn()?;
        let mut process = Self { child, _output: None, grpc, http, resp };
        let started = Instant::now();
        for address in [grpc, http, resp] {
            while TcpStream::connect(address).is_err() {
                if let Some(status) = process.child.try_wait()? {
                    return Err(format!("throttlecrab-server has ended: {status}").into());
                }
                if started.elapsed() > START {
                    return Err(format!("throttlecrab-server is not on {address}").into());
                }
                sleep(Duration::from_millis(10));
            }
        }
        Ok(process)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn address(&self, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::Resp => self.resp,
            Protocol::Http => self.http,
            Protocol::Grpc => self.grpc,
        }
    }
}

/// Returns the path of tidegate-server: the value of TIDEGATE_SERVER, or the program that the
/// workspace built with the profile of this program.
fn tidegate_server() -> Outcome<PathBuf> {
    if let Some(path) = env::var_os("TIDEGATE_SERVER") {
        return Ok(path.into());
    }
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let path = Path::new(TARGET).join(profile).join("tidegate-server");
    if path.exists() {
        return Ok(path);
    }
    let path = path.display();
    Err(format!(
        "{path} is missing; build it with `cargo build --release -p tidegate-server`, or set TIDEGATE_SERVER"
    )
    .into())
}

/// Returns the path of throttlecrab-server: the value of TIDEGATE_THROTTLECRAB, or the program that
/// `.ci/install-throttlecrab` built.
pub(super) fn throttlecrab_server() -> Option<PathBuf> {
    if let Some(path) = env::var_os("TIDEGATE_THROTTLECRAB").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let path = Path::new(TARGET).join("tools").join(THROTTLECRAB).join("bin/throttlecrab-server");
    path.exists().then_some(path)
}

/// Returns the CPU time of all threads of a process, in user mode and in the kernel.
pub(super) fn cpu_time(pid: u32) -> Outcome<Duration> {
    let mut nanos = 0_u64;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = match fs::read_to_string(thread?.path().join("schedstat")) {
            Ok(text) => text,
            // The thread has ended.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let field = text.split_whitespace().next().ok_or("a thread has no times")?;
        nanos += field.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// The resident memory (RSS), including mapped files such as the program itself.
    pub(super) resident: u64,
    /// The proportional memory (PSS), in which each of n processes counts an nth of shared memory.
    pub(super) proportional: u64,
    /// The anonymous memory, which does not belong to mapped files.
    pub(super) anonymous: u64,
}

pub(super) fn memory(pid: u32) -> Outcome<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| format!("there is no {name} in {text}"))
    };
    Ok(Memory {
        resident: field("Rss:")?,
        proportional: field("Pss:")?,
        anonymous: field("Anonymous:")?,
    })
}
