//! Measures two clients of a Redis Cluster during a fault: the cluster connection of the crate
//! `redis`, and one connection per node. Each measurement starts its own cluster.

mod client;
mod client_compare;
mod load;

use std::time::Duration;

use crate::Outcome;
use client::Kind;
use client_compare::{Fault, executions, migration, others};

/// The numbers of callers that share the client while a slot moves.
const CALLERS: [usize; 3] = [1, 16, 64];

/// Options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(compare(Duration::from_secs(options.seconds)))
}

async fn compare(time: Duration) -> Outcome<()> {
    println!(
        "Calls to the two other nodes of three, by 16 callers, while 4 call the one in question:\n"
    );
    println!("| fault | client | calls | errors | p50 | p99 | max | no answer for |");
    println!("|---|---|---|---|---|---|---|---|");
    for fault in Fault::ALL {
        for kind in Kind::ALL {
            println!("| {fault} | {kind} | {} |", others(kind, fault, time).await?);
        }
    }
    println!("\nCalls to a slot that is moving, whose keys are all at its new node:\n");
    println!(
        "| callers | client | answers per second | errors | of these timeouts | executed without an answer |"
    );
    println!("|---|---|---|---|---|---|");
    for callers in CALLERS {
        for kind in Kind::ALL {
            println!("| {callers} | {kind} | {} |", migration(kind, callers, time).await?);
        }
    }
    println!(
        "\nOne INCR to a node that is held for 1 s, with a response timeout of 200 ms, while others call other nodes:\n"
    );
    println!("| client | the caller gets | executed |");
    println!("|---|---|---|");
    for kind in Kind::ALL {
        println!("| {kind} | {} |", executions(kind).await?);
    }
    Ok(())
}
