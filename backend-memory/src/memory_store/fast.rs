//! The fast path decides an `Acquire` of one charge.
//!
//! [`decide_by`](MemoryStore::decide_by) is the entry to this path. It is inlined into the code
//! that calls [`MemoryStore::decide_now`], `Store::decide` or `Limiter::acquire`. The first
//! function in this table that can decide the charge decides it:
//!
//! | function | code | decides if |
//! |---|---|---|
//! | [`decide_inline`](MemoryStore::decide_inline) | inlined | token bucket, sliding counter or fixed window; no tenant; *short and known* |
//! | [`try_acquire_by_rule`](MemoryStore::try_acquire_by_rule) | one call | any algorithm; any tenant; *short and known* |
//! | [`acquire_single`](MemoryStore::acquire_single) | two calls | any key; new or boxed records; contended shard; sweep due |
//! | [full path](super::full) | | blocks, eviction because of the heap budget, a changed policy, calls that are not valid |
//!
//! A charge is *short and known* if it meets all of these conditions:
//!
//! * Tenant and subject together have at most 20 bytes (19 with a tenant).
//! * The record of the charge exists, and was written for the same [`Policy`] object.
//! * The state in the record is packed into two words, or is a log that need not grow beyond the
//!   heap budget.
//! * The lock of the record's shard is free, and no sweep of that shard is due.
//!
//! # Semantics
//!
//! The fast path decides exactly like [`engine::decide`](tidegate_core::engine::decide). A property
//! in `core/tests/integration/fast_path.rs` compares its decisions on packed states and logs with
//! those of the engine. The conformance suite (`tests/conformance.rs`) compares the whole store
//! with the oracle.
//!
//! # Code generation
//!
//! The structure of this module was chosen so that the compiler generates fast machine code. A call
//! with a hot key executes only a few hundred instructions. So the call is measurably slower if a
//! register is spilled or if the decision is built in memory. The module `engine::fast` of the core
//! explains the structure. These are the main points:
//!
//! * The algorithm is a type parameter (`A: PackedAlgorithm`), and `decide_by` passes the decision
//!   to its caller (the closure `answer`) separately for each algorithm. If the algorithms shared
//!   one call of `answer`, the decision would be written to memory.
//! * A function that is not inlined takes scalars, because a reference to the [`Call`] would force
//!   the `Call` into memory. Its caller calls it last (in tail position), because values that are
//!   used after the call are spilled.
//! * [`decide_out_of_line`](MemoryStore::decide_out_of_line) returns the type [`OutOfLine`], for
//!   the reason in the comment on that type.
//! * The enum [`Attempt`] is about as fast as the type `Result<FastOutcome, Option<Lookup>>`. With
//!   either type, a call with a hot key executes 269 to 279 instructions.
//!
//! `try_acquire_by_rule` does a part of the work of `acquire_single`, but does it faster. Without
//! `try_acquire_by_rule`, a call with one hot key costs more:
//!
//! | charge | instructions (callgrind) | CPU time (rounded, medians of 3) |
//! |---|--:|--:|
//! | sliding log | + 37 % | + 50 % |
//! | bucket by intervals | + 62 % | + 75 % |
//! | token bucket with a tenant | + 64 % | + 60 % |
//!
//! After a change of this module, run these benchmarks, concurrently with the benchmarks from
//! before the change:
//!
//! * `cargo bench -p tidegate-memory --bench store`
//! * `cargo bench -p tidegate-memory --bench requests`
//! * `tidegate-bench memory`

use tidegate_core::engine::Rule;
use tidegate_core::no_semver::{FastOutcome, PackedAlgorithm};
use tidegate_core::{
    Call, Charge, Charges, Clock, Decision, Error, MAX_SUBJECT, Operation, Policy, Timestamp,
};

use super::{MemoryStore, ShardGuard};
use crate::key::ShortKey;
use crate::lock::PaddedLock;
use crate::shard::{MissReason, Shard};
use crate::slot::{AnyKey, KeyQuery};

// This type is not a `Result<Decision, Error>`. With a `Result`, the compiler would let
// `decide_out_of_line` write into the memory for its caller's result. Then `decide_inline` would
// also build each decision in this memory, even if the decision is not read.
struct OutOfLine {
    decision: Result<Decision, Error>,
    _time: Timestamp,
}

