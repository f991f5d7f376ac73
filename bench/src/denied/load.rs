//! One load on the server, and what it cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_redis::core::layers::DenyCacheStats;
use tidegate_redis::{
    Call, Charge, Clock, DenyCache, ManualClock, Policy, RedisStore, Store, StoreExt, SystemClock,
};
use tokio::task::JoinSet;

use super::scenario::{FEW, Scenario};
use crate::Outcome;
use crate::redis::server::{Server, TIMEOUT};

/// What was measured; `refused` and `asked` are in thousandths of the requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// The server's CPU time for each request, in nanoseconds.
    pub(crate) cpu: u64,
    pub(crate) refused: u64,
    /// Those that the store was asked.
    pub(crate) asked: u64,
}

/// A load, and the store that bears it.
struct Bearing {
    store: Box<dyn Store>,
    clock: ManualClock,
    /// When it starts, by that clock.
    start: u64,
    scenario: Scenario,
    policy: Policy,
    calls: usize,
    next: AtomicUsize,
}

/// Measures a scenario once, on a fresh part of the server.
pub(crate) async fn sample(
    server: &Server,
    scenario: Scenario,
    calls: usize,
    callers: usize,
    round: usize,
    is_cached: bool,
) -> Outcome<Sample> {
    let clock = ManualClock::new(SystemClock::new().now());
    let store = RedisStore::builder()
        .url(server.redis.url())
        .prefix(format!("{}{round}", if is_cached { "c" } else { "p" }))
        .clock(clock.clone())
        .response_timeout(TIMEOUT)
        .build()?;
    let policy = scenario.policy()?;
    prepare(&store, scenario, &policy, calls).await?;
    let start = clock.now().as_micros();
    let (store, stats): (Box<dyn Store>, Option<DenyCacheStats>) = if is_cached {
        let store = store.deny_cache(DenyCache::new().clock(clock.clone()));
        let stats = store.stats();
        (Box::new(store), Some(stats))
    } else {
        (Box::new(store), None)
    };
    let next = AtomicUsize::new(0);
    let bearing = Arc::new(Bearing { store, clock, start, scenario, policy, calls, next });

    let before = server.redis.cpu_time().await?;
    let refused = drive(&bearing, callers).await?;
    let cpu = server.redis.cpu_time().await?.saturating_sub(before + server.reading);
    let calls = u64::try_from(calls)?;
    let asked = stats.map_or(calls, |stats| stats.misses());
    Ok(Sample {
        cpu: nanos(cpu)? / calls,
        refused: refused * 1_000 / calls,
        asked: asked * 1_000 / calls,
    })
}

fn nanos(duration: Duration) -> Outcome<u64> {
    Ok(u64::try_from(duration.as_nanos())?)
}

/// Loads the script, and blocks the callers of the scenario.
async fn prepare(
    store: &RedisStore,
    scenario: Scenario,
    policy: &Policy,
    calls: usize,
) -> Outcome<()> {
    let few = if scenario == Scenario::Blocked { FEW } else { 1 };
    for number in 1..=few {
        let who = match scenario {
            Scenario::Blocked => format!("user-{:06}", number - 1),
            _ => scenario.subject(number, calls) + " before",
        };
        let all = Charge::new(policy, &who).cost(policy.limit());
        let taken = store.decide(Call::acquire(&[all])).await?;
        let more = store.decide(Call::acquire(&[all.cost(1)])).await?;
        if !taken.is_allowed() || more.is_allowed() {
            return Err(format!("{who} is not as it should be: {more:?}").into());
        }
    }
    Ok(())
}

/// Makes all requests, and says how many were refused.
async fn drive(bearing: &Arc<Bearing>, callers: usize) -> Outcome<u64> {
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let bearing = Arc::clone(bearing);
        tasks.spawn(async move {
            let mut refused = 0;
            loop {
                let number = bearing.next.fetch_add(1, Ordering::Relaxed);
                if number >= bearing.calls {
                    return Outcome::Ok(refused);
                }
                refused += u64::from(request(&bearing, number).await?);
            }
        });
    }
    let mut refused = 0;
    while let Some(task) = tasks.join_next().await {
        refused += task??;
    }
    Ok(refused)
}

/// Makes one request, and says whether it was refused.
async fn request(bearing: &Bearing, number: usize) -> Outcome<bool> {
    let Bearing { store, clock, start, scenario, policy, calls, .. } = bearing;
    let time = tidegate_redis::Timestamp::from_micros(start + scenario.time(number));
    if clock.now() < time {
        clock.set(time);
    }
    let subject = scenario.subject(number, *calls);
    let charge = [Charge::new(policy, &subject)];
    Ok(store.decide(Call::acquire(&charge)).await?.is_denied())
}
