//! B46: what the cache takes, by its own account and by the allocator's.

use std::time::Duration;

use allocation_counter::measure;
use tidegate_core::layers::DenyCacheStore;
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, DenyCache, Error, ManualClock, Outcome, Policy, Store,
    StoreExt, Timestamp, Verdict,
};

use super::common::{now, policy};

/// Refuses all, for an hour, or for as many seconds as the cost says.
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
    assert!(now(store.decide(Call::acquire(&charge))).unwrap().is_denied());
}

fn random(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A subject of random bytes, mostly short, a few so long that they are not remembered.
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
fn b46_ten_million_random_subjects_stay_within_the_bound() {
    const MOST: usize = 1 << 20;
    let log = policy("sliding-log 0/1h");
    let clock = ManualClock::default();
    let allocated = measure(|| {
        let store = cached(DenyCache::new().max_bytes(MOST), &clock);
        let stats = store.stats();
        assert_eq!(stats.max_bytes(), MOST);
        let mut bytes = vec![0; 5_000];
        for n in 0..10_000_000 {
            refuse(&store, &log, subject(n, &mut bytes), 1);
            if n % 1_000_000 == 0 {
                assert!(stats.bytes() <= MOST, "{} after {n}", stats.bytes());
            }
        }
        assert!((1_500..3_000).contains(&stats.len()), "{stats:?}");
    });
    // The subject's buffer and the answers on their way are the test's own.
    let most = u64::try_from(MOST).unwrap() + 8_000;
    assert!(allocated.bytes_max <= most, "{} bytes at once", allocated.bytes_max);
    // All share a policy that counts with each of them.
    assert!(allocated.bytes_max > most / 3, "{} bytes at once", allocated.bytes_max);
    assert_eq!(allocated.bytes_current, 0, "left behind");
}

#[test]
fn policies_made_anew_for_each_call_count_as_well() {
    const MOST: usize = 256 << 10;
    let clock = ManualClock::default();
    let allocated = measure(|| {
        let store = cached(DenyCache::new().max_bytes(MOST), &clock);
        let name = "n".repeat(50);
        for n in 0..20_000_u64 {
            let policies = [0, 1, 2].map(|p| policy(&format!("{name}{p}: sliding-log 0/1h")));
            let subject = random(n).to_le_bytes();
            let charges = policies.each_ref().map(|policy| Charge::new(policy, &subject));
            assert!(now(store.decide(Call::acquire(&charges))).unwrap().is_denied());
        }
        assert!(store.stats().bytes() <= MOST);
    });
    assert!(allocated.bytes_max <= u64::try_from(MOST).unwrap() + 8_000, "{allocated:?}");
}

#[test]
fn an_answer_from_memory_allocates_nothing() {
    let clock = ManualClock::default();
    let store = cached(DenyCache::new(), &clock);
    let policies: Vec<Policy> =
        (0..4).map(|n| policy(&format!("p{n}: sliding-log 0/1h"))).collect();
    let subject = "a subject that is longer than anything that lies within a word or three";
    for count in 1..=4 {
        let charges: Vec<_> = policies[..count].iter().map(|p| Charge::new(p, subject)).collect();
        let ask = || now(store.decide(Call::acquire(&charges))).unwrap().is_denied();
        assert!(ask());
        let hits = store.stats().hits();
        let allocated = measure(|| assert!((0..100).all(|_| ask())));
        assert_eq!(store.stats().hits() - hits, 100);
        // Beyond two verdicts a decision keeps them on the heap.
        let expected = if count <= 2 { 0 } else { 100 };
        assert_eq!(allocated.count_total, expected, "{count} charges");
    }
}

#[test]
fn a_call_that_passes_allocates_no_more_than_the_store() {
    let store = tidegate_memory::MemoryStore::new().deny_cache(DenyCache::new());
    let bucket = policy("gcra 1000/1s burst 1000000");
    let charge = [Charge::new(&bucket, "s")];
    let ask = || now(store.decide(Call::acquire(&charge))).unwrap().is_allowed();
    assert!(ask());
    let allocated = measure(|| assert!((0..100).all(|_| ask())));
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn who_is_refused_again_and_again_is_not_pushed_out_by_who_is_refused_once() {
    let (log, clock) = (policy("sliding-log 0/1h"), ManualClock::default());
    let store = cached(DenyCache::new().max_bytes(DenyCache::<ManualClock>::MIN_BYTES), &clock);
    let stats = store.stats();
    let mut known = 0;
    for n in 0..20_000_u64 {
        refuse(&store, &log, &random(n).to_le_bytes(), 1);
        let before = stats.hits();
        // Over sooner than all the others.
        refuse(&store, &log, b"hot", 2);
        known += stats.hits() - before;
    }
    assert!(known >= 19_900, "{known} of 20,000");
}

#[test]
fn what_is_over_goes_before_what_is_not() {
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
    assert!(hits >= 590, "{hits} of 600 are still there, at {:?}", clock.now());
}
