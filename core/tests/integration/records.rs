//! Tests of the engine's use of a store's records: the reads, the writes and the room that the
//! engine requests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::algorithm::fixed_window;
use tidegate_core::algorithm::sliding_log;
use tidegate_core::engine::{self, HeldCharge, Record, Records, RememberedCall, State};
use tidegate_core::{
    Call, CallId, Charge, Decision, Error, ErrorKind, MAX_EXACT, MAX_SPAN, Operation, Outcome,
    Policy, Timestamp,
};

/// A store for tests with one record per charge, by the index of the charge. The store panics if
/// the engine creates a record without a request for room.
#[derive(Debug, Default)]
struct Spy {
    records: BTreeMap<usize, Record>,
    policies: Vec<Policy>,
    has_room: bool,
    /// The indices for which room was requested. `updated` contains the indices of the updated
    /// records.
    requested: Vec<usize>,
    updated: Vec<usize>,
}

impl Records for Spy {
    fn get(&mut self, index: usize) -> Option<&Record> {
        self.records.get(&index)
    }

    fn make_room(&mut self, indices: &[usize]) -> Result<(), Error> {
        if !self.has_room {
            return Err(Error::new(ErrorKind::OutOfMemory, "no room"));
        }
        self.requested.extend(indices);
        Ok(())
    }

    fn update(&mut self, index: usize, change: impl FnOnce(&mut Record)) {
        self.updated.push(index);
        let exists = self.records.contains_key(&index);
        assert!(exists || self.requested.contains(&index), "no room was requested for {index}");
        let policy = &self.policies[index];
        change(self.records.entry(index).or_insert_with(|| Record::new(policy)));
    }

    fn remove(&mut self, index: usize) {
        self.records.remove(&index);
    }
}

impl Spy {
    fn new(policies: &[&Policy]) -> Self {
        let policies = policies.iter().copied().cloned().collect();
        Self { policies, has_room: true, ..Self::default() }
    }

