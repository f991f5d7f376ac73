//! Measures a server during a flood of requests.
//!
//! The benchmark measures the latency of one polite client during the flood, and the memory of the
//! server while clients do not read.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::LIMITS;
use super::call::{Call, Protocol};
use super::client::{Client, Pace, Until};
use super::exchange::exchange;
use super::load::Load;
use super::process::{Cores, Process, memory};
use crate::harness::{middle, percentile, rounds};
use crate::{Outcome, at_least_one};

/// The time without progress after which a client that does not read stops sending.
const BLOCKED: Duration = Duration::from_millis(200);

/// The time between the end of the clients' connections and the measurement of memory.
const REST: Duration = Duration::from_secs(3);

/// The options of the flood.
#[derive(Debug, clap::Args)]
pub(crate) struct FloodOptions {
    /// Number of measurements; the medians are printed.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 2_000, value_parser = at_least_one)]
    millis: usize,
    /// Number of connections that flood the server.
    #[arg(long, default_value_t = 100, value_parser = at_least_one)]
    connections: usize,
    /// Number of requests in flight on each of these connections.
    #[arg(long, default_value_t = 100, value_parser = at_least_one)]
    depth: usize,
    /// Number of clients of gRPC that do not read.
    #[arg(long, default_value_t = 40, value_parser = at_least_one)]
    unread: usize,
    /// Number of requests that each client that does not read sends, unless the server stops
    /// reading.
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one)]
    requests: usize,
}

fn call_of(protocol: Protocol) -> Call {
    match protocol {
        Protocol::Resp => Call::Throttle,
        Protocol::Http => Call::Acquire,
        Protocol::Grpc => Call::ShouldRateLimit,
    }
}

pub(crate) fn run(options: &FloodOptions) -> Outcome<()> {
    let duration = Duration::from_millis(u64::try_from(options.millis)?);
    let process = Process::tidegate(Cores::Any, "memory", LIMITS)?;
    println!(
        "p99 of one connection with one request in flight, beside {} connections with {} each",
        options.connections, options.depth
    );
    println!("| flood | polite client | idle | beside the flood | ratio |\n|---|---|---|---|---|");
    for flood in [Protocol::Grpc, Protocol::Resp] {
        for polite in [Protocol::Grpc, Protocol::Resp] {
            let (mut idle, mut beside) = (vec![], vec![]);
            for _ in rounds(options.rounds) {
                idle.push(p99(&process, polite, duration)?);
                beside.push(flooded(&process, flood, polite, options, duration)?);
            }
            let [idle, beside] = [idle, beside].map(middle);
            let tenths = beside * 10 / idle.max(1);
            let [idle, beside] = [idle, beside].map(Duration::from_nanos);
            println!(
                "| {flood} | {polite} | {idle:.0?} | {beside:.0?} | {}.{} |",
                tenths / 10,
                tenths % 10
            );
        }
    }
    drop(process);
    memory_of_unread(options)
}

fn client(process: &Process, protocol: Protocol, connections: usize) -> Outcome<Client> {
    let address = process.address(protocol);
    let authority = address.to_string();
    Client::connect(address, connections, || exchange(call_of(protocol), &authority))
}

fn requests(protocol: Protocol, subject: &str, authority: SocketAddr) -> Vec<Vec<u8>> {
    vec![call_of(protocol).request(Load::Hot, subject, &authority.to_string())]
}

/// Measures the 99th percentile of the latency of a client with one request in flight.
fn p99(process: &Process, protocol: Protocol, duration: Duration) -> Outcome<u64> {
    let requests = requests(protocol, "polite", process.address(protocol));
    let run = client(process, protocol, 1)?.run(&requests, Pace::Each(1), Until::Time(duration))?;
    let mut latencies = run.latencies;
    latencies.sort_unstable();
    Ok(percentile(&latencies, 99))
}

fn flooded(
    process: &Process,
    flood: Protocol,
    polite: Protocol,
    options: &FloodOptions,
    duration: Duration,
) -> Outcome<u64> {
    let requests = requests(flood, "flood", process.address(flood));
    let (pace, until) = (Pace::Each(options.depth), Until::Time(2 * duration));
    thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            client(process, flood, options.connections)?.run(&requests, pace, until).map(drop)
        });
        sleep(duration / 2);
        let measured = p99(process, polite, duration);
        flooding.join().map_err(|_| "the flood has panicked")??;
        measured
    })
}

/// Measures the memory of a new server with clients that do not read.
fn memory_of_unread(options: &FloodOptions) -> Outcome<()> {
    let process = Process::tidegate(Cores::Any, "memory", LIMITS)?;
    let mib = || -> Outcome<u64> { Ok(memory(process.pid())?.resident >> 20) };
    println!("\nMiB of the server, with {} clients of gRPC that do not read", options.unread);
    println!("| before | with them | after them |\n|---|---|---|");
    for _ in 0..3 {
        let before = mib()?;
        let address = process.address(Protocol::Grpc);
        let clients = (0..options.unread).map(|_| unread(address, options.requests));
        let clients = clients.collect::<Outcome<Vec<_>>>()?;
        let with = mib()?;
        drop(clients);
        sleep(REST);
        println!("| {before} | {with} | {} |", mib()?);
    }
    Ok(())
}

/// Sends up to `count` requests without reading a response. Ends early if the server stops reading.
fn unread(address: SocketAddr, count: usize) -> Outcome<TcpStream> {
    let mut exchange = exchange(Call::ShouldRateLimit, &address.to_string());
    let request = Call::ShouldRateLimit.request(Load::Hot, "unread", &address.to_string());
    let mut bytes = vec![];
    exchange.begin(&mut bytes);
    (0..count).for_each(|_| exchange.request(&request, &mut bytes));
    let mut stream = TcpStream::connect(address)?;
    stream.set_nonblocking(true)?;
    let (mut rest, mut progress) = (&bytes[..], Instant::now());
    while !rest.is_empty() && progress.elapsed() < BLOCKED {
        match stream.write(rest) {
            Ok(written) => (rest, progress) = (&rest[written..], Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                sleep(Duration::from_millis(1));
            }
            // The server has closed the connection.
            Err(_) => break,
        }
    }
    Ok(stream)
}
