//! The path for acquires of two to four charges, all to existing records with short keys and packed
//! states.
//!
//! Most requests with several policies take this path. The path evaluates each charge on the packed
//! state, and writes the results if all enforced policies admit their charges. The [full
//! path](super::full) decides all other calls with several charges. The conformance suite compares
//! the decisions of both paths with the oracle.

use smallvec::SmallVec;
use tidegate_core::no_semver::Evaluation;
use tidegate_core::{Call, Charge, Clock, Decision, Operation, Timestamp};

use super::{MemoryStore, ShardGuard};
use crate::key::ShortKey;

/// The maximum number of charges of a call for which this path is used.
const MAX_CHARGES: usize = 4;

type Few<T> = SmallVec<[T; MAX_CHARGES]>;

/// A charge, with the key and the hashes of its record, and the number of the record's shard.
struct ChargeKey<'a> {
    charge: Charge<'a>,
    state_hash: u64,
    hash: u64,
    key: ShortKey,
    shard: usize,
}

/// An evaluated charge, and the slot of the table for the new state.
struct Evaluated {
    /// The position of the shard among the locked shards.
    shard: usize,
    slot: usize,
    evaluation: Evaluation,
}

impl<C: Clock> MemoryStore<C> {
    /// Makes all charges of the call if every enforced policy admits its charge, and otherwise
    /// none. Returns `None` and changes nothing if the call needs the full path.
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
            if charge.is_check_only {
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
        let mut shards = self.try_lock_shards(&keys)?;
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
        for Evaluated { shard, slot, evaluation } in &evaluated {
            if let (true, Some(after)) = (are_admitted, evaluation.after()) {
                shards.get_mut(*shard)?.1.write(*slot, after);
            }
        }
        drop(shards);
        Some(Decision::new(keys.iter().zip(evaluated).map(|(key, evaluated)| {
            let Evaluated { evaluation, .. } = evaluated;
            let outcome =
                if are_admitted { evaluation.committed() } else { evaluation.discarded() };
            outcome.verdict(key.charge.policy)
        })))
    }

    /// Locks the shards of all keys, each shard once. Returns `None` if another thread holds one of
    /// the locks, or if a sweep is due in one of the shards.
    // The order of the locks does not matter, because the function never waits for a lock.
    fn try_lock_shards(&self, keys: &[ChargeKey<'_>]) -> Option<Few<(usize, ShardGuard<'_>)>> {
        let mut shards: Few<(usize, ShardGuard<'_>)> = SmallVec::new();
        for key in keys {
            if shards.iter().all(|(number, _)| *number != key.shard) {
                shards.push((key.shard, self.try_lock_shard(key.hash)?));
            }
        }
        Some(shards)
    }
}
