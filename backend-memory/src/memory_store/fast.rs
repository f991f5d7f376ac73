//! The fast path: `Acquire` of one charge.
//!
//! [`decide_by`](MemoryStore::decide_by) is inlined into the callers of
//! [`MemoryStore::decide_now`], `Store::decide` and `Limiter::acquire`. A charge is decided by the
//! first of these functions that applies:
//!
//! | function | code | decides if |
//! |---|---|---|
//! | [`decide_inline`](MemoryStore::decide_inline) | inlined | token bucket, sliding counter or fixed window; no tenant; *short and known* |
//! | [`try_acquire_by_rule`](MemoryStore::try_acquire_by_rule) | one call | any algorithm; any tenant; *short and known* |
//! | [`acquire_single`](MemoryStore::acquire_single) | two calls | any key; new or boxed records; contended shard; sweep due |
//! | [full path](super::full) | | blocks, eviction because of the heap budget, a changed policy, calls that are not valid |
//!
//! A charge is *short and known* if all of this is true:
//!
//! * Tenant and subject together have at most 20 bytes (19 with a tenant).
//! * The record exists, and the same [`Policy`] object wrote it.
//! * Its state is packed into two words, or is a log that need not grow.
//! * The lock of the shard is free, and no sweep is due.
//!
//! # Semantics
//!
//! The decisions are the same as those of [`engine::decide`](tidegate_core::engine::decide). The
//! property in `core/tests/integration/fast_path.rs` compares packed states and logs with the
//! engine, and the conformance suite (`tests/conformance.rs`) compares the whole store with the
//! oracle.
//!
//! # Code generation
//!
//! The structure of this module is chosen for the generated code. A hot call executes a few hundred
//! instructions, so a spilled register or a decision that is built in memory is measurable.
//! The module `engine::fast` of the core explains the reasons. In short:
//!
//! * The algorithm is a type parameter (`A: PackedAlgorithm`), and each algorithm has its own call
//!   of `answer`. Paths that merge before `answer` merge in memory.
//! * Functions that are not inlined take scalars, and calls of them are tail calls. A reference to
//!   the [`Call`] would force it into memory, and values that live across a call are spilled.
//! * [`decide_out_of_line`](MemoryStore::decide_out_of_line) returns its own type, [`OutOfLine`].
//! * [`Attempt`] costs as much as `Result<FastOutcome, Option<Lookup>>` would. A hot call executes
//!   279 instead of 276 instructions through the store, and 269 instead of 275 through a limiter.
//!
//! `try_acquire_by_rule` repeats a part of `acquire_single`, because it is faster. Without it, a
//! call with one hot key costs:
//!
//! | charge | instructions (callgrind) | CPU time (rounded, medians of 3) |
//! |---|--:|--:|
//! | sliding log | + 37 % | + 50 % |
//! | bucket by intervals | + 62 % | + 75 % |
//! | token bucket with a tenant | + 64 % | + 60 % |
//!
//! After a change, run these together with the binaries from before the change:
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

/// The return type of the out-of-line path.
// If this were `Result<Decision, Error>` itself, the compiler would let the callee write into the
// result slot of the caller. The slot would then exist on the inline path too, and the decision
// would be built in memory regardless of whether the caller reads it.
struct OutOfLine {
    decision: Result<Decision, Error>,
    _time: Timestamp,
}

/// A locked shard, and the result of the lookup of a key in it.
struct Lookup<'a> {
    shard: ShardGuard<'a>,
    hash: u64,
    reason: MissReason,
}

/// The result of an attempt to decide without waiting.
enum Attempt<'a> {
    Decided(FastOutcome),
    /// The shard is locked, and nothing has changed.
    Undecided(Lookup<'a>),
    /// No key was looked up, because the key is long, the lock is held, or a sweep is due.
    NotTried,
}

impl<C: Clock> MemoryStore<C> {
    /// Decides on a call, and passes the decision to `answer`.
    // Each inlined algorithm adds about 1.5 kB of code to the caller, so rare algorithms are not
    // inlined.
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

    /// Decides on one charge without a tenant, for a rule whose type is known at compile time.
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
        // The clock is read here, because this overlaps with the latency of the hash.
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

    /// Acquires one charge by any algorithm, without waiting.
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

    /// Acquires one charge with a short key by a packed algorithm, without waiting.
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

    /// Acquires one charge to an existing log, without waiting.
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

    /// Decides on one charge with the same tenant, subject and cost to each policy. `lookup` is the
    /// result of the inline path, if that path has locked the shard.
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

    /// Acquires one charge with any key and by any algorithm. Returns `None` and changes nothing if
    /// the charge needs the full path.
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

    /// Locks the shard of a hash, counts the call, and sweeps if a sweep is due.
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

    /// Sweeps one group of this shard and one of the shard `other`.
    // The shard is unlocked for this, because a thread never holds two locks out of order.
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
