//! Tests that two processes with the same seed have the same ledger, although the processes have
//! different addresses and different hashes of the standard library.
//!
//! Two runs in one process would prove little: even without a seed, two new threads of one process
//! can have equal hashes.

use std::process::Command;
use std::sync::Arc;
use std::{env, fs};

use tidegate_core::{DenyCache, Lease, Limiter, Share, StoreExt};
use tidegate_simulation::{Ledger, Link, Load, SentCall, Simulation};
use tokio::task::JoinSet;

use super::{micros, millis, policy, server};

/// The environment variable with the path of the file to which the second process writes its
/// ledger.
const FILE: &str = "TIDEGATE_LEDGER_FILE";

/// Runs a simulation whose ledger depends on hashes and random numbers. The layers have room for
/// few subjects, so that hashes determine which subjects they keep. The waiting callers make random
/// pauses.
fn run() -> Ledger {
    let link = Link::new().delay(micros(50)..=millis(2)).lost(Share::new(1, 50).unwrap());
    Simulation::new(11).nodes(4).link(link.timeout(millis(100))).clock_error(500).run(
        server,
        |host| {
            let lease = Lease::new().hot_after(3).span(millis(100)).max_leases(8);
            let lease = lease.max_share(Share::new(1, 4).unwrap());
            let leased = host.link().coalesced().leased(lease.clock(host.clock()));
            let cache = DenyCache::new().max_bytes(2_048).clock(host.clock());
            Arc::new(leased.deny_cache(cache))
        },
        async |world| {
            let windows = policy("p: fixed-window 60/200ms");
            let load = Load::new(&windows).subjects(60).per_second(20_000).lasting(millis(300));
            let load = world.start(load);
            let mut waiting = JoinSet::new();
            for node in world.nodes() {
                let store = Arc::clone(node.store());
                let limiter = Limiter::new(store, [policy("w: fixed-window 2/40ms")]).unwrap();
                waiting.spawn(async move {
                    let _ = limiter.subject("w").acquire_within(millis(300)).await;
                    let _ = limiter.subject("w").acquire_within(millis(300)).await;
                });
            }
            load.await;
            waiting.join_all().await;
        },
    )
}

#[test]
fn another_process_gets_the_same_ledger() {
    let ledger = run();
    let here = ledger.to_string();
    if let Some(file) = env::var_os(FILE) {
        fs::write(file, here).unwrap();
        return;
    }
    assert!(ledger.admitted_at_once() > 100, "{}", ledger.admitted_at_once());
    let is_waiting = |call: &&SentCall| ledger.subject(call.subject) == b"w";
    assert!(ledger.calls().iter().filter(is_waiting).count() > 8, "callers are refused and wait");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger");
    let name = concat!(module_path!(), "::another_process_gets_the_same_ledger");
    let (_, name) = name.split_once("::").unwrap();
    let mut other = Command::new(env::current_exe().unwrap());
    let output = other.args([name, "--exact"]).env(FILE, &file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let there = fs::read_to_string(file).expect("the other process has run the test");
    let mut lines = here.lines().zip(there.lines());
    assert_eq!(lines.find(|(here, there)| here != there), None, "the first line that differs");
    assert_eq!(here.lines().count(), there.lines().count());
}
