//! Every composition of layers, on every store, under every fault: the compositions that applications use,
//! and not just those of which one part is tried by itself.
//!
//! | dimension | |
//! |---|---|
//! | layers | none, a timeout, a breaker around it, a deny cache around that, the whole store of the README |
//! | stores | one Redis, the primary of a Sentinel group, a node of a cluster |
//! | faults | see [`Fault`] |
//!
//! In each row callers do not stop calling while the fault comes and goes: single calls, batches, and, on a
//! cluster, calls across slots. Each call is on a subject of its own, which is looked up afterwards,
//! past the fault, so that it is known of each single call what became of it
//! ([`Ledger`](ledger::Ledger)):
//!
//! * nothing is charged twice;
//! * what was answered is charged: nothing was lost;
//! * what failed with an error that says that it was surely not charged was not;
//! * of a subject that all callers share, no more passed than the limit;
//! * decisions come again soon after the fault, and connections are not made by the hundred meanwhile.
//!
//! All rows are run; the test then fails with a list of those in which something did not hold.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod fault;
mod layers;
mod ledger;
mod load;
mod place;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use fault::Fault;
use layers::Layers;
use ledger::Ledger;
use load::Load;
use place::{Backend, Place};

/// How long a call waits for an answer: the stores' default.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// How much longer than that it may take until the store decides again.
const RECOVERY: Duration = Duration::from_millis(200);

/// What the machine that runs the tests may add, as it has other things to do.
const MARGIN: Duration = Duration::from_millis(800);

/// Attempts to connect are spaced out, whatever the callers do: more than this in a row is a storm.
const MAX_CONNECTIONS: u64 = 60;

/// How long the callers go on before and after.
const WELL: Duration = Duration::from_millis(100);

/// How often a row is tried that is late: a machine that does something else for a second looks the same
/// once. What is wrong with an account counts each time.
const ATTEMPTS: usize = 3;

/// One row of the matrix. Returns what did not hold, and how long it took until the store decided again, if
/// that was soon.
async fn row(
    place: &Place,
    layers: Layers,
    fault: Fault,
    attempt: usize,
) -> (Vec<String>, Option<Duration>) {
    let prefix = format!("{layers:?}-{fault:?}-{attempt}");
    let store = layers.around(place.store(&prefix));
    let ledger = Arc::new(Ledger::new(fault, &place.tenant, place.other_tenant.as_deref()));
    let mut findings = vec![];

    let load = Load::start(store, Arc::clone(&ledger));
    if fault != Fault::CallersGiveUp {
        load.until_decided(Instant::now(), Duration::from_secs(10)).await;
        sleep(WELL).await;
    }
    let before = place.connections();
    let well = fault.come_and_go(place, &load).await;
    let bound = RESPONSE_TIMEOUT + RECOVERY + layers.delay() + MARGIN;
    let took = load.until_decided(well, bound).await;
    sleep(WELL).await;
    load.stop().await;
    let connections = place.connections() - before;
    if connections > MAX_CONNECTIONS {
        findings.push(format!("{connections} connections were made"));
    }
    findings.extend(fault.complaints(&ledger, well));
    fault.clear(place).await;
    findings.extend(ledger.look_up(&place.observers(&prefix)).await);
    (findings, took)
}

/// All rows of a store: those of one composition of layers after each other on servers of their own.
async fn all_rows(backend: Backend) {
    let mut lanes = JoinSet::new();
    for layers in Layers::ALL {
        lanes.spawn(async move {
            let place = Place::start(backend).await;
            let mut failed = vec![];
            for fault in Fault::all_of(backend) {
                let name = format!("{backend:?}, {layers:?}, {fault:?}");
                let mut soon = None;
                for attempt in 1..=ATTEMPTS {
                    let (findings, took) = row(&place, layers, fault, attempt).await;
                    failed.extend(findings.into_iter().map(|it| format!("{name}: {it}")));
                    soon = took;
                    if soon.is_some() {
                        break;
                    }
                }
                match soon {
                    Some(took) => println!("{name}: decides again after {took:?}"),
                    None => failed.push(format!("{name}: no decision within the bound")),
                }
            }
            failed
        });
    }
    let failed = lanes.join_all().await.concat();
    assert!(failed.is_empty(), "{} findings:\n{}", failed.len(), failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_composition_on_one_redis() {
    all_rows(Backend::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_composition_on_a_sentinel_group() {
    all_rows(Backend::Sentinel).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_composition_on_a_cluster() {
    all_rows(Backend::Cluster).await;
}
