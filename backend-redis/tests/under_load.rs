//! What happens to a server while many callers are at it, accounted for call by call.
//!
//! Each call charges one key that all callers share, under every algorithm, and one of its own. So
//! what the server knows in the end tells for each single call whether it was charged, and how often.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

#[path = "integration/common/mod.rs"]
mod common;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_redis::{Call, Charge, ErrorKind, Operation, Policy, RedisStore, Store};
use tidegate_testkit::servers::{Redis, Sentinel, eventually};
use tokio::task::JoinSet;

use common::policy;

/// How many callers there are.
const TASKS: usize = 32;

/// How many calls fit under the shared key.
const LIMIT: u64 = 12_000;

/// How long a caller rests between calls, so that something is left when all has happened.
const REST: Duration = Duration::from_millis(20);

/// How long the callers of a store wait for an answer, and for a connection.
const TIMEOUT: Duration = Duration::from_millis(400);

/// The policies of the key that all share: each admits `LIMIT` calls within a run.
fn shared() -> Vec<Policy> {
    let texts = [
        "w: fixed-window 12000/1d anchored",
        "l: sliding-log 12000/1d",
        "c: sliding-counter 12000/1d",
        "b: gcra 1/1d burst 12000",
        "i: token-bucket 1/1d burst 12000 by-interval",
    ];
    texts.map(policy).into()
}

/// The policy of the key that each call has for itself.
fn own() -> Policy {
    policy("own: fixed-window 9/1d anchored")
}

/// What the callers saw, by the numbers of their calls.
#[derive(Default)]
struct Seen {
    admitted: HashSet<u64>,
    denied: HashSet<u64>,
    failed: HashMap<u64, ErrorKind>,
    longest: Duration,
}

