//! One shard of the store: a table of records, and what happens when it is full.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use tidegate_core::engine::{Numbers, Record};
use tidegate_core::{Charge, Error, ErrorKind, Verdict};

use crate::WhenFull;
use crate::policies::{Id, Policies};
use crate::slot::{Slot, Whole};
use crate::spill::Spill;
use crate::table::{Keeper, Table, Which};

/// What all shards share.
pub(crate) struct Shared {
    pub(crate) hasher: RandomState,
    pub(crate) spill: Spill,
    pub(crate) when_full: WhenFull,
}

impl Shared {
    #[inline]
    pub(crate) fn hash(&self, charge: &Charge<'_>) -> u64 {
        self.hash_parts(charge.policy.name_hash(), charge.tenant, charge.subject)
    }

    #[inline]
    fn hash_parts(&self, name_hash: u64, tenant: &[u8], subject: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(name_hash);
        if !tenant.is_empty() {
            hasher.write(tenant);
        }
        hasher.write(subject);
        hasher.finish()
    }
}

/// Knows what the slots of a shard's table mean.
struct Slots<'s> {
    policies: &'s mut Policies,
    shared: &'s Shared,
}

impl Keeper<Slot> for Slots<'_> {
    fn hash(&self, slot: &Slot) -> u64 {
        let name_hash = self.policies.get(slot.policy()).map_or(0, |policy| policy.name_hash());
        slot_hash(self.shared.hash_parts(name_hash, slot.tenant(), slot.subject()))
    }

    fn recovers_at(&self, slot: &Slot) -> u64 {
        slot.recovers_at(self.policies)
    }

    fn spills(&self, slot: &Slot) -> bool {
        slot.spilled() > 0
    }

    fn gone(&mut self, slot: Slot) {
        self.shared.spill.moved(slot.spilled(), 0);
        self.policies.release(slot.policy());
    }
}

pub(crate) struct Shard {
    table: Table<Slot>,
    policies: Policies,
    /// Calls that came to this shard.
    calls: usize,
}

/// One call in so many sweeps a little: here, and in another shard, in turn, as some shards may get
/// no calls. That is 8 slots a call, far more than the one that it may fill.
const CALLS_PER_SWEEP: usize = 8;

impl Shard {
    pub(crate) fn new(most: usize) -> Self {
        Self { table: Table::new(most), policies: Policies::default(), calls: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes that the shard takes, apart from what its slots keep elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.policies.heap_bytes()
    }

    /// Bytes that the shard takes at its bound.
    pub(crate) fn most_bytes(&self) -> usize {
        let most = self.table.most();
        Table::<Slot>::most_bytes(most) + Policies::most_heap_bytes(most)
    }

    /// The keys and their records.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Slot, Record)> {
        self.table.iter().filter_map(|slot| Some((slot, self.unpack(slot)?)))
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, charge: &Charge<'_>) -> Option<usize> {
        self.table.find(slot_hash(hash), |slot| slot.is_of(charge, &self.policies))
    }

    pub(crate) fn slot(&self, index: usize) -> Option<&Slot> {
        self.table.get(index)
    }

    /// The record of a slot.
    pub(crate) fn unpack(&self, slot: &Slot) -> Option<Record> {
        match slot {
            Slot::Whole(whole) => Some(whole.record.clone()),
            Slot::Short { numbers, .. } | Slot::Long { numbers, .. } => {
                self.policies.get(slot.policy()).map(|policy| numbers.record(policy))
            }
        }
    }