    /// Makes a call. Returns the decision, the indices for which room was requested, and the
    /// indices that were updated.
    fn decide(
        &mut self,
        operation: Operation,
        costs: &[u64],
        now: u64,
    ) -> (Decision, [Vec<usize>; 2]) {
        let policies = self.policies.clone();
        let charges: Vec<_> = policies
            .iter()
            .zip(costs)
            .map(|(policy, &cost)| Charge::new(policy, "s").cost(cost))
            .collect();
        (self.requested, self.updated) = (vec![], vec![]);
        let now = Timestamp::from_micros(now);
        let decision = engine::decide(&Call::new(operation, &charges), now, self).unwrap();
        (decision, [std::mem::take(&mut self.requested), std::mem::take(&mut self.updated)])
    }
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

const SECOND: u64 = 1_000_000;

#[test]
fn room_is_requested_only_for_records_that_are_created() {
    let (a, b) = (policy("a: sliding-log 5/10s"), policy("b: sliding-log 2/10s block 3s"));
    let mut spy = Spy::new(&[&a, &b]);
    let nothing: [Vec<usize>; 2] = [vec![], vec![]];
    for operation in [
        Operation::Peek,
        Operation::Refund,
        Operation::Undo { at: Timestamp::EPOCH },
        Operation::Reset,
        Operation::Block { span: Duration::ZERO },
    ] {
        assert_eq!(spy.decide(operation, &[1, 1], 0).1, nothing, "{operation:?}");
        assert!(spy.records.is_empty(), "{operation:?}");
    }
    assert_eq!(spy.decide(Operation::Acquire, &[0, 0], 0).1, nothing);
    assert_eq!(spy.decide(Operation::Acquire, &[0, 1], 0).1, [vec![1], vec![1]]);
    assert_eq!(spy.decide(Operation::Acquire, &[1, 1], 0).1, [vec![0, 1], vec![0, 1]]);
    // The refusal of a cost above the limit writes no block. The refusal of a lower cost writes
    // only the block of the second policy, which denied.
    assert_eq!(spy.decide(Operation::Acquire, &[1, 3], 0).1, nothing);
    assert_eq!(spy.decide(Operation::Peek, &[1, 1], 0).1, nothing);
    assert_eq!(spy.decide(Operation::Acquire, &[1, 1], 0).1, [vec![1], vec![1]]);
    assert_eq!(spy.decide(Operation::Acquire, &[1, 1], 1).1, nothing);
    // A refund with a cost of zero updates no record.
    assert_eq!(spy.decide(Operation::Refund, &[0, 1], 2).1, [vec![], vec![1]]);
    assert_eq!(spy.decide(Operation::Refund, &[1, 0], 2).1, [vec![], vec![0]]);
    assert_eq!(spy.records.len(), 1);
    let block = Operation::Block { span: Duration::from_secs(1) };
    assert_eq!(spy.decide(block, &[1, 1], 2).1, [vec![0, 1], vec![0, 1]]);
    let lift = Operation::Block { span: Duration::ZERO };
    assert_eq!(spy.decide(lift, &[1, 1], 2).1, [vec![], vec![0, 1]]);
    assert_eq!(spy.records.keys().collect::<Vec<_>>(), [&1], "the first record is removed");
    assert_eq!(spy.decide(Operation::Undo { at: Timestamp::EPOCH }, &[1, 0], 2).1, nothing);
    assert_eq!(spy.decide(Operation::Undo { at: Timestamp::EPOCH }, &[1, 3], 2).1, nothing);
    assert_eq!(
        spy.decide(Operation::Undo { at: Timestamp::EPOCH }, &[1, 2], 2).1,
        [vec![], vec![1]]
    );
}

#[test]
fn without_room_nothing_is_written() {
    let (a, b) = (policy("a: sliding-log 5/10s"), policy("b: sliding-log 2/10s"));
    for policies in [&[&a][..], &[&a, &b]] {
        let mut spy = Spy { has_room: false, ..Spy::new(policies) };
        let charges: Vec<_> = policies.iter().map(|policy| Charge::new(policy, "s")).collect();
        for operation in [Operation::Acquire, Operation::Block { span: MAX_SPAN }] {
            let call = Call::new(operation, &charges);
            let error = engine::decide(&call, Timestamp::EPOCH, &mut spy).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert!(spy.updated.is_empty());
        }
    }
}

#[test]
fn an_ended_block_is_forgotten_at_the_next_write() {
    let anchored = policy("p: fixed-window 5/10s anchored");
    for (operation, costs) in [
        (Operation::Acquire, [1]),
        (Operation::Refund, [1]),
        (Operation::Undo { at: Timestamp::EPOCH }, [1]),
    ] {
        let mut spy = Spy::new(&[&anchored]);
        let _ = spy.decide(Operation::Acquire, &[3], 0);
        let block = Operation::Block { span: Duration::from_secs(2) };
        assert_eq!(spy.decide(block, &[1], 0).0.verdicts()[0].blocked_for().as_secs(), 2);
        for (now, until) in [(1, Some(2)), (2, None)] {
            let _ = spy.decide(operation, &costs, now * SECOND);
            let until = until.map(|secs| secs * SECOND);
            assert_eq!(spy.records[&0].blocked_until_micros(), until, "{operation:?} at {now} s");
        }
    }
}

/// A blocked subject stays blocked for exactly the announced time.
#[test]
fn a_block_ends_at_its_end() {
    let anchored = policy("p: fixed-window 5/10s anchored");
    let mut spy = Spy::new(&[&anchored]);
    let _ = spy.decide(Operation::Block { span: Duration::MAX }, &[1], 7);
    let longest = 7 + u64::try_from(MAX_SPAN.as_micros()).unwrap();
    assert_eq!(spy.records[&0].blocked_until_micros(), Some(longest));
    let _ = spy.decide(Operation::Block { span: Duration::from_nanos(1_001) }, &[1], 7);
    for (now, outcome, remaining) in [(8, Outcome::Blocked, 1), (9, Outcome::Allowed, 0)] {
        let verdict = spy.decide(Operation::Peek, &[1], now).0.verdicts()[0];
        assert_eq!((verdict.outcome(), verdict.blocked_for().as_micros()), (outcome, remaining));
    }
}

#[test]
fn a_reservation_is_bounded_by_its_wait_and_by_the_exact_numbers() {
    let bucket = policy("p: token-bucket 1/1s burst 1");
    let mut spy = Spy::new(&[&bucket]);
    let reserve = |secs| Operation::Reserve { max_wait: Duration::from_secs(secs) };
    let first = spy.decide(reserve(0), &[1], 0).0;
    assert_eq!((first.is_allowed(), first.wait()), (true, Duration::ZERO));
    for (max_wait, wait) in [(0, None), (1, Some(1)), (1, None), (2, Some(2))] {
        let decision = spy.decide(reserve(max_wait), &[1], 0).0;
        assert_eq!(decision.is_allowed(), wait.is_some());
        assert_eq!(decision.wait(), Duration::from_secs(wait.unwrap_or(0)));
        let retry = decision.verdicts()[0].retry_after().unwrap();
        assert_eq!(retry.is_zero(), wait.is_some());
    }
    // Only buckets support reservations. Other algorithms reject a reservation, regardless of its
    // wait.
    for text in ["p: fixed-window 1/1s", "p: sliding-log 1/1s", "p: sliding-counter 1/1s"] {
        let window = policy(text);
        let mut spy = Spy::new(&[&window]);
        let charges = [Charge::new(&window, "s")];
        let call = Call::new(reserve(9), &charges);
        let error = engine::decide(&call, Timestamp::EPOCH, &mut spy).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
    }
    // Each cost is 2^51, and a debt above 2^52 would not be exact. So a third reservation is
    // denied, although its wait would be short enough.
    for text in [
        "p: token-bucket 1000/1us burst 2251799813685248",
        "p: token-bucket 1000/1us burst 2251799813685248 by-interval",
    ] {
        let huge = policy(text);
        let mut spy = Spy::new(&[&huge]);
        let all = huge.limit();
        assert_eq!(all, MAX_EXACT / 2);
        let reserve = Operation::Reserve { max_wait: Duration::MAX };
        let admitted: Vec<_> =
            (0..3).map(|_| spy.decide(reserve, &[all], 0).0.is_allowed()).collect();
        assert_eq!(admitted, [true, true, false], "{text}");
        assert!(spy.decide(reserve, &[1], 1).0.is_allowed(), "{text}: one token has been refilled");
    }
}

#[test]
fn a_record_has_its_parts_and_its_size() {
    let anchored = policy("p: fixed-window 9/10s anchored");
    let state = State::FixedWindow(fixed_window::State::new(7, 3));
    for blocked_until in [None, Some(1), Some(7), Some(8)] {
        let record = Record::restore(&anchored, Some(state.clone()), blocked_until).unwrap();
        assert_eq!((record.policy(), record.state()), (&anchored, Some(&state)));
        assert_eq!(record.blocked_until_micros(), blocked_until);
        let recovers_at = blocked_until.unwrap_or(0).max(7);
        assert_eq!(record.recovers_at(), Some(Timestamp::from_micros(recovers_at)));
        assert_eq!(record.recovers_at_micros(), recovers_at);
        assert_eq!((record.heap_bytes(), Record::growth(Some(&record), &anchored)), (0, 0));
    }
    assert_eq!(Record::growth(None, &anchored), 0);
    let last = Record::restore(&anchored, None, Some(MAX_EXACT - 1)).unwrap();
    assert_eq!(last.recovers_at(), Some(Timestamp::MAX));
    let beyond = Record::restore(&anchored, None, Some(MAX_EXACT)).unwrap();
    assert_eq!((beyond.recovers_at(), beyond.recovers_at_micros()), (None, MAX_EXACT));

    // The state of a new log is on the heap, with room for four records. Each record has a time and
    // a total.
    let log = policy("p: sliding-log 9/10s");
    let boxed = size_of::<sliding_log::State>();
    assert_eq!(Record::growth(None, &log), boxed + 4 * 16);
    assert_eq!(Record::growth(Some(&Record::new(&log)), &log), boxed + 4 * 16);
    let records = [(1, 1), (2, 1), (3, 1)].into_iter().collect::<sliding_log::State>();
    let (heap_bytes, growth) = (records.heap_bytes(), records.growth());
    assert!(heap_bytes >= 3 * 16);
    let record = Record::restore(&log, Some(State::SlidingLog(Box::new(records))), None).unwrap();
    assert_eq!(record.heap_bytes(), boxed + heap_bytes);
    assert_eq!(Record::growth(Some(&record), &log), growth);
}

/// A store is allowed to drop a recovered state at any time. Therefore a changed policy must find
/// no usage after the recovery, regardless of whether the state was dropped.
#[test]
fn a_changed_policy_counts_what_was_used_until_that_recovers() {
    let older = policy("p: fixed-window 5/10s anchored");
    let newer = policy("p: fixed-window 9/10s anchored");
    let other_shape = policy("p: fixed-window 9/20s anchored");
    let mut spy = Spy::new(&[&older]);
    let _ = spy.decide(Operation::Acquire, &[4], 0);
    for (policy, now, remaining) in [
        (&older, 5, 1),
        (&newer, 5, 5),
        (&other_shape, 5, 9),
        (&newer, 10 * SECOND - 1, 5),
        (&newer, 10 * SECOND, 9),
    ] {
        spy.policies = vec![policy.clone()];
        let verdict = spy.decide(Operation::Peek, &[1], now).0.verdicts()[0];
        assert_eq!(verdict.remaining(), remaining, "{policy} at {now}");
        let _ = spy.decide(Operation::Refund, &[0], now);
        assert_eq!(spy.records[&0].policy(), &older, "only a write changes the policy");
    }
}

#[test]
fn a_full_undo_leaves_no_record() {
    for text in [
        "p: fixed-window 5/10s anchored",
        "p: sliding-log 5/10s",
        "p: sliding-counter 5/10s",
        "p: token-bucket 1/10s burst 5",
        "p: token-bucket 1/10s burst 5 by-interval",
    ] {
        let policy = policy(text);
        let mut spy = Spy::new(&[&policy]);
        let undo = Operation::Undo { at: Timestamp::EPOCH };
        let _ = spy.decide(Operation::Acquire, &[3], 0);
        let _ = spy.decide(undo, &[3], 0);
        assert!(spy.records.is_empty(), "{text}");
        let _ = spy.decide(Operation::Acquire, &[3], 0);
        let _ = spy.decide(undo, &[2], 1);
        assert_eq!(spy.decide(Operation::Peek, &[1], 1).0.verdicts()[0].remaining(), 4, "{text}");
        let _ = spy.decide(undo, &[1], 1);
        assert!(spy.records.is_empty(), "{text}");
        if text.contains("burst") {
            // The bucket has refilled one of the three charged tokens, and the undo refunds the
            // other two.
            let _ = spy.decide(Operation::Acquire, &[3], 0);
            let _ = spy.decide(undo, &[2], 10 * SECOND);
            assert!(spy.records.is_empty(), "{text}");
        }
    }
}

/// An undo without a matching charge changes neither the policy of the record nor an ended block.
#[test]
fn an_undo_of_nothing_leaves_the_record_as_it_is() {
    for (older, newer, charged, undone, now) in [
        ("p: fixed-window 5/10s anchored", "p: fixed-window 6/10s anchored", 20, 5, 21),
        ("p: sliding-log 5/10s", "p: sliding-log 6/10s", 20, 19, 21),
        // In the next three cases, the time of the charge and the time that the undo names are in
        // two different windows of 10 s, such as 21 s and 19 s.
        ("p: sliding-counter 5/10s", "p: sliding-counter 6/10s", 21, 19, 22),
        ("p: sliding-counter 5/10s", "p: sliding-counter 6/10s", 19, 21, 22),
        ("p: sliding-counter 5/10s", "p: sliding-counter 6/10s", 21, 35, 22),
        // From 5 s, the time that the undo names, to the charge at 20 s, the bucket has refilled 3
        // tokens, which is the whole cost. So the undo refunds nothing.
        ("p: token-bucket 1/5s burst 5", "p: token-bucket 1/5s burst 6", 20, 5, 21),
        (
            "p: token-bucket 1/5s burst 5 by-interval",
            "p: token-bucket 1/5s burst 6 by-interval",
            20,
            5,
            21,
        ),
    ] {
        let (older, newer) = (policy(older), policy(newer));
        let mut spy = Spy::new(&[&older]);
        let _ = spy.decide(Operation::Acquire, &[3], charged * SECOND);
        let block = Operation::Block { span: Duration::from_micros(1) };
        let _ = spy.decide(block, &[1], charged * SECOND);
        let before = spy.records[&0].clone();
        assert!(before.blocked_until_micros().is_some());
        spy.policies = vec![newer];
        let undo = Operation::Undo { at: Timestamp::from_micros(undone * SECOND) };
        let _ = spy.decide(undo, &[3], now * SECOND);
        assert_eq!(spy.records[&0], before, "{older}: charged at {charged}, undone at {undone}");
    }
}

/// A store that keeps one record, and remembers calls with ids. The store panics if the record
/// grows by more than the size for which the engine has requested room.
#[derive(Debug)]
struct Metered {
    policy: Policy,
    record: Option<Record>,
    known: BTreeMap<u8, RememberedCall>,
    id: u8,
    max_bytes: usize,
}

impl Metered {
    fn bytes(&self) -> usize {
        self.record.as_ref().map_or(0, Record::heap_bytes)
    }

