//! Several charges to records that are all there, and a few numbers each: most calls on several policies.

use smallvec::SmallVec;
use tidegate_core::engine::Weighing;
use tidegate_core::{Call, Clock, Decision, Operation, Timestamp};

use super::{Guard, MemoryStore};
use crate::key::ShortKey;

/// The most charges that are decided on here.
const MAX_CHARGES: usize = 4;

type Few<T> = SmallVec<[T; MAX_CHARGES]>;

/// Where the record of a charge is.
struct ChargeKey {
    state_hash: u64,
    hash: u64,
    key: ShortKey,
    /// The number of its shard.
    shard: usize,
}

impl<C: Clock> MemoryStore<C> {
    /// Takes all charges if all policies that are in force admit theirs, else none. `None`, and nothing
    /// has changed, where that takes more, or is not what is asked for.
    pub(super) fn acquire_multi(&self, call: &Call<'_>, time: Timestamp) -> Option<Decision> {
        if call.operation != Operation::Acquire || !(2..=MAX_CHARGES).contains(&call.charges.len()) {
            return None;
        }
        let mut places: Few<ChargeKey> = SmallVec::new();
        for charge in call.charges.iter() {
            // Two charges to one state are for the engine.
            let state_hash = charge.policy.state_hash();
            if places.iter().any(|place| place.state_hash == state_hash) {
                return None;
            }
            let (hash, key) = self.place(&charge)?;
            places.push(ChargeKey { state_hash, hash, key, shard: self.shard_of(hash) });
        }
        let mut shards = self.try_lock_shards(&places)?;
        let mut weighed: Few<(usize, usize, Weighing)> = SmallVec::new();
        let mut are_admitted = true;
        for (charge, place) in call.charges.iter().zip(&places) {
            let at = shards.iter().position(|(number, _)| *number == place.shard)?;
            let (_, shard) = shards.get(at)?;
            let (index, weighing) =
                shard.weigh(place.hash, place.key, &charge, time.as_micros())?;
            are_admitted &= weighing.admits() || charge.policy.is_shadow();
            weighed.push((at, index, weighing));
        }
        for (at, index, weighing) in &weighed {
            if let (true, Some(after)) = (are_admitted, weighing.after()) {
                shards.get_mut(*at)?.1.write(*index, after);
            }
        }
        drop(shards);
        Some(Decision::new(
            call.charges.iter().zip(weighed).map(|(charge, (_, _, weighing))| {
                weighing.taken(are_admitted).verdict(charge.policy)
            }),
        ))
    }

    /// Locks the shards, each once, unless one takes longer or it is time to sweep there first. They are
    /// tried in any order, as nothing waits here.
    fn try_lock_shards(&self, places: &[ChargeKey]) -> Option<Few<(usize, Guard<'_>)>> {
        let mut shards: Few<(usize, Guard<'_>)> = SmallVec::new();
        for place in places {
            if shards.iter().all(|(number, _)| *number != place.shard) {
                shards.push((place.shard, self.try_lock_shard(place.hash)?));
            }
        }
        Some(shards)
    }
}
