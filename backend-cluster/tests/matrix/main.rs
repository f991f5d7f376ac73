//! A matrix of tests: every composition of layers is tested on every store under every fault. Other
//! tests cover each layer, store and fault separately.
//!
//! | dimension | values |
//! |---|---|
//! | layers | no layer; a timeout; timeout and breaker; timeout, breaker and deny cache; all layers of the README |
//! | stores | one Redis, the primary of a Sentinel group, a node of a cluster |
//! | faults | the variants of [`Fault`] |
//!
//! A row of the matrix is one combination of layers, store and fault. In each row, callers make
//! calls before, during and after the fault: single calls, batches, and, on a cluster, calls across
//! slots. Most calls have a subject that no other call uses. After the fault, the test reads the
//! states of all subjects directly from the servers. So the [`Ledger`](ledger::Ledger) knows for
//! each call whether it was charged. The test checks these properties:
//!
//! * No call is charged twice.
//! * Every admitted call is charged.
//! * If the error of a call means that the call is definitely not charged, the call is not charged.
//! * For the subject that all callers share, the store does not admit more than the limit.
//! * The store decides again soon after the fault, and does not make hundreds of connections during
//!   the fault.
//!
//! The test runs all rows. If there are violations, it then fails with a list of all violations.
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

/// The maximum time for which a call waits for an answer, which is the default response timeout of
/// the stores.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum time between the end of a fault and the first decision of the store, in addition to
/// the response timeout.
const RECOVERY: Duration = Duration::from_millis(200);

/// The additional delay that is allowed because the machine is possibly busy.
const MARGIN: Duration = Duration::from_millis(800);

/// The maximum number of connections that a store makes during a fault and the recovery. The store
/// pauses between attempts to connect, regardless of the number of callers, so it needs only a few
/// connections.
const MAX_CONNECTIONS: u64 = 60;

/// The time for which the callers make calls before the fault, and again after the store has
/// recovered.
const CALM: Duration = Duration::from_millis(100);

/// The maximum number of attempts for a row of the matrix in which the store recovers too late.
/// Such a row is repeated, because a late recovery can also mean that the machine stalled for a
/// second. A violation that the ledger reports fails the test, even if a later attempt succeeds.
const ATTEMPTS: usize = 3;

/// Runs one row of the matrix: one combination of layers, store and fault. Returns the violations,
/// and the time until the store decided again. The time is `None` if the store did not decide again
/// in time.
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
        sleep(CALM).await;
    }
    let before = place.connections();
    let end = fault.run(place, &load).await;
    let bound = RESPONSE_TIMEOUT + RECOVERY + layers.delay() + MARGIN;
    let took = load.until_decided(end, bound).await;
    sleep(CALM).await;
    load.stop().await;
    let connections = place.connections() - before;
    if connections > MAX_CONNECTIONS {
        findings.push(format!("{connections} connections were made"));
    }
    findings.extend(fault.violations(&ledger, end));
    fault.clear(place).await;
    findings.extend(ledger.check(&place.observers(&prefix)).await);
    (findings, took)
}

/// Tests all compositions of layers under all faults, on one kind of store. Each composition has
/// its own servers, and the faults follow one another on these servers.
async fn all_rows(backend: Backend) {
    let mut lanes = JoinSet::new();
    for layers in Layers::ALL {
        lanes.spawn(async move {
            let place = Place::start(backend).await;
            let mut failed = vec![];
            for fault in Fault::all_for(backend) {
                let name = format!("{backend:?}, {layers:?}, {fault:?}");
                let mut recovery = None;
                for attempt in 1..=ATTEMPTS {
                    let (findings, took) = row(&place, layers, fault, attempt).await;
                    failed.extend(findings.into_iter().map(|finding| format!("{name}: {finding}")));
                    recovery = took;
                    if recovery.is_some() {
                        break;
                    }
                }
                match recovery {
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
