//! Tests against defect B46: they measure the memory of the cache, as the cache counts it and as
//! the allocator counts it.

use std::time::Duration;

use allocation_counter::measure;
use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, DenyCache, Error, ManualClock, Outcome, Policy, Store,
    StoreExt, Timestamp, Verdict,
};

use super::common::{policy, ready};

/// A store that refuses every call. A refusal has a wait of an hour if the cost is 1, and a wait of
/// `cost` seconds otherwise.
#[derive(Debug)]
struct Refusing;

impl Store for Refusing {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let verdict = |charge: Charge<'_>| {
            let wait = Duration::from_secs(if charge.cost == 1 { 3600 } else { charge.cost });
            Verdict::new(Outcome::Denied, 0).with_retry_after(Some(wait)).with_reset_after(wait)
        };
        Answer::ready(Ok(Decision::new(call.charges.iter().map(verdict))))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(Timestamp::EPOCH))
    }
}

type Cached = DenyCacheStore<Refusing, ManualClock>;

fn cached(cache: DenyCache, clock: &ManualClock) -> Cached {
    Refusing.deny_cache(cache.clock(clock.clone()))
}

fn refuse(store: &impl Store, policy: &Policy, subject: &[u8], cost: u64) {
    let charge = [Charge::new(policy, subject).cost(cost)];
    assert!(ready(store.decide(Call::acquire(&charge))).unwrap().is_denied());
}

fn random(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Returns a subject of random bytes. Most subjects are short. A few subjects are so long that the
/// cache does not store their denials.
fn subject(n: u64, bytes: &mut [u8]) -> &[u8] {
    bytes[..8].copy_from_slice(&random(n).to_le_bytes());
    let len = match n % 1_024 {
        0 => 5_000,
        1..=8 => 2_000,
        _ => 8 + n % 40,
    };
    &bytes[..usize::try_from(len).unwrap()]
}

#[test]
fn b46_a_million_random_subjects_stay_within_the_bound() {
    const MAX: usize = 1 << 20;
    let log = policy("sliding-log 0/1h");
    let clock = ManualClock::default();
    let allocated = measure(|| {
        let store = cached(DenyCache::new().max_bytes(MAX), &clock);
        let stats = store.stats();
        assert_eq!(stats.max_bytes(), MAX);
        let mut bytes = vec![0; 5_000];
        for n in 0..1_000_000 {
            refuse(&store, &log, subject(n, &mut bytes), 1);
            if n % 100_000 == 0 {
                assert!(stats.bytes() <= MAX, "{} after {n}", stats.bytes());
            }
        }
        assert!((1_500..3_000).contains(&stats.len()), "{stats:?}");
    });
    // The test itself allocates up to 8,000 bytes, for its buffer of subjects and for answers.
    let max = u64::try_from(MAX).unwrap() + 8_000;
    assert!(allocated.bytes_max <= max, "{} bytes at once", allocated.bytes_max);
    // All entries share one policy, but the cache counts the size of the policy once per entry. So
    // the allocated memory is less than the counted memory.
    assert!(allocated.bytes_max > max / 3, "{} bytes at once", allocated.bytes_max);
    assert_eq!(allocated.bytes_current, 0, "all memory is released");
}

#[test]
fn policies_that_are_created_for_each_call_count_too() {
    const MAX: usize = 256 << 10;
    let clock = ManualClock::default();
    let allocated = measure(|| {
        let store = cached(DenyCache::new().max_bytes(MAX), &clock);
        let name = "n".repeat(50);
        for n in 0..20_000_u64 {
            let policies = [0, 1, 2].map(|p| policy(&format!("{name}{p}: sliding-log 0/1h")));
            let subject = random(n).to_le_bytes();
            let charges = policies.each_ref().map(|policy| Charge::new(policy, &subject));
            assert!(ready(store.decide(Call::acquire(&charges))).unwrap().is_denied());
        }
        assert!(store.stats().bytes() <= MAX);
    });
    assert!(allocated.bytes_max <= u64::try_from(MAX).unwrap() + 8_000, "{allocated:?}");
}

#[test]
fn an_answer_from_the_cache_allocates_nothing() {
    let clock = ManualClock::default();
    let store = cached(DenyCache::new(), &clock);
    let policies: Vec<Policy> =
        (0..4).map(|n| policy(&format!("p{n}: sliding-log 0/1h"))).collect();
    let subject = "a subject that is too long to be stored inline in three words";
    for count in 1..=4 {
        let charges: Vec<_> = policies[..count].iter().map(|p| Charge::new(p, subject)).collect();
        let ask = || ready(store.decide(Call::acquire(&charges))).unwrap().is_denied();
        assert!(ask());
        let hits = store.stats().hits();
        let allocated = measure(|| assert!((0..100).all(|_| ask())));
        assert_eq!(store.stats().hits() - hits, 100);
        // A decision with more than two verdicts stores its verdicts on the heap.
        let expected = if count <= 2 { 0 } else { 100 };
        assert_eq!(allocated.count_total, expected, "{count} charges");
    }
}

#[test]
fn an_admitted_call_allocates_no_more_than_the_store() {
    let store = tidegate_memory::MemoryStore::new().deny_cache(DenyCache::new());
    let bucket = policy("gcra 1000/1s burst 1000000");
    let charge = [Charge::new(&bucket, "s")];
    let ask = || ready(store.decide(Call::acquire(&charge))).unwrap().is_allowed();
    assert!(ask());
    let allocated = measure(|| assert!((0..100).all(|_| ask())));
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn a_subject_that_is_refused_often_is_not_evicted_by_subjects_that_are_refused_once() {
    let (log, clock) = (policy("sliding-log 0/1h"), ManualClock::default());
    let store = cached(DenyCache::new().max_bytes(DenyCache::<ManualClock>::MIN_BYTES), &clock);
    let stats = store.stats();
    let mut hits = 0;
    for n in 0..20_000_u64 {
        refuse(&store, &log, &random(n).to_le_bytes(), 1);
        let before = stats.hits();
        // The refusal of the subject `hot` ends sooner than all other refusals, but is used most
        // often.
        refuse(&store, &log, b"hot", 2);
        hits += stats.hits() - before;
    }
    assert!(hits >= 19_900, "{hits} of 20,000");
}

#[test]
fn ended_refusals_are_evicted_before_valid_ones() {
    let (log, clock) = (policy("sliding-log 0/1h"), ManualClock::default());
    let store = cached(DenyCache::new().max_bytes(1 << 20), &clock);
    for n in 0..2_000_u64 {
        refuse(&store, &log, &random(n).to_le_bytes(), 2);
    }
    clock.advance(Duration::from_secs(2));
    let live = 1_000..1_600_u64;
    for n in live.clone() {
        refuse(&store, &log, &random(n * 7_919).to_le_bytes(), 3_000);
    }
    let before = store.stats().hits();
    live.clone().for_each(|n| refuse(&store, &log, &random(n * 7_919).to_le_bytes(), 3_000));
    let hits = store.stats().hits() - before;
    assert!(hits >= 590, "{hits} of 600 refusals are still cached at {:?}", clock.now());
}