/// The result of a lookup that did not decide a charge: the locked shard, the hash of the charge's
/// key, and the reason why the charge was not decided.
struct Lookup<'a> {
    shard: ShardGuard<'a>,
    hash: u64,
    reason: MissReason,
}

/// The result of an attempt to decide a charge without waiting for a lock.
enum Attempt<'a> {
    Decided(FastOutcome),
    /// The shard was locked and the key was looked up, but the charge was not decided and no state
    /// was changed.
    Undecided(Lookup<'a>),
    /// The shard is not locked, and no state was changed. Possible reasons: the key is long,
    /// another thread holds the lock, a sweep is due, the call has several policies, or the charge
    /// is to a log.
    NotTried,
}

impl<C: Clock> MemoryStore<C> {
    /// Decides a call, and passes the decision to the closure `answer`. Returns the result of the
    /// closure.
    // Each inlined algorithm adds about 1.5 kB of code to the caller of `decide_by`, so rare
    // algorithms are not inlined.
    #[inline(always)]
    pub(super) fn decide_by<T>(
        &self,
        call: &Call<'_>,
        clock: &impl Clock,
        answer: impl Fn(Result<Decision, Error>) -> T,
    ) -> T {
        let (charge, others) = match (call.operation, call.charges.as_per_policy()) {
            (Operation::Acquire, Some(charges))
                if !charges.0.is_check_only && call.id.is_none() =>
            {
                charges
            }
            _ => return answer(self.decide_full(call, clock.now())),
        };
        let Charge { policy, tenant, subject, cost, .. } = *charge;
        let is_plain = tenant.is_empty() && others.is_empty();
        match policy.rule() {
            Rule::TokenBucket(rule) if is_plain => {
                self.decide_inline(policy, rule, subject, cost, clock, answer)
            }
            Rule::SlidingCounter(rule) if is_plain => {
                self.decide_inline(policy, rule, subject, cost, clock, answer)
            }
            Rule::FixedWindow(rule) if is_plain => {
                self.decide_inline(policy, rule, subject, cost, clock, answer)
            }
            _ => {
                let (policies, time) = ((policy, others), clock.now());
                let attempt = if others.is_empty() {
                    self.try_acquire_by_rule(policy, tenant, subject, cost, time)
                } else {
                    Attempt::NotTried
                };
                let lookup = match attempt {
                    Attempt::Decided(outcome) => {
                        return answer(Ok(Decision::one(outcome.verdict(policy))));
                    }
                    Attempt::Undecided(lookup) => Some(lookup),
                    Attempt::NotTried => None,
                };
                answer(
                    self.decide_out_of_line(policies, tenant, subject, cost, time, lookup).decision,
                )
            }
        }
    }

    /// Decides one charge without a tenant, by a rule of type `A` that is known at compile time.
    #[inline(always)]
    fn decide_inline<A: PackedAlgorithm, T>(
        &self,
        policy: &Policy,
        rule: &A,
        subject: &[u8],
        cost: u64,
        clock: &impl Clock,
        answer: impl Fn(Result<Decision, Error>) -> T,
    ) -> T {
        let charge = Charge::new(policy, subject).cost(cost);
        let key = self.short_key(&charge);
        // The clock is read while the hash is computed, so that the processor executes both at the
        // same time.
        let time = clock.now();
        let lookup = match self.try_acquire(&charge, rule, key, time) {
            Attempt::Decided(outcome) => {
                return answer(Ok(Decision::one(outcome.verdict_by(rule, policy))));
            }
            Attempt::Undecided(lookup) => Some(lookup),
            Attempt::NotTried => None,
        };
        answer(self.decide_out_of_line((policy, &[]), &[], subject, cost, time, lookup).decision)
    }