/// Callers that go on until the shared key admits no more.
struct Load {
    store: RedisStore,
    next: Arc<AtomicU64>,
    seen: Arc<Mutex<Seen>>,
    /// Whether all has happened: then callers rest no more, and go when nothing is left to admit.
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Load {
    fn start(store: RedisStore) -> Self {
        let mut load = Self {
            store,
            next: Arc::default(),
            seen: Arc::default(),
            over: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..TASKS {
            load.tasks.spawn(load.caller());
        }
        load
    }

    /// The calls that were admitted so far.
    fn admitted(&self) -> HashSet<u64> {
        self.seen.lock().unwrap().admitted.clone()
    }

    /// Waits until so many calls from this one on were answered.
    async fn answers(&self, calls: usize, from: u64) {
        let enough = || {
            let seen = self.seen.lock().unwrap();
            let answered = seen.admitted.iter().chain(&seen.denied).filter(|&&call| call >= from);
            std::future::ready((answered.count() >= calls).then_some(()))
        };
        eventually(Duration::from_secs(60), "calls to be answered", enough).await.unwrap();
    }

    /// The number of the next call.
    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Waits for all callers, which proves that the service came back to each of them.
    async fn finish(mut self) -> Seen {
        self.over.store(true, Ordering::Relaxed);
        let all = async { while self.tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// One caller.
    fn caller(&self) -> impl Future<Output = ()> + Send + 'static {
        let (store, next, seen, over) =
            (self.store.clone(), self.next.clone(), self.seen.clone(), self.over.clone());
        async move {
            loop {
                let is_over = over.load(Ordering::Relaxed);
                match call(&store, next.fetch_add(1, Ordering::Relaxed), &seen).await {
                    Ok(true) if is_over => {}
                    Ok(false) if is_over => return,
                    _ => tokio::time::sleep(REST).await,
                }
            }
        }
    }
}

/// Makes the call of this number, and tells whether it was admitted, if it was answered.
async fn call(store: &RedisStore, number: u64, seen: &Mutex<Seen>) -> Result<bool, ErrorKind> {
    let (shared, own, name) = (shared(), own(), number.to_string());
    let mut charges = vec![Charge::new(&own, &name)];
    charges.extend(shared.iter().map(|policy| Charge::new(policy, "hot")));
    let start = Instant::now();
    let answer = store.decide(Call::acquire(&charges)).await;
    let mut seen = seen.lock().unwrap();
    seen.longest = seen.longest.max(start.elapsed());
    let answer = answer.map(|decision| decision.is_allowed()).map_err(|error| error.kind());
    match answer {
        Ok(true) => drop(seen.admitted.insert(number)),
        Ok(false) => drop(seen.denied.insert(number)),
        Err(kind) => drop(seen.failed.insert(number, kind)),
    }
    answer
}

/// The calls that the server knows of, each of which it charged once, and to all keys or to none.
async fn charged(server: &Redis, seen: &Seen) -> HashSet<u64> {
    let builder = RedisStore::builder().url(server.url());
    let store = builder.response_timeout(Duration::from_secs(30)).build().unwrap();
    let own = own();
    let known = seen.admitted.iter().chain(&seen.denied).chain(seen.failed.keys());
    let calls: Vec<(u64, String)> = known.map(|&call| (call, call.to_string())).collect();
    let charges: Vec<_> = calls.iter().map(|(_, n)| [Charge::new(&own, n).cost(0)]).collect();
    let peeks: Vec<_> = charges.iter().map(|it| Call::new(Operation::Peek, it)).collect();
    let mut charged = HashSet::new();
    for ((call, _), answer) in calls.iter().zip(store.decide_many(&peeks).await) {
        match own.limit() - answer.unwrap().verdicts()[0].remaining() {
            0 => {}
            1 => {
                charged.insert(*call);
            }
            times => panic!("call {call} was charged {times} times"),
        }
    }
    for policy in shared() {
        let charge = [Charge::new(&policy, "hot").cost(0)];
        let peek = store.decide(Call::new(Operation::Peek, &charge)).await.unwrap();
        let taken = policy.limit() - peek.verdicts()[0].remaining();
        assert_eq!(taken, charged.len() as u64, "{policy}");
    }
    charged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b42_a_server_asleep_in_mid_run_costs_timeouts_and_charges_each_call_once_at_most() {
    const SLEEP: Duration = Duration::from_secs(3);
    let redis = Redis::start().await.unwrap();
    let builder = RedisStore::builder().url(redis.url());
    let load =
        Load::start(builder.connect_timeout(TIMEOUT).response_timeout(TIMEOUT).build().unwrap());
    load.answers(500, 0).await;
    redis.command(&["DEBUG", "SLEEP", &SLEEP.as_secs().to_string()]).await.unwrap();
    load.answers(500, load.next()).await;
    let seen = load.finish().await;

    // A call may wait for a connection and then for its answer, and for a slow machine.
    assert!(seen.longest < 2 * TIMEOUT + Duration::from_secs(1), "{:?}", seen.longest);
    let kinds: HashSet<_> = seen.failed.values().copied().collect();
    assert!(kinds.contains(&ErrorKind::Timeout), "{kinds:?}");
    assert!(kinds.iter().all(|k| [ErrorKind::Timeout, ErrorKind::Unavailable].contains(k)));
    let charged = charged(&redis, &seen).await;
    assert_eq!(charged.len() as u64, LIMIT, "admitted until nothing was left");
    assert!(charged.is_superset(&seen.admitted), "what was admitted is charged");
    assert!(charged.is_disjoint(&seen.denied), "what was denied is not");
}

/// Between two writes to the primary, and so in all that was admitted before, every replica has what the
/// primary has.
async fn replicas_catch_up(group: &Sentinel) {
    let mut client = group.primary().await.unwrap().client().await.unwrap();
    client.call(&["INCR", "marker"]).await.unwrap();
    let replicas = client.call(&["WAIT", "2", "9000"]).await.unwrap();
    assert_eq!(replicas.text(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_promoted_in_mid_run_admits_again_only_what_it_had_not_received() {
    // What was the primary, and does not know it yet, has lost its replicas, and so admits nothing.
    let node = Redis::builder().config("min-replicas-to-write", "1");
    let group = Sentinel::builder().node(node).start().await.unwrap();
    let builder = RedisStore::builder().sentinel(group.sentinel_urls(), group.master_name());
    // A connection asks up to three Sentinels, and a dead primary may have to be found out first.
    let builder = builder.connect_timeout(Duration::from_secs(1)).response_timeout(TIMEOUT);
    let load = Load::start(builder.build().unwrap());

    load.answers(800, 0).await;
    let mut safe = load.admitted();
    replicas_catch_up(&group).await;
    let first = group.primary_port().await.unwrap();
    assert_ne!(group.failover().await.unwrap(), first);

    // Back in service, before the next blow. No call that begins now reaches the old primary.
    let begins = load.next();
    load.answers(800, begins).await;
    safe.extend(load.admitted().into_iter().filter(|&call| call >= begins));
    replicas_catch_up(&group).await;
    let second = group.kill_primary().await.unwrap();
    group.primary_after(second).await.unwrap();
    let seen = load.finish().await;

    let documented = [
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
        ErrorKind::ReadOnly,
        // What was the primary loads what the new one has.
        ErrorKind::Busy,
    ];
    assert!(seen.failed.values().all(|kind| documented.contains(kind)), "{:?}", seen.failed);
    let charged = charged(group.primary().await.unwrap(), &seen).await;
    assert_eq!(charged.len() as u64, LIMIT, "admitted until nothing was left");
    assert!(charged.is_disjoint(&seen.denied));
    let lost: HashSet<_> = seen.admitted.difference(&charged).copied().collect();
    assert!(lost.is_disjoint(&safe), "what every replica had received is not lost");
    assert!(seen.admitted.len() as u64 <= LIMIT + lost.len() as u64, "{} lost", lost.len());
}