    fn decide(&mut self, operation: Operation, cost: u64, id: u8) {
        self.id = id;
        let (id, policy) = ([id], self.policy.clone());
        let charge = [Charge::new(&policy, "s").cost(cost)];
        let call = Call::new(operation, &charge);
        let is_of_hold = operation.is_of_hold();
        let call = if is_of_hold { call.with_id(CallId::new(&id, SPAN)) } else { call };
        let decision = engine::decide(&call, Timestamp::from_micros(0), self).unwrap();
        assert!(decision.is_allowed(), "{operation:?} of {cost}");
    }
}

const SPAN: Duration = Duration::from_secs(9);

impl Records for Metered {
    fn get(&mut self, _index: usize) -> Option<&Record> {
        self.record.as_ref()
    }

    fn make_room(&mut self, _indices: &[usize]) -> Result<(), Error> {
        self.max_bytes = self.bytes() + Record::growth(self.record.as_ref(), &self.policy);
        Ok(())
    }

    fn update(&mut self, _index: usize, change: impl FnOnce(&mut Record)) {
        let max_bytes = self.bytes().max(self.max_bytes);
        change(self.record.get_or_insert_with(|| Record::new(&self.policy)));
        assert!(self.bytes() <= max_bytes, "{} bytes; the maximum is {max_bytes}", self.bytes());
    }

