//! Who is measured: each a check of one subject, as its users would write it.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use governor::Quota;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use tidegate_memory::{Call, Charge, Limiter, MemoryStore, Policy, Store};

use super::subjects::AMPLE;
use crate::Outcome;

/// A limiter that lets a burst pass at once, and one more each minute.
pub(crate) trait Limits: Sync {
    /// Checks one subject after another; says how many passed.
    fn pass(&self, subjects: &[String]) -> usize;

    /// The longest time that one check took, by `now`.
    fn longest(&self, subjects: &[String], now: fn() -> Duration) -> Duration;
}

struct Each<F>(F);

impl<F: Fn(&String) -> bool + Sync> Limits for Each<F> {
    fn pass(&self, subjects: &[String]) -> usize {
        subjects.iter().filter(|subject| (self.0)(subject)).count()
    }

    fn longest(&self, subjects: &[String], now: fn() -> Duration) -> Duration {
        let mut longest = Duration::ZERO;
        for subject in subjects {
            let started = now();
            (self.0)(subject);
            longest = longest.max(now().saturating_sub(started));
        }
        longest
    }
}

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// Whether it tells subjects apart.
    pub(crate) keyed: bool,
    /// A fresh one for each measurement.
    pub(crate) build: fn(burst: u32) -> Outcome<Box<dyn Limits>>,
}

pub(crate) const TIDEGATE: &str = "**tidegate**, token bucket";
pub(crate) const GOVERNOR: &str = "governor";

pub(crate) fn contenders() -> Vec<Contender> {
    let keyed = |name, build| Contender { name, keyed: true, build };
    vec![
        keyed(GOVERNOR, governor),
        keyed("governor, foldhash", governor_foldhash),
        keyed(TIDEGATE, |burst| tidegate(&bucket(burst))),
        keyed("tidegate, token bucket, `Limiter`", |burst| {
            limiter(MemoryStore::new(), &bucket(burst))
        }),
        keyed("tidegate, token bucket, `Limiter<Arc<dyn Store>>`", |burst| {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            limiter(store, &bucket(burst))
        }),
        keyed("tidegate, fixed window", |burst| tidegate(&format!("fixed-window {burst}/1d"))),
        keyed("tidegate, sliding counter", |burst| {
            tidegate(&format!("sliding-counter {burst}/1m"))
        }),
        keyed("tidegate, sliding log of 100", |burst| {
            tidegate(if burst == AMPLE { "sliding-log 100/20us" } else { "sliding-log 1/1m" })
        }),
        keyed("axum_gcra", axum_gcra),
        keyed("trypema", trypema),
        keyed("throttlecrab", throttlecrab),
        keyed("limitador", limitador),
        Contender { name: "ratelimit", keyed: false, build: ratelimit },
        Contender { name: "leaky-bucket", keyed: false, build: leaky_bucket },
    ]
}

fn bucket(burst: u32) -> String {
    format!("token-bucket 1/1m burst {burst}")
}

fn tidegate(policy: &str) -> Outcome<Box<dyn Limits>> {
    let (policy, store): (Policy, _) = (policy.parse()?, MemoryStore::new());
    Ok(Box::new(Each(move |subject: &String| {
        let charge = [Charge::new(&policy, subject)];
        store.decide_now(&Call::acquire(&charge)).is_ok_and(|decision| decision.is_allowed())
    })))
}

fn limiter<S: Store + 'static>(store: S, policy: &str) -> Outcome<Box<dyn Limits>> {
    let limiter = Limiter::new(store, [policy.parse()?])?;
    Ok(Box::new(Each(move |subject: &String| {
        let answer = limiter.acquire(subject).into_ready();
        answer.is_ok_and(|decision| decision.is_ok_and(|decision| decision.is_allowed()))
    })))
}

fn quota(burst: u32) -> Quota {
    Quota::per_minute(NonZeroU32::MIN)
        .allow_burst(NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN))
}

fn governor(burst: u32) -> Outcome<Box<dyn Limits>> {
    let limiter = governor::RateLimiter::<String, DashMapStateStore<String>, DefaultClock>::dashmap(
        quota(burst),
    );
    Ok(Box::new(Each(move |subject: &String| limiter.check_key(subject).is_ok())))
}

fn governor_foldhash(burst: u32) -> Outcome<Box<dyn Limits>> {
    let hasher = foldhash::fast::RandomState::default();
    let limiter = governor::RateLimiter::dashmap_with_hasher(quota(burst), hasher);
    Ok(Box::new(Each(move |subject: &String| limiter.check_key(subject).is_ok())))
}

fn axum_gcra(burst: u32) -> Outcome<Box<dyn Limits>> {
    let burst = u64::from(burst).try_into()?;
    let quota = axum_gcra::gcra::Quota::new(Duration::from_secs(60), burst);
    let limiter = axum_gcra::gcra::RateLimiter::<String, ahash::RandomState>::default();
    Ok(Box::new(Each(move |subject: &String| {
        limiter.req_sync(subject.clone(), quota, Instant::now()).is_ok()
    })))
}

fn trypema(burst: u32) -> Outcome<Box<dyn Limits>> {
    use ::trypema::RateLimiterBuilder as _;
    let provider = ::trypema::local::LocalRateLimiterProvider::builder().build()?;
    // Its windows have a rate and no burst: `burst` in the window, of a minute.
    let rate = ::trypema::RateLimit::per_second(f64::from(burst) / 60.0)?;
    Ok(Box::new(Each(move |subject: &String| {
        matches!(provider.absolute().inc(subject, &rate, 1), ::trypema::RateLimitDecision::Allowed)
    })))
}

fn throttlecrab(burst: u32) -> Outcome<Box<dyn Limits>> {
    let limiter = Mutex::new(throttlecrab::RateLimiter::new(throttlecrab::AdaptiveStore::new()));
    let burst = i64::from(burst);
    Ok(Box::new(Each(move |subject: &String| {
        let Ok(mut limiter) = limiter.lock() else { return false };
        let result = limiter.rate_limit(subject, burst, 1, 60, 1, SystemTime::now());
        result.is_ok_and(|(allowed, _)| allowed)
    })))
}

fn limitador(burst: u32) -> Outcome<Box<dyn Limits>> {
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

fn ratelimit(burst: u32) -> Outcome<Box<dyn Limits>> {
    let limiter = ::ratelimit::Ratelimiter::builder(1)
        .period(Duration::from_secs(60))
        .max_tokens(u64::from(burst))
        .initial_available(u64::from(burst))
        .build()?;
    Ok(Box::new(Each(move |_: &String| limiter.try_wait().is_ok())))
}

fn leaky_bucket(burst: u32) -> Outcome<Box<dyn Limits>> {
    let burst = usize::try_from(burst)?;
    let limiter = ::leaky_bucket::RateLimiter::builder()
        .initial(burst)
        .max(burst)
        .refill(1)
        .interval(Duration::from_secs(60))
        .build();
    Ok(Box::new(Each(move |_: &String| limiter.try_acquire(1))))
}
