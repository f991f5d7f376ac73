//! One shard of the store: a table of records, and what happens when it is full.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use tidegate_core::engine::Record;
use tidegate_core::{Charge, Error, ErrorKind};

use crate::WhenFull;
use crate::key::Key;
use crate::spill::Spill;
use crate::table::{Item, Table, Which};

/// A record and its key.
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) record: Record,
}

impl Entry {
    /// Bytes on the heap.
    fn spilled(&self) -> usize {
        self.key.heap_bytes() + self.record.heap_bytes()
    }

    pub(crate) fn is_of(&self, charge: &Charge<'_>) -> bool {
        let policy = self.record.policy();
        self.key.is(charge.tenant, charge.state_subject())
            && (policy.is_same_object(charge.policy) || policy.name() == charge.policy.name())
    }
}

impl Item for Entry {
    fn recovers_at(&self) -> u64 {
        self.record.recovers_at()
    }

    fn spills(&self) -> bool {
        self.spilled() > 0
    }
}

/// What all shards share.
pub(crate) struct Shared {
    pub(crate) hasher: RandomState,
    pub(crate) spill: Spill,
    pub(crate) when_full: WhenFull,
}

impl Shared {
    pub(crate) fn hash(&self, charge: &Charge<'_>) -> u64 {
        self.hash_parts(charge.policy.name_hash(), charge.tenant, charge.state_subject())
    }

    fn hash_entry(&self, entry: &Entry) -> u64 {
        let name_hash = entry.record.policy().name_hash();
        self.hash_parts(name_hash, entry.key.tenant(), entry.key.subject())
    }

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

pub(crate) struct Shard {
    table: Table<Entry>,
    /// Calls that came to this shard.
    calls: usize,
}

/// One call in so many also looks after another shard, in turn: some shards may get no calls.
const CALLS_PER_VISIT: usize = 8;

impl Shard {
    pub(crate) fn new(most: usize) -> Self {
        Self { table: Table::new(most), calls: 0 }
    }

    pub(crate) fn table(&self) -> &Table<Entry> {
        &self.table
    }

    pub(crate) fn find(&self, hash: u64, charge: &Charge<'_>) -> Option<usize> {
        self.table.find(slot_hash(hash), |entry| entry.is_of(charge))
    }

    pub(crate) fn record(&self, index: usize) -> Option<&Record> {
        self.table.get(index).map(|entry| &entry.record)
    }

    /// Changes the record at `index`.
    pub(crate) fn update(
        &mut self,
        index: usize,
        shared: &Shared,
        change: impl FnOnce(&mut Record),
    ) {
        let Some(entry) = self.table.get_mut(index) else {
            return;
        };
        let spilled = entry.record.heap_bytes();
        change(&mut entry.record);
        shared.spill.moved(spilled, entry.record.heap_bytes());
        self.table.touched(index);
    }

    /// Inserts a record for a key that has none. Room was made before.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        charge: &Charge<'_>,
        record: Record,
        shared: &Shared,
    ) {
        let entry = Entry { key: Key::new(charge.tenant, charge.state_subject()), record };
        shared.spill.moved(0, entry.spilled());
        self.table.insert(slot_hash(hash), entry, |entry| slot_hash(shared.hash_entry(entry)));
    }

    pub(crate) fn remove(&mut self, index: usize, shared: &Shared) {
        let hash_of = |entry: &Entry| slot_hash(shared.hash_entry(entry));
        if let Some(entry) = self.table.remove(index, hash_of) {
            shared.spill.moved(entry.spilled(), 0);
        }
    }

    /// How far away the shard is that this call should look after as well, if it should.
    pub(crate) fn visit(&mut self) -> Option<usize> {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(CALLS_PER_VISIT).then_some(self.calls / CALLS_PER_VISIT)
    }

    /// Drops a few records that have recovered, if it comes across some.
    pub(crate) fn sweep_on(&mut self, now: u64, shared: &Shared) {
        let hash_of = |entry: &Entry| slot_hash(shared.hash_entry(entry));
        self.table.sweep_on(now, hash_of, |entry| shared.spill.moved(entry.spilled(), 0));
    }

    /// Drops everything that has recovered.
    pub(crate) fn sweep_all(&mut self, now: u64, shared: &Shared) {
        let hash_of = |entry: &Entry| slot_hash(shared.hash_entry(entry));
        let mut before = usize::MAX;
        while self.table.len() < before {
            before = self.table.len();
            self.table.sweep_any(now, hash_of, |entry| shared.spill.moved(entry.spilled(), 0));
        }
    }

    /// Makes room for the records that are `missing`, and sets `bytes` aside for what they keep
    /// outside of the table. `pinned` records stay, unless they have recovered.
    pub(crate) fn make_room(
        &mut self,
        missing: impl Fn(&Self) -> usize,
        bytes: usize,
        now: u64,
        shared: &Shared,
        pinned: impl Fn(&Entry) -> bool,
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
        pinned: impl Fn(&Entry) -> bool,
    ) -> bool {
        let before = self.table.len();
        let hash_of = |entry: &Entry| slot_hash(shared.hash_entry(entry));
        self.table.sweep_any(now, hash_of, |entry| shared.spill.moved(entry.spilled(), 0));
        if self.table.len() < before {
            return true;
        }
        if shared.when_full == WhenFull::Refuse {
            return false;
        }
        let Some(index) = self.table.soonest(which, |entry| !pinned(entry)) else {
            return false;
        };
        self.remove(index, shared);
        // Else the next newcomer would look here first, in vain.
        self.table.look_again(index);
        true
    }
}

/// The high bits of a hash choose the shard; this moves fresh ones to their place.
fn slot_hash(hash: u64) -> u64 {
    hash.rotate_left(32)
}