    #[inline(never)]
    fn try_acquire_by_rule(
        &self,
        policy: &Policy,
        tenant: &[u8],
        subject: &[u8],
        cost: u64,
        time: Timestamp,
    ) -> Attempt<'_> {
        let charge = Charge::new(policy, subject).tenant(tenant).cost(cost);
        let key = self.short_key(&charge);
        match policy.rule() {
            Rule::TokenBucket(rule) => self.try_acquire(&charge, rule, key, time),
            Rule::SlidingCounter(rule) => self.try_acquire(&charge, rule, key, time),
            Rule::FixedWindow(rule) => self.try_acquire(&charge, rule, key, time),
            Rule::IntervalBucket(rule) => self.try_acquire(&charge, rule, key, time),
            _ => {
                self.try_acquire_log(&charge, key, time).map_or(Attempt::NotTried, Attempt::Decided)
            }
        }
    }

    #[inline(always)]
    fn try_acquire<A: PackedAlgorithm>(
        &self,
        charge: &Charge<'_>,
        rule: &A,
        key: Option<(u64, ShortKey)>,
        time: Timestamp,
    ) -> Attempt<'_> {
        let Some((hash, key)) = key else { return Attempt::NotTried };
        let Some(mut shard) = self.try_lock_shard(hash) else { return Attempt::NotTried };
        match shard.acquire(hash, key, charge, rule, time.as_micros()) {
            Ok(outcome) => Attempt::Decided(outcome),
            Err(reason) => Attempt::Undecided(Lookup { shard, hash, reason }),
        }
    }

    #[inline]
    fn try_acquire_log(
        &self,
        charge: &Charge<'_>,
        key: Option<(u64, ShortKey)>,
        time: Timestamp,
    ) -> Option<FastOutcome> {
        let (hash, key) = key?;
        let mut shard = self.try_lock_shard(hash)?;
        shard.acquire_log(hash, key, charge, time.as_micros(), &self.shared)
    }

    /// Decides a call with one charge per policy, all with the same tenant, subject and cost.
    /// `lookup` is `Some` if the call has a single charge, and an attempt to decide it has already
    /// locked its shard.
    #[inline(never)]
    fn decide_out_of_line(
        &self,
        (policy, others): (&Policy, &[Policy]),
        tenant: &[u8],
        subject: &[u8],
        cost: u64,
        time: Timestamp,
        lookup: Option<Lookup<'_>>,
    ) -> OutOfLine {
        let first = Charge::new(policy, subject).tenant(tenant).cost(cost);
        let outcome =
            if others.is_empty() { self.acquire_single(&first, time, lookup) } else { None };
        let charges = Charges::per_policy(first, others);
        let decision = match outcome {
            Some(outcome) => Ok(Decision::one(outcome.verdict(policy))),
            None => self.decide_full(&Call::with_charges(Operation::Acquire, charges), time),
        };
        OutOfLine { decision, _time: time }
    }

    /// Acquires one charge with any key and algorithm. Returns `None` and changes nothing if the
    /// charge needs the full path.
    #[inline(never)]
    fn acquire_single(
        &self,
        charge: &Charge<'_>,
        time: Timestamp,
        lookup: Option<Lookup<'_>>,
    ) -> Option<FastOutcome> {
        if charge.subject.len().max(charge.tenant.len()) > MAX_SUBJECT {
            return None;
        }
        let (key, now) = (AnyKey::new(charge.tenant, charge.state_subject()), time.as_micros());
        let Lookup { mut shard, hash, reason } = match lookup {
            Some(lookup) => lookup,
            None => {
                let hash = key.hash(self.shared.hasher(charge.policy));
                Lookup { shard: self.lock_shard(hash, now)?, hash, reason: MissReason::Unknown }
            }
        };
        shard.acquire_single(hash, key, charge, now, &self.shared, reason)
    }

    /// Locks the shard of a hash and counts the call. If a sweep is due, removes expired states
    /// first.
    #[inline(always)]
    fn lock_shard(&self, hash: u64, now: u64) -> Option<ShardGuard<'_>> {
        let number = self.shard_of(hash);
        let lock = self.shards.get(number)?;
        let mut shard = lock.lock();
        match shard.count_call() {
            None => Some(shard),
            Some(offset) => {
                Some(self.sweep_and_relock(lock, shard, number.wrapping_add(offset), now))
            }
        }
    }

    /// Removes the expired states from one group of slots of `shard`, and from one group of slots
    /// of the shard with the number `other`.
    // `shard` is unlocked before `other` is locked, because a thread that holds a lock must not
    // wait for the lock of a shard with a lower number.
    #[inline(never)]
    fn sweep_and_relock<'s>(
        &'s self,
        lock: &'s PaddedLock<Shard>,
        mut shard: ShardGuard<'s>,
        other: usize,
        now: u64,
    ) -> ShardGuard<'s> {
        shard.sweep_step(now, &self.shared);
        drop(shard);
        self.sweep_elsewhere(other, now);
        lock.lock()
    }
}
