//! The smallest store: a map of records that is protected by one lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::engine::{self, Record, Records, RememberedCall};
use tidegate_core::{
    Answer, Call, Charge, Charges, Clock, Decision, Error, ManualClock, Policy, Store, Timestamp,
};

type Key = (String, Vec<u8>, Vec<u8>);

/// The smallest possible store that decides with [`tidegate_core::engine`]. It has one lock and one
/// map, and its memory is not bounded.
///
/// `ModelStore` is the example for authors of stores. The tests of the conformance suite and of the
/// engine use it.
#[derive(Debug)]
pub struct ModelStore {
    clock: ManualClock,
    stored: Mutex<Stored>,
    drops_recovered: bool,
}

/// The contents of the store: the records by key, and the recorded calls by slot key (the tenant,
/// or the subject without a tenant) and id.
#[derive(Debug, Default)]
struct Stored {
    records: BTreeMap<Key, Record>,
    calls: BTreeMap<(Vec<u8>, Vec<u8>), RememberedCall>,
}

impl ModelStore {
    /// Creates a store that takes its time from `clock`. The store drops a record as soon as the
    /// record has recovered.
    #[must_use]
    pub fn new(clock: ManualClock) -> Self {
        Self { clock, stored: Mutex::default(), drops_recovered: true }
    }

    /// Creates a store that never drops a record by itself.
    #[must_use]
    pub fn keeping_all(clock: ManualClock) -> Self {
        Self { drops_recovered: false, ..Self::new(clock) }
    }

    /// Returns the complete contents of the store as bytes. Different contents give different
    /// bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        format!("{:?}", *self.lock()).into_bytes()
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Returns `true` if the store contains no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        // A panic of a caller poisons the lock, but leaves the records valid, because the engine
        // fails only before it writes.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for ModelStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let mut stored = self.lock();
        let now = self.clock.now();
        // A record can recover after `Timestamp::MAX`, the last time that the clock can show. So at
        // this last time, the store drops no record.
        if self.drops_recovered && now < Timestamp::MAX {
            stored.records.retain(|_, record| record.recovers_at().is_none_or(|at| at > now));
            stored.calls.retain(|_, known| known.expires_at_micros > now.as_micros());
        }
        let scope = call.charges.get(0).map_or(&[][..], |charge| charge.slot_key());
        let id = call.id.map(|id| (scope.to_vec(), id.id.to_vec())).unwrap_or_default();
        let mut records = CallRecords { all: &mut stored, charges: call.charges, id };
        Answer::ready(engine::decide(&call, now, &mut records))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.clock.now()))
    }

    fn answers_immediately(&self) -> bool {
        true
    }

    fn supports(&self, _: &Policy) -> Result<(), Error> {
        Ok(())
    }
}

struct CallRecords<'s, 'c> {
    all: &'s mut Stored,
    charges: Charges<'c>,
    id: (Vec<u8>, Vec<u8>),
}

impl<'c> CallRecords<'_, 'c> {
    fn charge(&self, place: usize) -> Option<(Key, Charge<'c>)> {
        let charge = self.charges.get(place)?;
        let name = charge.policy.state_name().to_string();
        Some(((name, charge.tenant.to_vec(), charge.state_subject().to_vec()), charge))
    }
}

impl Records for CallRecords<'_, '_> {
    fn get(&mut self, place: usize) -> Option<&Record> {
        self.all.records.get(&self.charge(place)?.0)
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, place: usize, change: impl FnOnce(&mut Record)) {
        if let Some((key, charge)) = self.charge(place) {
            change(self.all.records.entry(key).or_insert_with(|| Record::new(charge.policy)));
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some((key, _)) = self.charge(place) {
            self.all.records.remove(&key);
        }
    }

    fn remembered(&mut self) -> Result<Option<RememberedCall>, Error> {
        Ok(self.all.calls.get(&self.id).cloned())
    }

    fn remember(&mut self, call: RememberedCall) {
        self.all.calls.insert(self.id.clone(), call);
    }
}
