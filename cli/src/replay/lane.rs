use super::tally::{Tally, would_admit};
use super::{Decisions, Error};
use crate::report::PolicyReport;
use crate::trace::{Record, Subjects};
use tidegate_core::{Call, Charge, ErrorKind, ManualClock, Policy, Store, Timestamp};
use tidegate_memory::{MemoryStore, WhenFull};

/// One policy on a store of its own, in the time of the records.
#[derive(Debug)]
pub struct Lane {
    policy: Policy,
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
    tally: Tally,
    decisions: Option<Decisions>,
}

impl Lane {
    pub(super) fn new(policy: &Policy, keep_decisions: bool) -> Result<Self, Error> {
        let clock = ManualClock::default();
        let store = store(clock.clone());
        store.supports(policy)?;
        let decisions =
            keep_decisions.then(Decisions::new).transpose().map_err(Error::Decisions)?;
        Ok(Self { policy: policy.clone(), clock, store, tally: Tally::default(), decisions })
    }

    #[inline]
    pub(super) fn decide(&mut self, record: Record, subject: &[u8]) -> Result<(), Error> {
        self.clock.set(Timestamp::from_micros(record.time));
        let charge = [Charge::new(&self.policy, subject).cost(record.cost)];
        let answer = self.store.decide(Call::acquire(&charge));
        let decision = answer.into_ready().map_err(|_| {
            tidegate_core::Error::new(ErrorKind::Timeout, "the store did not answer at once")
        })??;
        self.tally.count(record, &decision);
        if let Some(decisions) = &mut self.decisions {
            decisions.push(would_admit(&decision)).map_err(Error::Decisions)?;
        }
        Ok(())
    }

    pub(super) fn restart(&mut self) {
        self.store = store(self.clock.clone());
        self.tally = Tally::default();
        if let Some(decisions) = &mut self.decisions {
            // A file that cannot be emptied cannot be written either, which is told at the next
            // record.
            let _ = decisions.clear();
        }
    }

    pub(super) fn report(&self, subjects: &Subjects) -> PolicyReport {
        self.tally.report(&self.policy, subjects)
    }

    /// The decisions, if they were to be kept.
    pub fn decisions(&mut self) -> Option<&mut Decisions> {
        self.decisions.as_mut()
    }
}

/// A replay is exact or fails: nothing is evicted that still matters.
fn store(clock: ManualClock) -> MemoryStore<ManualClock> {
    MemoryStore::builder()
        .clock(clock)
        .max_keys(1 << 26)
        .max_spill_bytes(usize::MAX)
        .when_full(WhenFull::Refuse)
        .build()
}
