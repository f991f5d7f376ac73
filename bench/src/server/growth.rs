//! Measures the cost of tidegate-server with more limits and with more connections.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidegate_test_servers::Redis;

use super::call::{Call, Protocol};
use super::client::{Client, Pace, Until};
use super::exchange::exchange;
use super::load::Load;
use super::process::{Cores, Process, SETTINGS, memory};
use super::{LIMITS, sample};
use crate::{Outcome, block_on};

/// The maximum number of files that a process opens in addition to its connections.
const OTHER_FILES: usize = 100;

/// The CPU time of the server per call in nanoseconds, and the memory of the server in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grown {
    pub(crate) cpu: u64,
    pub(crate) bytes: u64,
}

/// Measures a server with `count` limits, which the calls use in turn.
pub(crate) fn limits(count: usize, duration: Duration) -> Outcome<Grown> {
    let names: Vec<_> = (0..count).map(|number| format!("user-{number:06}")).collect();
    let mut yaml = "domain: bench\ndescriptors:\n".to_owned();
    for name in &names {
        let policy = "gcra 1_000_000/1m burst 1_000_000_000";
        writeln!(yaml, "  - key: user\n    value: {name}\n    policy: {policy}")?;
    }
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("limits.yaml"), yaml)?;
    let config = directory.path().to_str().ok_or("the name of a directory is not a text")?;
    let process = Process::tidegate(Cores::choose(), "memory", config)?;
    measure(&process, Call::ShouldRateLimit, &names, 4, Pace::Each(16), duration)
}

/// Measures a server with `count` overrides in Redis, and calls of 1,000 subjects. If `are_used` is
/// `true`, these subjects have overrides too.
pub(crate) fn overrides(count: usize, are_used: bool, duration: Duration) -> Outcome<Grown> {
    let names: Vec<_> = (0..1_000).map(|number| format!("user-{number:06}")).collect();
    let policy = |limit: &str| format!("plan: gcra {limit}/1m burst 1_000_000_000");
    let subject = |number: usize| match names.get(number).filter(|_| are_used) {
        Some(name) => name.clone(),
        None => format!("other-{number:07}"),
    };
    let cores = Cores::choose();
    let redis = block_on(async { Ok(Redis::start().await?) })?;
    cores.place(redis.pid().ok_or("redis-server has ended")?)?;
    let mut connection = redis::Client::open(redis.url())?.get_connection()?;
    for first in (0..count).step_by(1_000) {
        let mut command = redis::cmd("HSET");
        command.arg("tidegate:%limits:{limits}").arg("%version").arg("1 1");
        for subject in (first..count.min(first + 1_000)).map(subject) {
            let key = format!("plan for subject {subject}");
            command.arg(key).arg(format!("{} for subject {subject}", policy("2_000_000")));
        }
        command.exec(&mut connection)?;
    }
    let directory = tempfile::tempdir()?;
    let [limits, settings] =
        ["limits.yaml", "settings.toml"].map(|name| directory.path().join(name));
    let yaml = "domain: bench\ndescriptors:\n  - key: user\n    policy: ";
    fs::write(&limits, format!("{yaml}\"{}\"\n", policy("1_000_000")))?;
    let more = "\n[limits]\nlimit_set = \"store\"\n";
    fs::write(&settings, fs::read_to_string(SETTINGS)? + more)?;
    let config = directory.path().to_str().ok_or("the name of a directory is not a text")?;
    let process = Process::tidegate_with(&settings, cores, &redis.url(), config)?;
    if count > 0 {
        wait_for_limit_set(&process)?;
    }
    measure(&process, Call::ShouldRateLimit, &names, 4, Pace::Each(16), duration)
}

/// Waits until the server has read the limit set, which continues in the background.
fn wait_for_limit_set(process: &Process) -> Outcome<()> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        let mut connection = TcpStream::connect(process.address(Protocol::Http))?;
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut metrics = String::new();
        connection.read_to_string(&mut metrics)?;
        if metrics.contains("\ntidegate_server_limit_set_version 1\n") {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err("the server has not read the limit set".into())
}

/// Measures a server with `count` connections, each with one request in flight.
///
/// # Errors
///
/// Returns an error if this process cannot open `count` connections.
pub(crate) fn connections(count: usize, duration: Duration) -> Outcome<Grown> {
    let max = max_open_files()?;
    if count + OTHER_FILES > max {
        return Err(format!("the limit of open files is {max} (ulimit -n)").into());
    }
    let names: Vec<_> = (0..1_000).map(|number| format!("user-{number:06}")).collect();
    let process = Process::tidegate(Cores::choose(), "memory", LIMITS)?;
    measure(&process, Call::Throttle, &names, count, Pace::Each(1), duration)
}

/// Measures a server with `count` worker threads, which share all cores with the client. All calls
/// have the same subject.
pub(crate) fn workers(count: usize, duration: Duration) -> Outcome<Grown> {
    let process = Process::tidegate(Cores::shared(count), "memory", LIMITS)?;
    let names = ["user-000000".to_owned()];
    measure(&process, Call::Throttle, &names, 32, Pace::Each(16), duration)
}

fn measure(
    process: &Process,
    call: Call,
    names: &[String],
    connections: usize,
    pace: Pace,
    duration: Duration,
) -> Outcome<Grown> {
    let address = process.address(call.protocol());
    let authority = address.to_string();
    let requests: Vec<_> =
        names.iter().map(|name| call.request(Load::Many, name, &authority)).collect();
    let mut client = Client::connect(address, connections, || exchange(call, &authority))?;
    // First, the client uses each limit and each connection once.
    let all = names.len().max(connections);
    client.run(&requests, pace, Until::Requests(u64::try_from(all)?))?;
    let (sample, allowed, all) =
        sample(&mut client, &requests, pace, duration, (process.pid(), None))?;
    if allowed != all {
        return Err(format!("{allowed} of {all} requests were allowed").into());
    }
    Ok(Grown { cpu: sample.cpu, bytes: memory(process.pid())?.anonymous })
}

fn max_open_files() -> Outcome<usize> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let max = line.and_then(|line| line.split_whitespace().next());
    match max.ok_or("the limit of open files is unknown")? {
        "unlimited" => Ok(usize::MAX),
        number => Ok(number.parse()?),
    }
}
