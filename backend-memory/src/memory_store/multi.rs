//! The path for acquires of several charges. Each key must be short, and each state must be packed
//! or not exist yet.
//!
//! Most requests with several policies take this path. The path evaluates each charge on the packed
//! state, and writes the results if all enforced policies admit their charges. The [full
//! path](super::full) decides all other calls with several charges. The conformance suite compares
//! the decisions of both paths with the oracle.

use smallvec::SmallVec;
use tidegate_core::no_semver::Evaluation;
use tidegate_core::{Call, Charge, Clock, Decision, Operation, Timestamp};

use super::{MemoryStore, ShardGuard};
use crate::interner::PolicyInterner;
use crate::key::ShortKey;
use crate::shard::Shard;
use crate::slot::Slot;

/// The maximum number of charges of a call on this path. It bounds the work, because the path
/// compares each charge with all other charges.
const MAX_CHARGES: usize = 64;

type Few<T> = SmallVec<[T; 4]>;

/// A charge, with the key and the hashes of its record, and the number of the record's shard.
struct ChargeKey<'a> {
    charge: Charge<'a>,
    state_hash: u64,
    hash: u64,
    key: ShortKey,
    shard: usize,
}

/// The locked shards with their numbers, and the number of another shard to sweep, if a sweep is
/// due.
type LockedShards<'a> = (Few<(usize, ShardGuard<'a>)>, Option<usize>);

/// The evaluation of a charge, and the position of the charge's record.
struct Evaluated {
    /// The position of the shard among the locked shards.
    shard: usize,
    /// The slot of the record in the table, or `None` if the charge has no record yet.
    slot: Option<usize>,
    evaluation: Evaluation,
}

impl Evaluated {
    /// Returns `true` if the charge needs a new record.
    #[inline]
    fn is_new(&self) -> bool {
        self.slot.is_none() && self.evaluation.after().is_some()
    }
}

impl ChargeKey<'_> {
    fn find(&self, shard: &Shard) -> Option<usize> {
        shard.find(self.hash, self.key, self.charge.policy)
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Makes all charges of the call if every enforced policy admits its charge. Makes no charge if
    /// an enforced policy denies. Returns `None` and changes nothing if the call needs the full
    /// path.
    pub(super) fn acquire_multi(&self, call: &Call<'_>, time: Timestamp) -> Option<Decision> {
        if call.id.is_some() {
            return None;
        }
        if call.operation != Operation::Acquire || !(2..=MAX_CHARGES).contains(&call.charges.len())
        {
            return None;
        }
        let mut keys: Few<ChargeKey<'_>> = SmallVec::new();
        for charge in call.charges.iter() {
            if charge.is_check_only || charge.list > 0 {
                return None;
            }
            let state_hash = charge.policy.state_hash();
            // Two charges to the same state depend on each other, so such a call needs the engine.
            if keys.iter().any(|key| key.state_hash == state_hash) {
                return None;
            }
            let (hash, key) = self.short_key(&charge)?;
            keys.push(ChargeKey { charge, state_hash, hash, key, shard: self.shard_of(hash) });
        }
        let (mut shards, sweep) = self.try_lock_shards(&keys, time.as_micros())?;
        let mut evaluated: Few<Evaluated> = SmallVec::new();
        let mut are_admitted = true;
        for key in &keys {
            let charge = &key.charge;
            let at = shards.iter().position(|(number, _)| *number == key.shard)?;
            let (_, shard) = shards.get(at)?;
            let (slot, evaluation) = shard.evaluate(key.hash, key.key, charge, time.as_micros())?;
            are_admitted &= evaluation.admits() || charge.policy.is_shadow();
            evaluated.push(Evaluated { shard: at, slot, evaluation });
        }
        if are_admitted && evaluated.iter().any(Evaluated::is_new) {
            self.write_new(&mut shards, &keys, &evaluated, time.as_micros())?;
        } else if are_admitted {
            for Evaluated { shard, slot, evaluation } in &evaluated {
                if let (Some(slot), Some(after)) = (slot, evaluation.after()) {
                    shards.get_mut(*shard)?.1.write(*slot, after);
                }
            }
        }
        drop(shards);
        if let Some(number) = sweep {
            self.sweep_elsewhere(number, time.as_micros());
        }
        Some(Decision::new(keys.iter().zip(evaluated).map(|(key, evaluated)| {
            let Evaluated { evaluation, .. } = evaluated;
            let outcome =
                if are_admitted { evaluation.committed() } else { evaluation.discarded() };
            outcome.verdict(key.charge.policy)
        })))
    }

    /// Writes the new states of all charges of a call in which some charges have no record yet.
    /// Returns `None` and writes nothing if a shard has no room for a new record.
    #[inline(never)]
    fn write_new(
        &self,
        shards: &mut [(usize, ShardGuard<'_>)],
        keys: &[ChargeKey<'_>],
        evaluated: &[Evaluated],
        now: u64,
    ) -> Option<()> {
        for (at, (_, shard)) in shards.iter_mut().enumerate() {
            if !evaluated.iter().any(|own| own.shard == at && own.is_new()) {
                continue;
            }
            // `make_room` can remove an expired record of this call. Then the record must be
            // inserted again, so `missing` counts the record too.
            let missing = |shard: &Shard| {
                let own = keys.iter().zip(evaluated).filter(|(_, own)| own.shard == at);
                let written = own.filter(|(_, own)| own.evaluation.after().is_some());
                written.filter(|(key, _)| key.find(shard).is_none()).count()
            };
            let is_pinned = |slot: &Slot, policies: &PolicyInterner| {
                keys.iter().any(|key| slot.matches(key.key, key.charge.policy, policies))
            };
            shard.make_room(missing, 0, now, &self.shared, is_pinned).ok()?;
        }
        for (key, Evaluated { shard, evaluation, .. }) in keys.iter().zip(evaluated) {
            if let (Some((_, shard)), Some(after)) = (shards.get_mut(*shard), evaluation.after()) {
                // `make_room` possibly moved or removed the record, so `put` looks it up again.
                shard.put(key.hash, key.key, key.charge.policy, after, &self.shared);
            }
        }
        Some(())
    }

    /// Locks the shards of all keys, each shard once. If a sweep is due in one of the shards, the
    /// function sweeps this shard, and returns the number of another shard that the call must
    /// sweep. Returns `None` if another thread holds one of the locks.
    // The order of the locks does not matter, because the function never waits for a lock.
    fn try_lock_shards(&self, keys: &[ChargeKey<'_>], now: u64) -> Option<LockedShards<'_>> {
        let (mut shards, mut sweep): LockedShards<'_> = (SmallVec::new(), None);
        for key in keys {
            if shards.iter().all(|(number, _)| *number != key.shard) {
                let mut shard = self.shards.get(key.shard)?.try_lock()?;
                if let Some(offset) = shard.count_and_sweep(now, &self.shared) {
                    sweep = sweep.or(Some(key.shard.wrapping_add(offset)));
                }
                shards.push((key.shard, shard));
            }
        }
        Some((shards, sweep))
    }
}
