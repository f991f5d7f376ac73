//! Defines the contenders. Each of them checks a subject as a user would write it.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use governor::Quota;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use tidegate_memory::{Call, Charge, Clock, CoarseClock, Limiter, MemoryStore, Policy, Store};

use super::baseline::Baseline;
use super::subjects::{AMPLE, Setup};
use crate::Outcome;

/// A limiter that admits a burst, and refills one token per minute.
pub(crate) trait Limits<K>: Sync {
    /// Checks one subject after another. Returns the number of admitted checks.
    fn pass(&self, subjects: &[K]) -> usize;
}

struct Each<F>(F);

/// The loop inlines the checks, so that the measurement includes no dynamic call per check.
impl<K, F: Fn(&K) -> bool + Sync> Limits<K> for Each<F> {
    fn pass(&self, subjects: &[K]) -> usize {
        subjects.iter().filter(|subject| (self.0)(subject)).count()
    }
}

type Built<K> = Outcome<Box<dyn Limits<K>>>;

pub(crate) struct Contender<K> {
    pub(crate) name: &'static str,
    pub(crate) keyed: bool,
    pub(crate) build: fn(Setup) -> Built<K>,
}

pub(crate) const TIDEGATE: &str = "**tidegate**, token bucket";
pub(crate) const THROUGH_LIMITER: &str = "tidegate, token bucket, `Limiter`";
pub(crate) const THROUGH_OBJECT: &str = "tidegate, token bucket, `Limiter<Arc<dyn Store>>`";
pub(crate) const COUNTER: &str = "tidegate, sliding counter";
pub(crate) const LOG: &str = "tidegate, sliding log of 100";
pub(crate) const GOVERNOR: &str = "governor";
pub(crate) const TWO: &str = "tidegate, token bucket and fixed window in one call";
/// The baseline, which is not a complete limiter.
const BASELINE: &str = "(a bare table of numbers)";
pub(crate) const GOVERNOR_FOLDHASH: &str = "governor, foldhash";

pub(crate) fn contenders() -> Vec<Contender<String>> {
    let keyed = |name, build| Contender { name, keyed: true, build };
    vec![
        keyed(GOVERNOR, governor),
        keyed(GOVERNOR_FOLDHASH, governor_foldhash),
        keyed(TIDEGATE, |setup| tidegate(&bucket(setup), setup)),
        keyed("tidegate, token bucket, coarse clock", coarse),
        keyed(THROUGH_LIMITER, |setup| limiter(store(setup), [bucket(setup).parse()?])),
        keyed(THROUGH_OBJECT, |setup| {
            let store: Arc<dyn Store> = Arc::new(store(setup));
            limiter(store, [bucket(setup).parse()?])
        }),
        keyed("tidegate, token bucket by intervals", |setup| {
            tidegate(&format!("{} by-interval", bucket(setup)), setup)
        }),
        keyed("tidegate, fixed window", |setup| {
            tidegate(&format!("fixed-window {}/1d", setup.burst), setup)
        }),
        keyed(COUNTER, |setup| tidegate(&format!("sliding-counter {}/1m", setup.burst), setup)),
        keyed(LOG, |setup| {
            let ample = setup.burst == AMPLE;
            let policy = if ample { "sliding-log 100/20us" } else { "sliding-log 1/1m" };
            tidegate(policy, setup)
        }),
        keyed(TWO, |setup| {
            let window = format!("day: fixed-window {}/1d", setup.burst).parse()?;
            limiter(store(setup), [bucket(setup).parse()?, window])
        }),
        keyed(BASELINE, |setup| {
            let baseline = Baseline::new(setup);
            Ok(Box::new(Each(move |subject: &String| {
                baseline.pass(subject.as_bytes()).unwrap_or_default()
            })))
        }),
        keyed("axum_gcra", axum_gcra),
        keyed("trypema", trypema),
        keyed("throttlecrab", throttlecrab),
        keyed("limitador", limitador),
        Contender { name: "ratelimit", keyed: false, build: ratelimit },
        Contender { name: "leaky-bucket", keyed: false, build: leaky_bucket },
    ]
}

/// Returns the contenders whose subjects can be numbers. The subjects of Tidegate are always bytes.
pub(crate) fn number_contenders() -> Vec<Contender<u64>> {
    let keyed = |name, build| Contender { name, keyed: true, build };
    vec![
        keyed(GOVERNOR, governor),
        keyed(GOVERNOR_FOLDHASH, governor_foldhash),
        keyed(TIDEGATE, |setup| {
            let (policy, store): (Policy, _) = (bucket(setup).parse()?, store(setup));
            Ok(Box::new(Each(move |subject: &u64| pass(&store, &policy, &subject.to_le_bytes()))))
        }),
        keyed("axum_gcra", axum_gcra),
    ]
}

fn bucket(setup: Setup) -> String {
    format!("token-bucket {}/1m burst {}", setup.per_minute, setup.burst)
}

fn store(setup: Setup) -> MemoryStore {
    let builder = MemoryStore::builder();
    match setup.max {
        Some(max) => builder.max_keys(max).build(),
        None => builder.build(),
    }
}

#[inline]
fn pass<C: Clock>(store: &MemoryStore<C>, policy: &Policy, subject: &[u8]) -> bool {
    let charge = [Charge::new(policy, subject)];
    store.decide_now(&Call::acquire(&charge)).is_ok_and(|decision| decision.is_allowed())
}