    fn remove(&mut self, _index: usize) {
        self.record = None;
    }

    fn remembered(&mut self) -> Result<Option<RememberedCall>, Error> {
        Ok(self.known.get(&self.id).cloned())
    }

    fn remember(&mut self, call: RememberedCall) {
        self.known.insert(self.id, call);
    }
}

#[test]
fn holds_on_a_state_need_at_most_the_requested_room() {
    for text in ["p: fixed-window 99/10s refund-lapsed", "p: sliding-log 99/10s refund-lapsed"] {
        let (policy, known) = (policy(text), BTreeMap::new());
        let mut records = Metered { policy, record: None, known, id: 0, max_bytes: 0 };
        records.decide(Operation::Hold, 0, 0);
        assert!(records.record.is_none(), "{text}: a hold of zero creates no record");
        let mut bytes = vec![];
        for id in 1..=20 {
            records.decide(Operation::Hold, 2, id);
            bytes.push(records.bytes());
            records.decide(Operation::Acquire, 1, 0);
            records.decide(Operation::SettleSoFar, 1, id);
        }
        assert!(bytes[19] >= bytes[0] + 19 * size_of::<[u64; 8]>(), "{text}: {bytes:?}");
        for id in 1..=20 {
            records.decide(Operation::Settle, 1, id);
        }
        assert!(records.bytes() < bytes[0], "{text}: no hold is open any more");
    }
}

#[test]
fn the_memory_of_a_hold_has_room_for_both_answers_and_the_held_charges() {
    for charges in [1, 2, 9] {
        let (call, hold) = (
            RememberedCall::max_heap_bytes(charges, false),
            RememberedCall::max_heap_bytes(charges, true),
        );
        assert!(hold >= 2 * call + charges * size_of::<HeldCharge>(), "{charges} charges");
        assert!(hold <= 3 * call + charges * size_of::<HeldCharge>(), "{charges} charges");
    }
}
