//! Measures the cost of a decision, and compares Tidegate with other limiters. This package is not
//! a member of the workspace.
//!
//! ```sh
//! cargo run --release --manifest-path bench/Cargo.toml           # all benchmarks, one after another
//! cargo run --release --manifest-path bench/Cargo.toml -- memory # one benchmark
//! cargo run --release --manifest-path bench/Cargo.toml -- --help # their names
//! ```

mod cluster;
mod cluster_clients;
mod compare;
mod denied;
mod growth;
mod harness;
mod holds;
mod http;
mod memory;
mod random;
mod redis;
mod replay;
mod sample;
mod server;
mod simulate;
mod slots;
mod throughput;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The result of a step. Any error ends the benchmark.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measure the cost of a decision, next to other limiters. Without a command, run all benchmarks.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the figures that decide whether Tidegate is fast enough, and compare them with their
    /// bounds.
    ///
    /// This needs the programs that `server` needs. If a program is missing, its rows name the
    /// reason.
    Compare(compare::Options),
    /// Measure the cost of a decision as subjects, limits, connections and charges become more.
    ///
    /// This needs Linux. It finds `tidegate-server` in the same way as `server`.
    Growth(growth::Options),
    /// Measure `tidegate-memory` and other limiters for one process.
    Memory(memory::Options),
    /// Measure the scripts of `tidegate-redis` on one Redis, next to plain commands and common
    /// scripts.
    ///
    /// The benchmark starts its own server: `redis-server` from the PATH, or the program that
    /// TIDEGATE_REDIS_SERVER names.
    Redis(redis::Options),
    /// Measure the ways to get decisions from one Redis: single calls, batches, coalesced calls,
    /// leases and the deny cache.
    ///
    /// The benchmark starts its own server, like `redis`.
    Throughput(throughput::Options),
    /// Measure calls with an id, and holds with their settlement, on one Redis.
    ///
    /// The benchmark starts its own server, like `redis`.
    Holds(holds::Options),
    /// Measure slots on one Redis: the CPU with few and with many holders of one subject, next to
    /// common scripts, and the time until the next caller has a slot. Then measure slots over each
    /// protocol of tidegate-server.
    ///
    /// The benchmark starts its own server, like `redis`.
    Slots(slots::Options),
    /// Measure clusters of one, two and three nodes, with many tenants and with one busy tenant in
    /// shards.
    ///
    /// The benchmark starts its own nodes, like `redis`.
    Cluster(cluster::Options),
    /// Measure loads that are mostly denied, on one Redis, with and without the deny cache.
    ///
    /// The benchmark starts its own server, like `redis`.
    Denied(denied::Options),
    /// Measure the HTTP layer, tower_governor, and limiters in the handler of a web server.
    ///
    /// The first part sends requests through layers without a network. The second part needs `wrk`
    /// (apt-get install wrk), and starts its own Redis, like `redis`.
    Http(http::Options),
    /// Run one of the web servers of `http`.
    #[command(hide = true)]
    HttpServer(http::ServerOptions),
    /// Measure `tidegate-server`, throttlecrab's server and Redis, over RESP, HTTP and gRPC.
    ///
    /// This needs Linux. It uses the `tidegate-server` that the workspace built, or the program
    /// that TIDEGATE_SERVER names, and the `throttlecrab-server` that `.ci/install-throttlecrab`
    /// built, or the program that TIDEGATE_THROTTLECRAB names. It starts its own Redis, like
    /// `redis`.
    Server(server::Options),
    /// Measure `tidegate-server` during a flood of requests, and its memory while clients do not
    /// read.
    ///
    /// This needs Linux. It finds `tidegate-server` in the same way as `server`.
    Flood(server::FloodOptions),
    /// Measure two clients of a Redis Cluster while a node is down or a slot moves.
    ///
    /// The benchmark starts its own clusters, like `redis`.
    ClusterClients(cluster_clients::Options),
    /// Simulate leases on up to 1,000 nodes, in virtual time.
    Simulate(simulate::Options),
    /// Measure how many lines of an access log per second `tidegate replay` reads and decides.
    Replay,
    /// Print the access log in `samples/shop.log.zst`, or a longer one.
    Sample(sample::Options),
}

fn main() -> ExitCode {
    match Args::parse().command.map_or_else(run_all, run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs each benchmark with its default options, also after another benchmark has failed.
fn run_all() -> Outcome<bool> {
    let mut failed = vec![];
    for name in [
        "memory",
        "redis",
        "throughput",
        "holds",
        "slots",
        "cluster",
        "denied",
        "simulate",
        "replay",
        "cluster-clients",
        "http",
        "server",
        "flood",
        "growth",
    ] {
        let args = Args::try_parse_from(["tidegate-bench", name])?;
        if let Some(Err(error)) = args.command.map(run) {
            failed.push(format!("{name}: {error}"));
        }
    }
    if failed.is_empty() { Ok(true) } else { Err(failed.join("; ").into()) }
}

/// Runs a command. Returns `false` if `--check` is set and a target is missed.
fn run(command: Command) -> Outcome<bool> {
    match command {
        Command::Compare(options) => compare::run(&options),
        Command::Growth(options) => growth::run(&options).map(|()| true),
        Command::Memory(options) => memory::run(&options),
        Command::Redis(options) => redis::run(&options),
        Command::Throughput(options) => throughput::run(&options),
        Command::Holds(options) => holds::run(&options),
        Command::Slots(options) => slots::run(&options).map(|()| true),
        Command::Cluster(options) => cluster::run(&options).map(|()| true),
        Command::Denied(options) => denied::run(&options),
        Command::Http(options) => http::run(&options).map(|()| true),
        Command::HttpServer(options) => http::serve(&options).map(|()| true),
        Command::Server(options) => server::run(&options).map(|()| true),
        Command::Flood(options) => server::flood(&options).map(|()| true),
        Command::ClusterClients(options) => cluster_clients::run(&options).map(|()| true),
        Command::Simulate(options) => simulate::run(&options),
        Command::Replay => replay::run().map(|()| true),
        Command::Sample(options) => sample::print(&options).map(|()| true),
    }
}

/// Runs an asynchronous benchmark on one thread, like most programs with few calls.
fn block_on<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("the number is 0; it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
