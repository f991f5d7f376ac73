//! Tests faults of a server under load, with a record of every call.
//!
//! Each call charges one key per algorithm that all callers share, and one key of its own. So the
//! states on the server show the number of times that each call was charged.
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
use tidegate_test_servers::{Redis, Sentinel, eventually};
use tokio::task::JoinSet;

use common::policy;

const TASKS: usize = 32;

/// The number of calls that the shared keys admit.
const LIMIT: u64 = 12_000;

/// The pause of a caller between two calls, which is so long that the limit is not exhausted before
/// the fault is over.
const PAUSE: Duration = Duration::from_millis(20);

const TIMEOUT: Duration = Duration::from_millis(400);

/// Returns the policies of the shared keys. Each policy admits `LIMIT` calls within a run.
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

/// Returns the policy of the keys that belong to single calls.
fn own() -> Policy {
    policy("own: fixed-window 9/1d anchored")
}

/// The outcomes of the calls, by the numbers of the calls.
#[derive(Default)]
struct Outcomes {
    admitted: HashSet<u64>,
    denied: HashSet<u64>,
    failed: HashMap<u64, ErrorKind>,
    longest: Duration,
}

/// Callers that make calls until the shared keys admit no more.
struct Load {
    store: RedisStore,
    next: Arc<AtomicU64>,
    outcomes: Arc<Mutex<Outcomes>>,
    /// Whether the fault is over. As soon as it is over, callers do not pause, and a caller ends
    /// when a call is denied.
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Load {
    fn start(store: RedisStore) -> Self {
        let mut load = Self {
            store,
            next: Arc::default(),
            outcomes: Arc::default(),
            over: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..TASKS {
            load.tasks.spawn(load.caller());
        }
        load
    }

    fn admitted(&self) -> HashSet<u64> {
        self.outcomes.lock().unwrap().admitted.clone()
    }

    /// Waits until `calls` calls whose numbers are at least `from` have been answered.
    async fn wait_for_answers(&self, calls: usize, from: u64) {
        let enough = || {
            let outcomes = self.outcomes.lock().unwrap();
            let answered =
                outcomes.admitted.iter().chain(&outcomes.denied).filter(|&&call| call >= from);
            std::future::ready((answered.count() >= calls).then_some(()))
        };
        eventually(Duration::from_secs(60), "calls to be answered", enough).await.unwrap();
    }

    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Waits for all callers to end, which proves that each caller was served again after the
    /// fault.
    async fn finish(mut self) -> Outcomes {
        self.over.store(true, Ordering::Relaxed);
        let all = async { while self.tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
        std::mem::take(&mut *self.outcomes.lock().unwrap())
    }

    fn caller(&self) -> impl Future<Output = ()> + Send + 'static {
        let (store, next, outcomes, over) =
            (self.store.clone(), self.next.clone(), self.outcomes.clone(), self.over.clone());
        async move {
            loop {
                let is_over = over.load(Ordering::Relaxed);
                match call(&store, next.fetch_add(1, Ordering::Relaxed), &outcomes).await {
                    Ok(true) if is_over => {}
                    Ok(false) if is_over => return,
                    _ => tokio::time::sleep(PAUSE).await,
                }
            }
        }
    }
}

/// Makes the call with the number `number`, and returns whether it was admitted.
async fn call(
    store: &RedisStore,
    number: u64,
    outcomes: &Mutex<Outcomes>,
) -> Result<bool, ErrorKind> {
    let (shared, own, name) = (shared(), own(), number.to_string());
    let mut charges = vec![Charge::new(&own, &name)];
    charges.extend(shared.iter().map(|policy| Charge::new(policy, "hot")));
    let start = Instant::now();
    let answer = store.decide(Call::acquire(&charges)).await;
    let mut outcomes = outcomes.lock().unwrap();
    outcomes.longest = outcomes.longest.max(start.elapsed());
    let answer = answer.map(|decision| decision.is_allowed()).map_err(|error| error.kind());
    match answer {
        Ok(true) => drop(outcomes.admitted.insert(number)),
        Ok(false) => drop(outcomes.denied.insert(number)),
        Err(kind) => drop(outcomes.failed.insert(number, kind)),
    }
    answer
}

/// Returns the calls that the server has charged. Panics if a call was charged more than once, or
/// if the shared keys were charged for other calls.
async fn charged(server: &Redis, outcomes: &Outcomes) -> HashSet<u64> {
    let builder = RedisStore::builder().url(server.url());
    let store = builder.response_timeout(Duration::from_secs(30)).build().unwrap();
    let own = own();
    let known = outcomes.admitted.iter().chain(&outcomes.denied).chain(outcomes.failed.keys());
    let calls: Vec<(u64, String)> = known.map(|&call| (call, call.to_string())).collect();
    let charges: Vec<_> = calls.iter().map(|(_, n)| [Charge::new(&own, n).cost(0)]).collect();
    let peeks: Vec<_> = charges.iter().map(|charges| Call::new(Operation::Peek, charges)).collect();
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
        let used = policy.limit() - peek.verdicts()[0].remaining();
        assert_eq!(used, charged.len() as u64, "{policy}");
    }
    charged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b42_a_server_that_sleeps_during_the_load_causes_timeouts_and_charges_each_call_at_most_once()
 {
    const SLEEP: Duration = Duration::from_secs(3);
    let redis = Redis::start().await.unwrap();
    let builder = RedisStore::builder().url(redis.url());
    let load =
        Load::start(builder.connect_timeout(TIMEOUT).response_timeout(TIMEOUT).build().unwrap());
    load.wait_for_answers(500, 0).await;
    redis.command(&["DEBUG", "SLEEP", &SLEEP.as_secs().to_string()]).await.unwrap();
    load.wait_for_answers(500, load.next()).await;
    let outcomes = load.finish().await;

    // A call possibly waits for a connection, and then for its reply. The test allows one more
    // second, for a slow machine.
    assert!(outcomes.longest < 2 * TIMEOUT + Duration::from_secs(1), "{:?}", outcomes.longest);
    let kinds: HashSet<_> = outcomes.failed.values().copied().collect();
    assert!(kinds.contains(&ErrorKind::Timeout), "{kinds:?}");
    assert!(kinds.iter().all(|k| [ErrorKind::Timeout, ErrorKind::Unavailable].contains(k)));
    let charged = charged(&redis, &outcomes).await;
    assert_eq!(charged.len() as u64, LIMIT, "the limit is used up exactly");
    assert!(charged.is_superset(&outcomes.admitted), "every admitted call is charged");
    assert!(charged.is_disjoint(&outcomes.denied), "no denied call is charged");
}

/// Waits until every replica has received all writes so far, and thereby all calls that have been
/// admitted.
async fn replicas_catch_up(group: &Sentinel) {
    let mut client = group.primary().await.unwrap().client().await.unwrap();
    client.call(&["INCR", "marker"]).await.unwrap();
    let replicas = client.call(&["WAIT", "2", "9000"]).await.unwrap();
    assert_eq!(replicas.text(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_promoted_during_the_load_admits_again_only_what_it_had_not_received() {
    // An old primary that does not know about the failover has lost its replicas. Because of
    // `min-replicas-to-write`, it rejects writes, so it admits nothing.
    let node = Redis::builder().config("min-replicas-to-write", "1");
    let group = Sentinel::builder().node(node).start().await.unwrap();
    let builder = RedisStore::builder().sentinel(group.sentinel_urls(), group.master_name());
    // The connect timeout is long enough for the worst case: an attempt to connect finds a dead
    // primary, and then queries three Sentinels.
    let builder = builder.connect_timeout(Duration::from_secs(1)).response_timeout(TIMEOUT);
    let load = Load::start(builder.build().unwrap());

    load.wait_for_answers(800, 0).await;
    let mut safe = load.admitted();
    replicas_catch_up(&group).await;
    let first = group.primary_port().await.unwrap();
    assert_ne!(group.failover().await.unwrap(), first);

    // Before the next fault, the test lets the new primary serve the load. No call that begins from
    // now on reaches the old primary.
    let begins = load.next();
    load.wait_for_answers(800, begins).await;
    safe.extend(load.admitted().into_iter().filter(|&call| call >= begins));
    replicas_catch_up(&group).await;
    let second = group.kill_primary().await.unwrap();
    group.primary_after(second).await.unwrap();
    let outcomes = load.finish().await;

    let documented = [
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
        ErrorKind::ReadOnly,
        // The old primary replies LOADING while it loads the data of the new primary.
        ErrorKind::Busy,
    ];
    assert!(
        outcomes.failed.values().all(|kind| documented.contains(kind)),
        "{:?}",
        outcomes.failed
    );
    let charged = charged(group.primary().await.unwrap(), &outcomes).await;
    assert_eq!(charged.len() as u64, LIMIT, "the limit is used up exactly");
    assert!(charged.is_disjoint(&outcomes.denied));
    let lost: HashSet<_> = outcomes.admitted.difference(&charged).copied().collect();
    assert!(lost.is_disjoint(&safe), "a call that every replica had received is not lost");
    assert!(outcomes.admitted.len() as u64 <= LIMIT + lost.len() as u64, "{} lost", lost.len());
}
