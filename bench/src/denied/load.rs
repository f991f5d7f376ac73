//! The requests of a scenario.

use std::sync::Arc;

use tidegate_redis::core::layers::DenyCacheStats;
use tidegate_redis::{
    Call, Charge, Clock, DenyCache, ManualClock, Policy, RedisStore, Store, StoreExt, SystemClock,
    Timestamp,
};

use super::Options;
use super::scenario::{FEW, Scenario};
use crate::Outcome;
use crate::harness::{self, Server, TIMEOUT, measure};

/// One measurement. `refused` and `asked` are in thousandths of the requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// The CPU time of the server for each request, in nanoseconds.
    pub(crate) cpu: u64,
    pub(crate) refused: u64,
    /// The requests that the store decided.
    pub(crate) asked: u64,
}

/// The requests of a scenario, and the store that decides them.
struct Load {
    store: Box<dyn Store>,
    clock: ManualClock,
    start: u64,
    scenario: Scenario,
    policy: Policy,
    calls: usize,
}

/// Measures a scenario once. Each round has its own keys.
pub(crate) async fn sample(
    server: &Server,
    scenario: Scenario,
    options: &Options,
    round: usize,
    is_cached: bool,
) -> Outcome<Sample> {
    let Options { calls, callers, .. } = *options;
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
    let load = Arc::new(Load { store, clock, start, scenario, policy, calls });
    let (cost, allowed) = measure(server, &load, callers, 0..calls, 1).await?;
    let (calls, refused) = (u64::try_from(calls)?, u64::try_from(calls - allowed)?);
    let asked = stats.map_or(calls, |stats| stats.misses());
    Ok(Sample { cpu: cost.cpu, refused: refused * 1_000 / calls, asked: asked * 1_000 / calls })
}

/// Exhausts the limit of each blocked caller. In other scenarios, this function only makes the
/// server load the script.
async fn prepare(
    store: &RedisStore,
    scenario: Scenario,
    policy: &Policy,
    calls: usize,
) -> Outcome<()> {
    let few = if scenario == Scenario::Blocked { FEW } else { 1 };
    for number in 1..=few {
        let subject = match scenario {
            Scenario::Blocked => format!("user-{:06}", number - 1),
            _ => scenario.subject(number, calls) + " before",
        };
        let all = Charge::new(policy, &subject).cost(policy.limit());
        let whole = store.decide(Call::acquire(&[all])).await?;
        let more = store.decide(Call::acquire(&[all.cost(1)])).await?;
        if !whole.is_allowed() || more.is_allowed() {
            return Err(format!("{subject} is not at its limit: {more:?}").into());
        }
    }
    Ok(())
}

impl harness::Load for Load {
    async fn call(&self, number: usize) -> Outcome<usize> {
        let Self { store, clock, start, scenario, policy, calls } = self;
        let time = Timestamp::from_micros(start + scenario.time(number));
        if clock.now() < time {
            clock.set(time);
        }
        let subject = scenario.subject(number, *calls);
        let charge = [Charge::new(policy, &subject)];
        Ok(usize::from(store.decide(Call::acquire(&charge)).await?.is_allowed()))
    }
}
