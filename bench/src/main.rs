//! Benchmarks: the cost of a decision, beside other limiters. Not published.
//!
//! ```sh
//! cargo run --release -p tidegate-bench # all of them, one after another
//! cargo run --release -p tidegate-bench -- memory
//! cargo run --release -p tidegate-bench -- redis
//! cargo run --release -p tidegate-bench -- throughput
//! cargo run --release -p tidegate-bench -- holds
//! cargo run --release -p tidegate-bench -- cluster
//! cargo run --release -p tidegate-bench -- denied
//! cargo run --release -p tidegate-bench -- http
//! cargo run --release -p tidegate-bench -- observed
//! cargo run --release -p tidegate-bench -- cluster-clients
//! cargo run --release -p tidegate-bench -- server
//! cargo run --release -p tidegate-bench -- flood
//! cargo run --release -p tidegate-bench -- shards
//! cargo run --release -p tidegate-bench -- simulate
//! ```

mod cluster;
mod cluster_clients;
mod denied;
mod figures;
mod holds;
mod http;
mod memory;
mod observed;
mod picture;
mod random;
mod redis;
mod server;
mod shards;
mod simulate;
mod throughput;
mod verdict;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Any error ends the benchmark; its kind does not matter.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measures the cost of a decision, beside other limiters. Without a command, runs all benchmarks.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// This process's memory: `tidegate-memory` beside other limiters.
    Memory(memory::Options),
    /// One Redis: the scripts of `tidegate-redis` beside plain commands and the usual scripts.
    ///
    /// Starts a server of its own: `redis-server` from the PATH, or what TIDEGATE_REDIS_SERVER names.
    Redis(redis::Options),
    /// The ways to a decision on one Redis, side by side: single calls, batches, coalesced, leased, the deny cache.
    ///
    /// Starts a server of its own, as `redis` does.
    Throughput(throughput::Options),
    /// Calls with an id, and holds with their settlement, on one Redis, beside calls without.
    ///
    /// Starts a server of its own, as `redis` does.
    Holds(holds::Options),
    /// A Redis Cluster: decisions for many tenants on one, two and three nodes, and for a hot one in shards.
    ///
    /// Starts its nodes as `redis` does its server.
    Cluster(cluster::Options),
    /// A load of which nine tenths are denied, on one Redis, with and without the deny cache.
    ///
    /// Starts a server of its own, as `redis` does.
    Denied(denied::Options),
    /// A web server that says hello: without a limiter, behind the layers of `tidegate-http` and of
    /// tower_governor, and with a limiter in its handler, in memory and on Redis.
    ///
    /// First a request through the layers without a network. The rest needs `wrk` (apt-get install wrk), and starts a Redis of its own as `redis` does.
    Http(http::Options),
    /// One of these servers.
    #[command(hide = true)]
    HttpServer(http::ServerOptions),
    /// `tidegate-server` beside throttlecrab's server and Redis, over RESP, HTTP and gRPC, and its memory.
    ///
    /// Needs Linux; `tidegate-server` beside this program, or the one that TIDEGATE_SERVER names; and `throttlecrab-server`,
    /// which `.ci/install-throttlecrab` builds, or the one that TIDEGATE_THROTTLECRAB names. Starts a Redis of its own, as
    /// `redis` does.
    Server(server::Options),
    /// `tidegate-server` while clients flood it, and its memory while clients do not read.
    ///
    /// Needs Linux, and `tidegate-server` as `server` does.
    Flood(server::FloodOptions),
    /// What `.observed()` adds to a check in memory.
    Observed(observed::Options),
    /// Two clients of Redis Cluster while a node is down or a slot moves.
    ///
    /// Starts clusters of its own, as `redis` does.
    ClusterClients(cluster_clients::Options),
    /// How often a limit in shards denies too early, if exactly the limit arrives.
    Shards(shards::Options),
    /// What leases cost a limit and save a server, for up to 1,000 nodes, in virtual time.
    Simulate(simulate::Options),
}

fn main() -> ExitCode {
    match Args::parse().what.map_or_else(everything, measure) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs each benchmark with its defaults. One that cannot run does not keep the next ones from running.
fn everything() -> Outcome<bool> {
    let mut failed = vec![];
    for what in [
        "memory",
        "redis",
        "throughput",
        "holds",
        "cluster",
        "denied",
        "observed",
        "shards",
        "simulate",
        "cluster-clients",
        "http",
        "server",
        "flood",
    ] {
        let args = Args::try_parse_from(["tidegate-bench", what])?;
        if let Some(Err(error)) = args.what.map(measure) {
            failed.push(format!("{what}: {error}"));
        }
    }
    if failed.is_empty() { Ok(true) } else { Err(failed.join("; ").into()) }
}

fn measure(what: What) -> Outcome<bool> {
    match what {
        What::Memory(options) => memory::run(&options).map(|all_met| all_met || !options.check),
        What::Redis(options) => redis::run(&options).map(|all_met| all_met || !options.check),
        What::Throughput(options) => {
            throughput::run(&options).map(|all_met| all_met || !options.check)
        }
        What::Holds(options) => holds::run(&options).map(|all_met| all_met || !options.check),
        What::Cluster(options) => cluster::run(&options).map(|()| true),
        What::Denied(options) => denied::run(&options).map(|all_met| all_met || !options.check),
        What::Http(options) => http::run(&options).map(|()| true),
        What::HttpServer(options) => http::serve(&options).map(|()| true),
        What::Server(options) => server::run(&options).map(|all_met| all_met || !options.check),
        What::Flood(options) => server::flood(&options).map(|()| true),
        What::Observed(options) => observed::run(&options).map(|()| true),
        What::ClusterClients(options) => cluster_clients::run(&options).map(|()| true),
        What::Shards(options) => shards::run(&options),
        What::Simulate(options) => simulate::run(&options).map(|all_met| all_met || !options.check),
    }
}

/// Runs a benchmark of clients in one thread, as most programs that send few calls do.
fn block_on<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