fn tidegate(policy: &str, setup: Setup) -> Built<String> {
    let (policy, store): (Policy, _) = (policy.parse()?, store(setup));
    Ok(Box::new(Each(move |subject: &String| pass(&store, &policy, subject.as_bytes()))))
}

fn coarse(setup: Setup) -> Built<String> {
    let clock = CoarseClock::new(Duration::from_millis(1))?;
    let policy: Policy = bucket(setup).parse()?;
    let builder = MemoryStore::builder().clock(clock);
    let store = match setup.max {
        Some(max) => builder.max_keys(max).build(),
        None => builder.build(),
    };
    Ok(Box::new(Each(move |subject: &String| pass(&store, &policy, subject.as_bytes()))))
}

fn limiter<S: Store + 'static>(
    store: S,
    policies: impl IntoIterator<Item = Policy>,
) -> Built<String> {
    let limiter = Limiter::new(store, policies)?;
    Ok(Box::new(Each(move |subject: &String| {
        let answer = limiter.acquire(subject).into_ready();
        matches!(answer, Ok(Ok(decision)) if decision.is_allowed())
    })))
}

fn quota(setup: Setup) -> Quota {
    let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    Quota::per_minute(at_least_one(setup.per_minute)).allow_burst(at_least_one(setup.burst))
}

/// The traits that generic limiters require of a subject.
trait Subject: Hash + Eq + Ord + Clone + Send + Sync + 'static {}
impl Subject for String {}
impl Subject for u64 {}

fn governor<K: Subject>(setup: Setup) -> Built<K> {
    let quota = quota(setup);
    let limiter = governor::RateLimiter::<K, DashMapStateStore<K>, DefaultClock>::dashmap(quota);
    Ok(Box::new(Each(move |subject: &K| limiter.check_key(subject).is_ok())))
}

fn governor_foldhash<K: Subject>(setup: Setup) -> Built<K> {
    let hasher = foldhash::fast::RandomState::default();
    let limiter = governor::RateLimiter::dashmap_with_hasher(quota(setup), hasher);
    Ok(Box::new(Each(move |subject: &K| limiter.check_key(subject).is_ok())))
}

fn axum_gcra<K: Subject>(setup: Setup) -> Built<K> {
    let burst = u64::from(setup.burst).try_into()?;
    let quota = axum_gcra::gcra::Quota::new(Duration::from_secs(60), burst);
    let limiter = axum_gcra::gcra::RateLimiter::<K, ahash::RandomState>::default();
    Ok(Box::new(Each(move |subject: &K| {
        limiter.req_sync(subject.clone(), quota, Instant::now()).is_ok()
    })))
}

#[expect(clippy::float_arithmetic, reason = "its rates are floating-point numbers")]
fn trypema(Setup { burst, .. }: Setup) -> Built<String> {
    use ::trypema::RateLimiterBuilder as _;
    let provider = ::trypema::local::LocalRateLimiterProvider::builder().build()?;
    // The windows of trypema have a rate and no burst. Here, the rate is `burst` per minute.
    let rate = ::trypema::RateLimit::per_second(f64::from(burst) / 60.0)?;
    Ok(Box::new(Each(move |subject: &String| {
        matches!(provider.absolute().inc(subject, &rate, 1), ::trypema::RateLimitDecision::Allowed)
    })))
}

/// Creates a limiter with throttlecrab's `PeriodicStore`, which removes expired states
/// periodically. With its `AdaptiveStore`, a million subjects would take minutes, because that
/// store scans all states every few thousand calls.
fn throttlecrab(Setup { burst, .. }: Setup) -> Built<String> {
    let limiter = Mutex::new(throttlecrab::RateLimiter::new(throttlecrab::PeriodicStore::new()));
    let burst = i64::from(burst);
    Ok(Box::new(Each(move |subject: &String| {
        let Ok(mut limiter) = limiter.lock() else { return false };
        let result = limiter.rate_limit(subject, burst, 1, 60, 1, SystemTime::now());
        result.is_ok_and(|(allowed, _)| allowed)
    })))
}

fn limitador(Setup { burst, .. }: Setup) -> Built<String> {
    use ::limitador::limit::{Context, Limit};
    let limiter = ::limitador::RateLimiter::new(10_000_000);
    let variable = "subject".try_into().map_err(|_| "a variable is a name")?;
    limiter.add_limit(Limit::new("bench", u64::from(burst), 60, vec![], vec![variable]));
    let namespace = "bench".into();
    Ok(Box::new(Each(move |subject: &String| {
        let context = Context::from(std::collections::HashMap::from([(
            "subject".to_owned(),
            subject.clone(),
        )]));
        let result = limiter.check_rate_limited_and_update(&namespace, &context, 1);
        result.is_ok_and(|result| !result.limited)
    })))
}

fn ratelimit(Setup { burst, .. }: Setup) -> Built<String> {
    let limiter = ::ratelimit::Ratelimiter::builder(1)
        .period(Duration::from_secs(60))
        .max_tokens(u64::from(burst))
        .initial_available(u64::from(burst))
        .build()?;
    Ok(Box::new(Each(move |_: &String| limiter.try_wait().is_ok())))
}

fn leaky_bucket(Setup { burst, .. }: Setup) -> Built<String> {
    let burst = usize::try_from(burst)?;
    let limiter = ::leaky_bucket::RateLimiter::builder()
        .initial(burst)
        .max(burst)
        .refill(1)
        .interval(Duration::from_secs(60))
        .build();
    Ok(Box::new(Each(move |_: &String| limiter.try_acquire(1))))
}
