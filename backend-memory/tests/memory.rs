//! Tests of the memory store beyond the contract of every store: bounds, eviction and expiry.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::HashMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_memory::{
    Call, CallId, Charge, Clock, Decision, Error, ErrorKind, ManualClock, MemoryStore, Operation,
    Policy, Store, Timestamp, WhenFull,
};

/// This test compiles only if the crate exports the modules of the core, and types that only some
/// backends exported in the past.
#[test]
fn the_core_is_available_under_the_name_of_this_crate() {
    use tidegate_memory::{AlreadySettled, MAX_EXACT, MAX_SPAN, Settlement, Ticket, engine};
    fn is_debug<T: std::fmt::Debug>() {}
    is_debug::<(engine::Record, Ticket, Settlement, AlreadySettled)>();
    assert!(MAX_SPAN > Duration::from_micros(MAX_EXACT / 4));
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn store_and_clock(
    build: impl FnOnce(tidegate_memory::MemoryStoreBuilder) -> tidegate_memory::MemoryStoreBuilder,
) -> (MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
    (build(MemoryStore::builder()).clock(clock.clone()).build(), clock)
}

fn acquire<C: Clock>(
    store: &MemoryStore<C>,
    policy: &Policy,
    subject: &[u8],
) -> Result<Decision, Error> {
    store.decide_now(&Call::acquire(&[Charge::new(policy, subject)]))
}

#[test]
fn later_calls_remove_expired_states() {
    let (store, clock) = store_and_clock(|b| b);
    let short = policy("fixed-window 10/1s");
    for subject in 0..100_000_u32 {
        assert!(acquire(&store, &short, &subject.to_le_bytes()).unwrap().is_allowed());
    }
    assert_eq!(store.len(), 100_000);
    clock.advance(Duration::from_secs(2));
    // A sweep visits a few slots. After 100,000 calls, sweeps have visited all slots of the store.
    for subject in 0..100_000_u32 {
        assert!(
            acquire(&store, &short, &(subject % 100).to_le_bytes()).unwrap().is_allowed()
                || subject >= 1_000
        );
    }
    assert!(store.len() < 60_000, "{} states are still there", store.len());
    store.sweep();
    assert_eq!(store.len(), 100);
}

#[test]
fn calls_with_several_policies_remove_expired_states_of_all_shards() {
    let (store, clock) = store_and_clock(|b| b);
    let short = policy("fixed-window 10/1s");
    for subject in 0..10_000_u32 {
        assert!(acquire(&store, &short, &subject.to_le_bytes()).unwrap().is_allowed());
    }
    clock.advance(Duration::from_secs(2));
    let both = ["a: fixed-window 1000000/1h", "b: fixed-window 1000000/1h"].map(policy);
    let charges = both.each_ref().map(|policy| Charge::new(policy, b"s"));
    for _ in 0..50_000 {
        assert!(store.decide_now(&Call::acquire(&charges)).unwrap().is_allowed());
    }
    assert_eq!(store.len(), 2);
}

/// A sweep is due after 64 calls on a shard. It visits a group of 128 slots of the shard, and a
/// group of another shard. This store has a single shard.
#[test]
fn calls_with_several_policies_remove_states_only_when_a_sweep_is_due() {
    let (store, clock) = store_and_clock(|b| b.max_keys(4_096));
    let short = policy("fixed-window 10/1s");
    for subject in 0..3_000_u32 {
        assert!(acquire(&store, &short, &subject.to_le_bytes()).unwrap().is_allowed());
    }
    clock.advance(Duration::from_secs(2));
    let both = ["a: fixed-window 1000000/1h", "b: fixed-window 1000000/1h"].map(policy);
    let charges = both.each_ref().map(|policy| Charge::new(policy, b"s"));
    for _ in 0..32 {
        assert!(store.decide_now(&Call::acquire(&charges)).unwrap().is_allowed());
    }
    assert!(store.len() > 2_700, "{} states are left", store.len());
}

/// Regression test: the state of a subject with a fast limit was removed and inserted again at each
/// call. Such a call took twice as long as a call without the removal.
#[test]
fn a_state_is_kept_for_a_moment_after_it_has_recovered() {
    let (store, clock) = store_and_clock(|b| b);
    let (fast, other) =
        (policy("token-bucket 1000/1s burst 1"), policy("other: fixed-window 1000000/1h"));
    for subject in 0..10_000_u32 {
        assert!(acquire(&store, &fast, &subject.to_le_bytes()).unwrap().is_allowed());
    }
    // Makes 50,000 calls for another subject, so that sweeps visit all shards.
    let sweep_by_calls = || {
        for _ in 0..50_000 {
            assert!(acquire(&store, &other, b"s").unwrap().is_allowed());
        }
        store.len()
    };
    clock.advance(Duration::from_millis(50));
    assert_eq!(sweep_by_calls(), 10_001);
    clock.advance(Duration::from_millis(100));
    assert_eq!(sweep_by_calls(), 1);
}

/// A full shard removes recovered states immediately, although a sweep keeps them for some time.
#[test]
fn recovered_states_make_room_immediately() {
    let (store, clock) = store_and_clock(|b| b.max_keys(1_000).when_full(WhenFull::Refuse));
    let fast = policy("token-bucket 1000/1s burst 1");
    for round in 0..20_u32 {
        for subject in 0..500 {
            let subject = (round * 500 + subject).to_le_bytes();
            assert!(acquire(&store, &fast, &subject).unwrap().is_allowed());
        }
        clock.advance(Duration::from_millis(2));
    }
}

/// With 4,000 subjects in one shard, many pairs of subjects have the same tag (16 bits of the hash)
/// in the table. Each subject must still have its own state.
#[test]
fn no_two_subjects_share_a_state_in_a_shard_of_mixed_slots() {
    let policies = [
        "token-bucket 2/1h burst 2",
        "log: sliding-log 2/1h",
        "other: sliding-counter 2/1h",
        "strict: fixed-window 2/1h block 1h",
    ]
    .map(policy);
    let (store, _clock) = store_and_clock(|b| b.max_keys(4_000));
    for left in [Some(1), Some(0), None, None] {
        for subject in 0..4_000_u32 {
            let policy = &policies[subject as usize % policies.len()];
            let decision = acquire(&store, policy, &subject.to_le_bytes()).unwrap();
            assert_eq!(decision.is_allowed(), left.is_some(), "{subject} under {policy}");
            assert_eq!(decision.verdicts()[0].remaining(), left.unwrap_or(0), "{subject}");
        }
    }
    assert_eq!(store.len(), 4_000);
}

#[test]
fn b46_a_million_random_subjects_stay_within_the_bound() {
    let (store, clock) = store_and_clock(|b| b.max_keys(10_000).max_spill_bytes(100_000));
    let policies = [policy("gcra 1/1m burst 5"), policy("sliding-log 5/1m")];
    for n in 0..1_000_000_u64 {
        // Every seventh subject is long, so that it is stored outside the tables.
        let subject = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(if n % 7 == 0 {
            4
        } else {
            1
        });
        assert!(
            acquire(&store, &policies[usize::from(n % 3 == 0)], &subject).unwrap().is_allowed()
        );
        if n % 65_536 == 0 {
            clock.advance(Duration::from_secs(1));
            assert!(store.len() <= 10_000);
            assert!(store.bytes() <= store.max_bytes(), "{} bytes", store.bytes());
        }
    }
    assert!(store.bytes() <= store.max_bytes());
    assert!(store.max_bytes() < 1_500_000, "{}", store.max_bytes());
}

#[test]
fn a_limited_subject_stays_limited_while_expired_states_can_be_removed() {
    let (store, clock) = store_and_clock(|b| b.max_keys(100));
    let (long, short) =
        (policy("long: fixed-window 1/1h anchored"), policy("short: fixed-window 9/1s anchored"));
    for subject in 0..50_u8 {
        assert!(acquire(&store, &long, &[subject]).unwrap().is_allowed());
        assert!(acquire(&store, &short, &[subject]).unwrap().is_allowed());
    }
    clock.advance(Duration::from_secs(1));
    for newcomer in 0..50_u8 {
        assert!(acquire(&store, &short, &[newcomer, 1]).unwrap().is_allowed());
    }
    for subject in 0..50_u8 {
        assert!(acquire(&store, &long, &[subject]).unwrap().is_denied(), "{subject}");
    }
}

#[test]
fn when_no_state_has_expired_the_earliest_expiry_is_evicted() {
    let (store, clock) = store_and_clock(|b| b.max_keys(10));
    let window = policy("fixed-window 1/1m anchored");
    for subject in 0..10_u8 {
        assert!(acquire(&store, &window, &[subject]).unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
    }
    assert!(acquire(&store, &window, b"new").unwrap().is_allowed());
    assert_eq!(store.len(), 10);
    // Only the state of subject 0 was evicted, because it had the earliest expiry.
    for subject in 1..10_u8 {
        assert!(acquire(&store, &window, &[subject]).unwrap().is_denied(), "{subject}");
    }
    assert!(acquire(&store, &window, &[0]).unwrap().is_allowed());
}

/// New states expire soon, so a new state usually evicts another new state, and not the state of an
/// established subject.
#[test]
fn a_flood_of_new_subjects_evicts_few_established_ones() {
    let (store, _) = store_and_clock(|b| b.max_keys(8_192));
    let bucket = policy("token-bucket 1/1m burst 9");
    let regular = |n: u32| [b'r', n.to_le_bytes()[0], n.to_le_bytes()[1]];
    for n in 0..7_000 {
        let subject = regular(n);
        let charge = [Charge::new(&bucket, &subject).cost(5)];
        assert!(store.decide_now(&Call::acquire(&charge)).unwrap().is_allowed());
    }
    for n in 0..200_000_u32 {
        assert!(acquire(&store, &bucket, &n.to_le_bytes()).unwrap().is_allowed());
    }
    assert!((8_000..=8_192).contains(&store.len()), "{}", store.len());
    let mut left = 0;
    store.for_each(|_, subject, _| left += usize::from(subject[0] == b'r' && subject.len() == 3));
    // Each of the two shards evicts at most one state of an established subject: if it contains
    // only such states when it becomes full.
    assert!(left >= 6_998, "{left} of 7,000 are left");
}

#[test]
fn a_call_never_evicts_its_own_states() {
    let (store, _) = store_and_clock(|b| b.max_keys(2));
    let (soon, late) =
        (policy("soon: fixed-window 5/1s anchored"), policy("late: fixed-window 5/1h anchored"));
    assert!(acquire(&store, &soon, b"alice").unwrap().is_allowed());
    assert!(acquire(&store, &late, b"bob").unwrap().is_allowed());
    // The second charge needs a new state, but the store is full. The state of the first charge
    // expires first, but the call must not evict it.
    let both = [Charge::new(&soon, b"alice"), Charge::new(&late, b"alice")];
    let decision = store.decide_now(&Call::acquire(&both)).unwrap();
    let remaining = decision.verdicts().iter().map(|verdict| verdict.remaining());
    assert_eq!(remaining.collect::<Vec<_>>(), [3, 4]);
    assert_eq!(store.len(), 2);
}

/// A call with several policies can evict one state while it inserts another, and an eviction moves
/// other states within the table. Even then, the call must write exactly its own states.
#[test]
fn a_call_on_a_full_store_writes_each_of_its_states_and_no_other() {
    let (store, clock) = store_and_clock(|b| b.max_keys(8));
    let policies = ["a: token-bucket 1/1s burst 90", "b: fixed-window 80/1m", "c: gcra 7/1s"];
    let policies = policies.map(policy);
    let left_of = |decision: &Decision| -> Vec<u64> {
        decision.verdicts().iter().map(|verdict| verdict.remaining()).collect()
    };
    let mut known: HashMap<(usize, u32), u64> = HashMap::new();
    for number in 0..20_000_u32 {
        // The high bits of this product are used as random numbers.
        let random = number.wrapping_mul(0x9e37_79b9) >> 16;
        let subject = (random % 7).to_le_bytes();
        let first = usize::from(random & 0x100 != 0);
        let charges: Vec<_> =
            policies[first..].iter().map(|policy| Charge::new(policy, &subject)).collect();
        let decision = store.decide_now(&Call::acquire(&charges)).unwrap();
        let peek = store.decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
        assert_eq!(left_of(&peek), left_of(&decision));
        assert!(store.len() <= 8);
        for (offset, left) in left_of(&decision).into_iter().enumerate() {
            let index = first + offset;
            let cost = u64::from(decision.is_allowed());
            let before = known.insert((index, random % 7), left);
            let fresh = policies[index].limit() - cost;
            // The test clears `known` when the clock advances. So nothing was refilled since
            // `before`.
            let is_kept = before.is_some_and(|before| left == before.saturating_sub(cost));
            assert!(is_kept || left == fresh, "{before:?}, {left} for {}", policies[index]);
        }
        if random.is_multiple_of(50) {
            clock.advance(Duration::from_secs(120));
            known.clear();
        }
    }
}

#[test]
fn a_full_store_that_refuses_returns_out_of_memory_and_writes_nothing() {
    let (store, clock) = store_and_clock(|b| b.max_keys(3).when_full(WhenFull::Refuse));
    let (a, b) = (policy("a: fixed-window 5/1m anchored"), policy("b: fixed-window 5/1m anchored"));
    for subject in 0..3_u8 {
        assert!(acquire(&store, &a, &[subject]).unwrap().is_allowed());
    }
    let error = acquire(&store, &a, b"new").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("3 states of at most 3"), "{error}");
    // If the state of one charge of a call does not fit, no charge of the call is written.
    let both = [Charge::new(&a, &[0]), Charge::new(&b, &[0])];
    assert_eq!(store.decide_now(&Call::acquire(&both)).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let peek = store.decide_now(&Call::new(Operation::Peek, &both)).unwrap();
    assert_eq!([4, 5], [peek.verdicts()[0].remaining(), peek.verdicts()[1].remaining()]);
    // After a state has expired, the store has room for a new state.
    clock.advance(Duration::from_secs(60));
    assert!(acquire(&store, &a, b"new").unwrap().is_allowed());
}

/// A full store evicts every state except credits and grants without an end.
#[test]
fn credits_are_never_evicted() {
    let (store, clock) = store_and_clock(|b| b.max_keys(3));
    let (credits, quota) = (policy("c: credits 9"), policy("q: quota 9/day in UTC"));
    let window = policy("w: fixed-window 9/1h");
    let grant = |subject: &[u8], operation| {
        let charge = [Charge::new(&quota, subject).cost(5)];
        let id = CallId::new("id", Duration::from_secs(60));
        let _ = store.decide_now(&Call::new(operation, &charge).with_id(id)).unwrap();
    };
    assert!(acquire(&store, &credits, b"a").unwrap().is_allowed());
    grant(b"b", Operation::Grant { ends_at: None });
    for subject in 0..9_u8 {
        assert!(acquire(&store, &window, &[subject]).unwrap().is_allowed());
    }
    let tomorrow = clock.now().saturating_add(Duration::from_secs(86_400));
    grant(b"c", Operation::Grant { ends_at: Some(tomorrow) });
    assert!(acquire(&store, &window, b"new").unwrap().is_allowed(), "the grant with an end goes");
    assert!(acquire(&store, &credits, b"d").unwrap().is_allowed());
    let error = acquire(&store, &window, b"newer").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(acquire(&store, &credits, b"a").unwrap().verdicts()[0].remaining(), 7);
    assert_eq!(acquire(&store, &quota, b"b").unwrap().verdicts()[0].remaining(), 13);
    clock.advance(Duration::from_secs(40 * 365 * 86_400));
    assert_eq!(acquire(&store, &window, b"newer").unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(acquire(&store, &credits, b"d").unwrap().verdicts()[0].remaining(), 7);
}

#[test]
fn logs_and_long_subjects_stay_within_the_heap_bound() {
    let (store, _) = store_and_clock(|b| b.max_spill_bytes(10_000).when_full(WhenFull::Refuse));
    let log = policy("sliding-log 100/1m");
    let mut admitted = 0;
    let error = loop {
        match acquire(&store, &log, &[admitted; 100]) {
            Ok(decision) => assert!(decision.is_allowed()),
            Err(error) => break error,
        }
        admitted += 1;
        assert!(store.bytes() <= store.max_bytes());
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!((25..40).contains(&admitted), "{admitted} logs of about 300 bytes in 10,000");
    // The heap budget is used up, but the state of a short subject in a fixed window needs no heap
    // bytes.
    assert!(acquire(&store, &policy("fixed-window 1/1m"), b"alice").unwrap().is_allowed());
    // A store that is allowed to evict admits new logs, and evicts the logs that expire first.
    let (store, _) = store_and_clock(|b| b.max_keys(1_000).max_spill_bytes(10_000));
    for subject in 0..200_u8 {
        assert!(acquire(&store, &log, &[subject; 100]).unwrap().is_allowed());
        assert!(store.bytes() <= store.max_bytes());
    }
}

#[test]
fn a_log_grows_only_within_the_heap_bound() {
    let (store, clock) = store_and_clock(|b| b.max_spill_bytes(10_000).when_full(WhenFull::Refuse));
    let log = policy("sliding-log 1000000/1h");
    let mut admitted = 0;
    let error = loop {
        clock.advance(Duration::from_micros(1));
        match acquire(&store, &log, b"alice") {
            Ok(decision) => assert!(decision.is_allowed()),
            Err(error) => break error,
        }
        admitted += 1;
        assert!(store.bytes() <= store.max_bytes(), "{admitted} records");
    };
    // The log has room for 512 records of 16 bytes, and its growth would take 8,192 more bytes.
    assert_eq!((error.kind(), admitted), (ErrorKind::OutOfMemory, 512));
    assert!(error.to_string().contains("of at most 10000"), "{error}");
    // The refused growth is not counted as used, so another log fits.
    assert!(acquire(&store, &log, b"bob").unwrap().is_allowed());
}

/// Regression test: a few large subjects reach the bound on heap bytes, which applies to the whole
/// store. The store refused new subjects whose shard contained no large subject, although it could
/// evict states in other shards.
#[test]
fn a_new_state_evicts_large_states_of_other_shards() {
    let window = policy("fixed-window 5/1m");
    for bytes in [1 << 20, 1 << 16] {
        // The store has 256 shards, and room for about 60 large subjects.
        let (store, _) = store_and_clock(|b| b.max_spill_bytes(60 * bytes));
        for subject in 0..300_u32 {
            let mut subject = subject.to_le_bytes().to_vec();
            subject.resize(bytes, 7);
            let decision = acquire(&store, &window, &subject).unwrap();
            assert!(decision.is_allowed());
            assert!(store.bytes() <= store.max_bytes());
        }
        // Smaller subjects are also admitted. The store does not evict the states of the call that
        // it decides.
        let long = [9; 100];
        let charges = [Charge::new(&window, &long), Charge::new(&window, &[8; 200])];
        assert!(store.decide_now(&Call::acquire(&charges)).unwrap().is_allowed());
    }
    let (store, _) = store_and_clock(|b| b.max_spill_bytes(1_000));
    let error = acquire(&store, &window, &[7; 2_000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "larger than the whole bound");
}

#[test]
fn counters_beyond_four_billion_are_exact_and_stay_within_the_bound() {
    let counter = policy("sliding-counter 9000000000/400ms");
    let take = |store: &MemoryStore<_>, subject: u8, cost: u64| {
        store.decide_now(&Call::acquire(&[Charge::new(&counter, &[subject]).cost(cost)]))
    };
    let (store, clock) = store_and_clock(|b| b);
    let kept = [4_294_967_295, 1, 1, 4_705_032_703].map(|cost| {
        assert!(take(&store, 0, cost).unwrap().is_allowed(), "{cost}");
        store.bytes()
    });
    assert!(kept[0] < kept[1] && kept[1] == kept[3], "{kept:?}");
    assert!(take(&store, 0, 1).unwrap().is_denied());
    // At the middle of the current window, half of the count of the previous window still counts.
    clock.advance(Duration::from_micros(600_000 - clock.now().as_micros() % 400_000));
    assert_eq!(take(&store, 0, 0).unwrap().verdicts()[0].remaining(), 4_500_000_000);
    assert!(take(&store, 0, 4_500_000_001).unwrap().is_denied());
    assert!(take(&store, 0, 4_500_000_000).unwrap().is_allowed());

    let (store, _) = store_and_clock(|b| b.max_spill_bytes(1_000).when_full(WhenFull::Refuse));
    let refused = (0..100).find_map(|subject| take(&store, subject, 5_000_000_000).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    assert!(store.bytes() <= store.max_bytes());
}

#[test]
fn b28_a_log_of_a_million_records_is_exact() {
    let (store, clock) = store_and_clock(|b| b);
    let log = policy("sliding-log 1000000/1s");
    for n in 0..1_000_000_u32 {
        assert!(acquire(&store, &log, b"a").unwrap().is_allowed(), "{n}");
        clock.advance(Duration::from_micros(1));
    }
    // The first request in the log is as old as the window, so it no longer counts.
    assert!(acquire(&store, &log, b"a").unwrap().is_allowed());
    let denied = acquire(&store, &log, b"a").unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_micros(1)));
    clock.advance(Duration::from_micros(500_000));
    let charge = [Charge::new(&log, b"a")];
    let peek = store.decide_now(&Call::new(Operation::Peek, &charge)).unwrap();
    assert_eq!(peek.verdicts()[0].remaining(), 500_000);
    assert!(store.bytes() < 64 << 20, "{}", store.bytes());
}

#[test]
fn a_log_that_could_exceed_the_heap_bound_is_not_supported() {
    let store = MemoryStore::builder().max_spill_bytes(1_000_000).build();
    let error = store.supports(&policy("sliding-log 1000000/1m")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("32000000 bytes"), "{error}");
    assert!(store.supports(&policy("sliding-log 1000000/1m grain 1s")).is_ok());
    assert!(MemoryStore::new().supports(&policy("sliding-log 1048576/1m")).is_ok());
}

#[test]
fn a_check_on_a_known_key_allocates_nothing() {
    let store = MemoryStore::new();
    let policies: Vec<Policy> = [
        "a: fixed-window 100000/1h",
        "b: sliding-counter 100000/1h",
        "c: token-bucket 100000/1h",
        "d: token-bucket 100000/1h by-interval",
        "e: gcra 5/1h",
    ]
    .map(policy)
    .into();
    let charges: Vec<Charge<'_>> =
        policies.iter().map(|policy| Charge::new(policy, "2001:db8::1")).collect();
    let mut calls: Vec<Call<'_>> = charges.chunks(1).map(Call::acquire).collect();
    calls.push(Call::acquire(&charges[..2]));
    let run = || calls.iter().for_each(|call| drop(store.decide_now(call).unwrap()));
    run();
    let counted = allocation_counter::measure(|| (0..1_000).for_each(|_| run()));
    assert_eq!(counted.count_total, 0);

    let dynamic: &dyn Store = &store;
    let counted = allocation_counter::measure(|| {
        for call in &calls {
            let _ = dynamic.decide(*call).into_ready().unwrap();
        }
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn reported_bytes_match_allocated_bytes() {
    let log = policy("sliding-log 50/1h");
    let mut store = None;
    let counted = allocation_counter::measure(|| {
        let new = MemoryStore::builder().max_keys(1 << 16).build();
        for n in 0..60_000_u64 {
            let subject = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 20_000;
            let _ = acquire(&new, &log, format!("a subject of length {subject}").as_bytes());
        }
        store = Some(new);
    });
    let (reported, allocated) =
        (store.unwrap().bytes(), usize::try_from(counted.bytes_current).unwrap());
    assert!(
        allocated.abs_diff(reported) < allocated / 100,
        "{allocated} bytes are allocated, {reported} reported"
    );
}

#[test]
fn a_panic_while_a_shard_is_locked_does_not_block_other_threads() {
    let (store, _) = store_and_clock(|b| b.max_keys(1));
    let window = policy("fixed-window 2/1m");
    assert!(acquire(&store, &window, b"a").unwrap().is_allowed());
    std::thread::scope(|scope| {
        let poison = || store.for_each(|_, _, _| panic!("while the shard is locked"));
        assert!(scope.spawn(poison).join().is_err());
    });
    assert!(acquire(&store, &window, b"a").unwrap().is_allowed());
    assert!(acquire(&store, &window, b"a").unwrap().is_denied());
}

#[test]
fn no_call_pauses_while_a_million_states_are_added_and_expire() {
    // docs/benchmarks.md reports measured latencies. This test checks only that no call pauses for
    // work on a whole table.
    let (store, clock) = store_and_clock(|b| b.max_keys(1 << 21));
    let bucket = policy("gcra 60/1m burst 10");
    // The test measures the CPU time of this thread, so that other programs on the machine have
    // little effect on the result.
    let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let mut slow = 0;
    for round in 0..2_u32 {
        for subject in 0..500_000_u32 {
            let started = cpu_time();
            assert!(
                acquire(&store, &bucket, &(subject, round).0.to_le_bytes()).unwrap().is_allowed()
            );
            slow += u32::from(cpu_time() - started > Duration::from_millis(20));
        }
        clock.advance(Duration::from_secs(3600));
    }
    assert_eq!(slow, 0, "calls took more than 20 ms");
}

fn with_id(
    store: &MemoryStore<ManualClock>,
    policy: &Policy,
    id: u64,
    ttl: Duration,
) -> Result<Decision, Error> {
    let (charge, id) = ([Charge::new(policy, "s")], id.to_le_bytes());
    store.decide_now(&Call::acquire(&charge).with_id(CallId::new(&id, ttl)))
}

/// The test uses the rate of new ids and the time to live that the guide recommends.
#[test]
fn the_default_number_of_ids_fits_the_guide() {
    const RATE: u64 = 400;
    const TIME_TO_LIVE: Duration = Duration::from_secs(600);
    let (store, clock) = store_and_clock(|builder| builder);
    let policy = policy("fixed-window 1000000/1d");
    for second in 0..620 {
        for id in second * RATE..(second + 1) * RATE {
            assert!(with_id(&store, &policy, id, TIME_TO_LIVE).unwrap().is_allowed());
        }
        clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_full_store_refuses_a_new_id_before_anything_is_charged() {
    let (store, clock) = store_and_clock(|b| b.max_ids(100));
    let log = policy("sliding-log 1000/1h");
    let hour = Duration::from_secs(3600);
    for id in 0..100 {
        assert!(with_id(&store, &log, id, hour).unwrap().is_allowed());
    }
    let error = with_id(&store, &log, 100, hour).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let why = "the number of remembered ids is at max_ids, which is 100 (100 in the shard of this id), and \
               none has expired; it must be at least the number of new ids per second times their time to \
               live in seconds";
    assert!(error.to_string().ends_with(why), "{error}");
    assert!(error.is_definitely_not_charged());
    let known = with_id(&store, &log, 99, hour).unwrap();
    assert_eq!(known.verdicts()[0].remaining(), 900);
    let charges = [Charge::new(&log, "s")];
    let left = store.decide_now(&Call::new(Operation::Peek, &charges)).unwrap();
    assert_eq!(left.verdicts()[0].remaining(), 900);

    // After an hour, all ids have expired, so the store has room for new ids.
    clock.advance(hour);
    assert!(with_id(&store, &log, 100, hour).unwrap().is_allowed());
    assert!(store.remembered_ids() < 100);
    clock.advance(hour);
    store.sweep();
    assert_eq!((store.remembered_ids(), store.len()), (0, 0));
}

#[test]
fn ids_need_no_more_bytes_than_documented_and_expire_as_new_ids_arrive() {
    let (store, clock) = store_and_clock(|b| b.max_ids(50_000));
    let bucket = policy("token-bucket 1000000/1s");
    let before = store.bytes();
    for id in 0..20_000 {
        assert!(with_id(&store, &bucket, id, Duration::from_secs(1)).unwrap().is_allowed());
    }
    let bytes = (store.bytes() - before) / 20_000;
    assert!((150..=700).contains(&bytes), "{bytes} bytes per id");
    for id in 20_000..100_000 {
        clock.advance(Duration::from_micros(100));
        assert!(with_id(&store, &bucket, id, Duration::from_secs(1)).unwrap().is_allowed());
        assert!(store.remembered_ids() <= 40_000);
    }
    assert!(store.remembered_ids() <= 11_000, "{}", store.remembered_ids());
}

/// Guards against a defect: expired ids were removed only when a call with a new id arrived. They
/// used the heap budget, so a new log was refused, or evicted another log.
#[test]
fn expired_ids_make_room_for_states_although_no_call_has_an_id() {
    let (bucket, log) = (policy("token-bucket 1000000/1s"), policy("sliding-log 5/1h"));
    let minute = Duration::from_secs(60);
    for when_full in [WhenFull::EvictEarliestExpiry, WhenFull::Refuse] {
        let (store, clock) = store_and_clock(|b| b.max_spill_bytes(20_000).when_full(when_full));
        let fill = || (0..1_000).find_map(|id| with_id(&store, &bucket, id, minute).err());
        assert_eq!(fill().unwrap().kind(), ErrorKind::OutOfMemory);
        clock.advance(minute);
        assert!(acquire(&store, &log, &[7; 100]).unwrap().is_allowed(), "{when_full:?}");
    }
    let (store, clock) = store_and_clock(|b| b.max_ids(50_000));
    for id in 0..1_000 {
        assert!(with_id(&store, &bucket, id, minute).unwrap().is_allowed());
    }
    clock.advance(minute);
    for subject in 0..50_000_u32 {
        assert!(acquire(&store, &bucket, &subject.to_le_bytes()).unwrap().is_allowed());
    }
    assert_eq!(store.remembered_ids(), 0);
}

#[test]
fn ids_that_do_not_fit_into_the_bytes_evict_states_and_are_refused_without_any() {
    let (store, _) = store_and_clock(|b| b.max_keys(1_000).max_spill_bytes(20_000));
    let bucket = policy("token-bucket 1000000/1s");
    let hour = Duration::from_secs(3600);
    let long = [b'x'; 200];
    for number in 0..50_u8 {
        assert!(acquire(&store, &bucket, &[&long[..], &[number]].concat()).is_ok());
    }
    assert_eq!(store.len(), 50);
    let admitted = (0..1_000).take_while(|&id| with_id(&store, &bucket, id, hour).is_ok()).count();
    assert!((20..200).contains(&admitted), "{admitted} ids");
    assert_eq!(with_id(&store, &bucket, 2_000, hour).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert!(store.len() < 50, "states of long subjects were evicted");
    assert!(store.bytes() <= store.max_bytes());
}

#[test]
fn a_quota_starts_again_at_the_edge_of_its_calendar() {
    let (store, clock) = store_and_clock(|b| b);
    let month = policy("plan: quota 2/month in Europe/Amsterdam");
    let at = |seconds: u64| clock.set(Timestamp::from_micros(seconds * 1_000_000));
    let (edge, hour) = (1_774_994_400, 3_600); // April 1, 2026, 0:00 in Amsterdam
    at(edge - hour);
    assert!(acquire(&store, &month, b"a").unwrap().is_allowed());
    assert!(acquire(&store, &month, b"a").unwrap().is_allowed());
    let denied = acquire(&store, &month, b"a").unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(hour)));
    assert_eq!(denied.verdicts()[0].reset_after(), Duration::from_secs(hour));
    // The clock steps back over an edge, which mints nothing.
    at(edge);
    assert!(acquire(&store, &month, b"a").unwrap().is_allowed());
    at(edge - hour);
    assert_eq!(acquire(&store, &month, b"a").unwrap().verdicts()[0].remaining(), 0);
    assert!(acquire(&store, &month, b"a").unwrap().is_denied());
    at(edge + hour);
    assert!(acquire(&store, &month, b"a").unwrap().is_denied());
}

/// The zone of a policy changes, and both settings are used at the same time for a while. The
/// quota starts again once per month.
#[test]
fn callers_with_different_zones_mint_no_quota() {
    let (store, clock) = store_and_clock(|b| b);
    let zones = ["Pacific/Kiritimati", "Etc/GMT+12", "UTC"]; // the offsets are +14, -12 and 0 hours
    let policies = zones.map(|zone| policy(&format!("plan: quota 1/month in {zone}")));
    let (start, hour) = (1_767_225_600, 3_600); // January 1, 2026 in UTC
    let mut admitted = 0;
    for hours in 24..24 * 364 {
        clock.set(Timestamp::from_micros((start + hours * hour) * 1_000_000));
        for policy in &policies {
            admitted += u64::from(acquire(&store, policy, b"a").unwrap().is_allowed());
        }
    }
    assert_eq!(admitted, 12);
}

#[test]
fn a_charge_after_the_earliest_end_counts_in_the_next_window_until_it_is_refunded() {
    let (store, clock) = store_and_clock(|b| b);
    // For the first policy, the next day begins an hour earlier.
    let [east, utc] = ["Etc/GMT-1", "UTC"].map(|zone| policy(&format!("p: quota 5/day in {zone}")));
    let (midnight, minute) = (1_767_225_600, 60); // January 1, 2026 in UTC
    let ask = |at: u64, operation, policy: &Policy, cost| {
        clock.set(Timestamp::from_micros(at * 1_000_000));
        let charges = [Charge::new(policy, b"a").cost(cost)];
        store.decide_now(&Call::new(operation, &charges)).unwrap().verdicts()[0].remaining()
    };
    assert_eq!(ask(midnight - 90 * minute, Operation::Acquire, &east, 1), 4);
    assert_eq!(ask(midnight - 30 * minute, Operation::Acquire, &utc, 2), 2);
    assert_eq!(ask(midnight, Operation::Peek, &utc, 0), 3);
    assert_eq!(ask(midnight - 30 * minute, Operation::Refund, &utc, 2), 4);
    assert_eq!(ask(midnight, Operation::Peek, &utc, 0), 4);
}

#[test]
fn a_hold_that_crosses_the_edge_of_a_quota_refunds_nothing() {
    let month = policy("plan: quota 100/month in UTC");
    let edge = 1_775_001_600; // April 1, 2026
    for (used, left) in [(10, 100), (60, 90)] {
        let (store, clock) = store_and_clock(|b| b);
        let ask = |operation, cost| {
            let charges = [Charge::new(&month, b"a").cost(cost)];
            let id = CallId::new(b"job", Duration::from_secs(3_600));
            store.decide_now(&Call::new(operation, &charges).with_id(id)).unwrap()
        };
        clock.set(Timestamp::from_micros((edge - 60) * 1_000_000));
        assert_eq!(ask(Operation::Hold, 50).verdicts()[0].remaining(), 50);
        clock.set(Timestamp::from_micros((edge + 60) * 1_000_000));
        assert_eq!(ask(Operation::Settle, used).verdicts()[0].remaining(), left, "used {used}");
        clock.set(Timestamp::from_micros((edge - 60) * 1_000_000));
    }
}
