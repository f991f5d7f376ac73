//! The smallest store: records in a map, behind one lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::engine::{self, Record, Records, RememberedCall};
use tidegate_core::{
    Answer, Call, Charge, Charges, Clock, Decision, Error, ManualClock, Policy, Store, Timestamp,
};

type Key = (String, Vec<u8>, Vec<u8>);

/// A store over [`tidegate_core::engine`], as small as a store can be: one lock, one map, no bound.
///
/// It is the example of how to write a store, and the store on which the suite and the engine are tested.
#[derive(Debug)]
pub struct ModelStore {
    clock: ManualClock,
    stored: Mutex<Stored>,
    drops_recovered: bool,
}

/// All records, and the calls that are remembered under their slot key and id.
#[derive(Debug, Default)]
struct Stored {
    records: BTreeMap<Key, Record>,
    calls: BTreeMap<(Vec<u8>, Vec<u8>), RememberedCall>,
}

impl ModelStore {
    /// A store with this clock, which drops a record as soon as it has recovered.
    #[must_use]
    pub fn new(clock: ManualClock) -> Self {
        Self { clock, stored: Mutex::default(), drops_recovered: true }
    }

    /// A store that drops no record by itself.
    #[must_use]
    pub fn keeping_all(clock: ManualClock) -> Self {
        Self { drops_recovered: false, ..Self::new(clock) }
    }

    /// All that is stored, as bytes that differ where anything differs.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        format!("{:?}", *self.lock()).into_bytes()
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        // Nothing is left half done by a caller that panicked: what can fail fails before a write.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for ModelStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        let mut stored = self.lock();
        let now = self.clock.now();
        // A clock at the last time there is stands still: there, recovery may still be to come.
        if self.drops_recovered && now < Timestamp::MAX {
            stored.records.retain(|_, record| record.recovers_at().is_none_or(|at| at > now));
            stored.calls.retain(|_, known| known.expires_at_micros > now.as_micros());
        }
        let scope = call.charges.get(0).map_or(&[][..], |charge| charge.slot_key());
        let id = call.id.map(|id| (scope.to_vec(), id.id.to_vec())).unwrap_or_default();
        let mut records = OfCall { all: &mut stored, charges: call.charges, id };
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

/// The records that a call is about.
struct OfCall<'s, 'c> {
    all: &'s mut Stored,
    charges: Charges<'c>,
    id: (Vec<u8>, Vec<u8>),
}

impl<'c> OfCall<'_, 'c> {
    fn charge(&self, place: usize) -> Option<(Key, Charge<'c>)> {
        let charge = self.charges.get(place)?;
        let name = charge.policy.state_name().to_string();
        Some(((name, charge.tenant.to_vec(), charge.state_subject().to_vec()), charge))
    }
}

impl Records for OfCall<'_, '_> {
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