    /// Decides on one charge the shortest way, and takes it if it is admitted. `None`, and nothing has
    /// changed, where that is not enough.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        hash: u64,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
    ) -> Option<Verdict> {
        let Some(index) = self.find(hash, charge) else {
            return self.acquire_new(hash, charge, now, shared);
        };
        // What was taken makes a record recover later, never earlier: the table need not hear of it.
        match self.table.get_mut(index)? {
            Slot::Whole(whole) => acquire_log(whole, charge, now, shared),
            slot if self.policies.is(slot.policy(), charge.policy) => {
                slot.numbers_mut()?.acquire(charge, now)
            }
            _ => None,
        }
    }

    #[inline(never)]
    fn acquire_new(
        &mut self,
        hash: u64,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
    ) -> Option<Verdict> {
        if self.table.len() >= self.table.most() {
            return None;
        }
        let mut numbers = Numbers::NONE;
        let verdict = numbers.acquire(charge, now)?;
        if numbers != Numbers::NONE {
            if !shared.spill.reserve(Slot::spilled_by(charge.tenant, charge.subject)) {
                return None;
            }
            let policy = self.policies.intern(charge.policy);
            let slot = Slot::new(charge.tenant, charge.subject, policy, numbers);
            let (table, slots) = self.parts(shared);
            table.insert(slot_hash(hash), slot, &slots);
        }
        Some(verdict)
    }

    /// Changes the record at `index`.
    pub(crate) fn update(
        &mut self,
        index: usize,
        shared: &Shared,
        change: impl FnOnce(&mut Record),
    ) {
        let Self { table, policies, .. } = self;
        let Some(slot) = table.get_mut(index) else { return };
        let (before, older) = (slot.spilled(), slot.policy());
        match slot {
            Slot::Whole(whole) => {
                change(&mut whole.record);
                whole.policy = renamed(policies, older, &whole.record);
                if let (newer, Some(numbers)) = (whole.policy, Numbers::of(&whole.record)) {
                    *slot = Slot::new(whole.key.tenant(), whole.key.subject(), newer, numbers);
                }
            }
            Slot::Short { numbers, .. } | Slot::Long { numbers, .. } => {
                let Some(policy) = policies.get(older) else { return };
                let mut record = numbers.record(policy);
                change(&mut record);
                let newer = renamed(policies, older, &record);
                match Numbers::of(&record) {
                    Some(changed) if newer == older => *numbers = changed,
                    _ => *slot = slot.with(newer, record),
                }
            }
        }
        shared.spill.moved(before, slot.spilled());
        let (table, slots) = self.parts(shared);
        table.touched(index, &slots);
    }

    /// Inserts a record for a key that has none. Room was made before.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        charge: &Charge<'_>,
        record: Record,
        shared: &Shared,
    ) {
        let policy = self.policies.intern(record.policy());
        let slot = Slot::of(charge.tenant, charge.subject, policy, record);
        shared.spill.moved(0, slot.spilled());
        let (table, slots) = self.parts(shared);
        table.insert(slot_hash(hash), slot, &slots);
    }

    pub(crate) fn remove(&mut self, index: usize, shared: &Shared) {
        let (table, mut slots) = self.parts(shared);
        if let Some(slot) = table.remove(index, &slots) {
            slots.gone(slot);
        }
    }

    /// Counts a call, and now and then drops a few records that have recovered. Says how far away
    /// the shard is that should be looked after as well, if one should.
    #[inline]
    pub(crate) fn count(&mut self, now: u64, shared: &Shared) -> Option<usize> {
        self.calls = self.calls.wrapping_add(1);
        if !self.calls.is_multiple_of(CALLS_PER_SWEEP) {
            return None;
        }
        self.sweep_on(now, shared);
        Some(self.calls / CALLS_PER_SWEEP)
    }

    /// Drops a few records that have recovered, if it comes across some.
    pub(crate) fn sweep_on(&mut self, now: u64, shared: &Shared) {
        let (table, mut slots) = self.parts(shared);
        table.sweep_on(now, &mut slots);
    }

    /// Drops everything that has recovered.
    pub(crate) fn sweep_all(&mut self, now: u64, shared: &Shared) {
        let mut before = usize::MAX;
        while self.table.len() < before {
            before = self.table.len();
            let (table, mut slots) = self.parts(shared);
            table.sweep_any(now, &mut slots);
        }
    }

    fn parts<'s>(&'s mut self, shared: &'s Shared) -> (&'s mut Table<Slot>, Slots<'s>) {
        (&mut self.table, Slots { policies: &mut self.policies, shared })
    }

    /// Makes room for the records that are `missing`, and sets `bytes` aside for what they keep
    /// outside of the table. `pinned` records stay, unless they have recovered.
    pub(crate) fn make_room(
        &mut self,
        missing: impl Fn(&Self) -> usize,
        bytes: usize,
        now: u64,
        shared: &Shared,
        pinned: impl Fn(&Slot, &Policies) -> bool,
    ) -> Result<(), Error> {
        while self.table.len() + missing(self) > self.table.most() {
            if !self.make_one_go(Which::All, now, shared, &pinned) {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!(
                        "the subject's shard holds {} states of at most {}, and none may go",
                        self.table.len(),
                        self.table.most(),
                    ),
                ));
            }
        }
        while !shared.spill.reserve(bytes) {
            if !self.make_one_go(Which::Spilling, now, shared, &pinned) {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!(
                        "logs and long subjects take {} bytes of at most {}; {bytes} more do not \
                         fit, and nothing may go",
                        shared.spill.used(),
                        shared.spill.most(),
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Drops what has recovered, or else the record that would recover first, if that is allowed.
    fn make_one_go(
        &mut self,
        which: Which,
        now: u64,
        shared: &Shared,
        pinned: impl Fn(&Slot, &Policies) -> bool,
    ) -> bool {
        let before = self.table.len();
        let (table, mut slots) = self.parts(shared);
        table.sweep_any(now, &mut slots);
        if self.table.len() < before {
            return true;
        }
        if shared.when_full == WhenFull::Refuse {
            return false;
        }
        let (table, slots) = self.parts(shared);
        let may_go = |slot: &Slot| !pinned(slot, slots.policies);
        let Some(index) = table.soonest(which, may_go, &slots) else {
            return false;
        };
        self.remove(index, shared);
        // Else the next newcomer would look here first, in vain.
        let (table, slots) = self.parts(shared);
        table.look_again(index, &slots);
        true
    }
}

/// The same for a log, unless it would have to grow.
#[inline(never)]
fn acquire_log(
    whole: &mut Whole,
    charge: &Charge<'_>,
    now: u64,
    shared: &Shared,
) -> Option<Verdict> {
    let record = &mut whole.record;
    if Record::growth(Some(record), charge.policy) > 0 {
        return None;
    }
    let before = record.heap_bytes();
    let verdict = record.acquire_log(charge, now);
    shared.spill.moved(before, record.heap_bytes());
    verdict
}

/// The place of a record's policy after the record was changed.
fn renamed(policies: &mut Policies, older: Id, record: &Record) -> Id {
    if policies.is(older, record.policy()) {
        return older;
    }
    let newer = policies.intern(record.policy());
    policies.release(older);
    newer
}

/// The high bits of a hash choose the shard; this moves fresh ones to their place.
#[inline]
fn slot_hash(hash: u64) -> u64 {
    hash.rotate_left(32)
}
