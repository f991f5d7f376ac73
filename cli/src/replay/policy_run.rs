use std::time::Duration;

use smallvec::SmallVec;

use super::grants::Grant;
use super::leased::{Leased, Leasing};
use super::stores::Stores;
use super::tally::{Tally, would_admit};
use super::{Decisions, Error};
use crate::report::{LeasedRun, PolicyReport};
use crate::trace::{Record, Subjects};
use tidegate_core::{
    Answer, Call, CallId, Charge, CurrentLimits, Decision, ErrorKind, LimitSet, ManualClock,
    Operation, Policy, Store, Timestamp,
};

/// The number of states that are deleted in one call.
const BATCH: usize = 64;

/// The subject of a pool that is not fair, and the tenant of all charges of a replay with a pool.
const POOL: &[u8] = b"pool";

/// The charges of a record.
pub(super) type Charges<'a> = SmallVec<[Charge<'a>; 2]>;

/// The time for which a store remembers the id of a grant. It only needs to be longer than the time
/// in which a store repeats a call.
const MEMORY_OF_GRANTS: Duration = Duration::from_secs(60);

/// One policy with its own store. It decides each record at the time of the record.
#[derive(Debug)]
pub struct PolicyRun {
    policy: Policy,
    /// The pool that pays for requests that the policy refuses.
    pool: Option<Policy>,
    /// The run with which this run is compared. It decides the same records.
    before: Option<Box<PolicyRun>>,
    clock: ManualClock,
    /// The limit set that the store applies.
    limits: CurrentLimits,
    stores: Stores,
    store: Box<dyn Store>,
    /// The store of the first pass, if the replay was restarted to sort the records. The states in
    /// this store must be deleted too.
    stale: Option<Box<dyn Store>>,
    tally: Tally,
    decisions: Option<Decisions>,
    leased: Option<Leased>,
}

impl PolicyRun {
    pub(super) fn new(
        policy: &Policy,
        stores: Stores,
        keep_decisions: bool,
    ) -> Result<Self, Error> {
        let clock = ManualClock::default();
        let limits = CurrentLimits::with_clock(LimitSet::new(), clock.clone());
        let store = stores.open(clock.clone(), limits.clone())?;
        store.supports(policy)?;
        let decisions =
            keep_decisions.then(Decisions::new).transpose().map_err(Error::Decisions)?;
        let (policy, tally) = (policy.clone(), Tally::new(policy, None));
        let (stale, leased, pool, before) = (None, None, None, None);
        Ok(Self {
            policy,
            pool,
            before,
            clock,
            limits,
            stores,
            store,
            stale,
            tally,
            decisions,
            leased,
        })
    }

    /// Sets the limits that replace the policy of this run.
    pub(super) fn adjust(&self, set: &LimitSet) -> Result<(), Error> {
        set.check(&*self.store)?;
        self.limits.replace(set.clone());
        Ok(())
    }

    /// Sets that this run is compared with a run in which `set` replaces the policy.
    pub(super) fn compare_with(&mut self, set: &LimitSet) -> Result<(), Error> {
        let mut before = Self::new(&self.policy, self.stores.clone(), false)?;
        before.adjust(set)?;
        before.pool.clone_from(&self.pool);
        self.before = Some(Box::new(before));
        Ok(())
    }

    /// Sets the pool that pays for requests that the policy refuses.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy and the pool cannot be alternatives.
    pub(super) fn spill_to(&mut self, pool: &Policy) -> Result<(), Error> {
        self.store.supports(pool)?;
        self.pool = Some(pool.clone());
        self.tally = Tally::new(&self.policy, Some(pool));
        let charges = self.charges(1, b"subject");
        Call::acquire(&charges).check()?;
        drop(charges);
        self.before.as_mut().map_or(Ok(()), |before| before.spill_to(pool))
    }

    /// Sets that this run also decides each record with leases.
    pub(super) fn lease(&mut self, settings: Leasing) {
        self.leased = Some(Leased::new(settings));
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Decides a record.
    #[inline]
    pub(super) fn decide(&mut self, record: Record, subject: &[u8]) -> Result<(), Error> {
        let decision = {
            let charges = self.charges(record.cost, subject);
            self.stores.wait(self.ask(record, &charges))?
        };
        self.count(record, subject, &decision)
    }

    /// Returns the charges of a request: the charge to the policy, and its alternative if there is
    /// a pool.
    #[inline]
    pub(super) fn charges<'a>(&'a self, cost: u64, subject: &'a [u8]) -> Charges<'a> {
        let own = self.own(subject).cost(cost);
        let mut charges = Charges::new();
        match &self.pool {
            None => charges.push(own),
            Some(pool) => {
                let member = if pool.is_fair_pool() { subject } else { POOL };
                let pool = Charge::new(pool, member).tenant(POOL).cost(cost);
                charges.extend([own, pool].map(|charge| charge.in_list(1)));
            }
        }
        charges
    }

    /// Sets the clock to the time of a record, and starts the decision about this record.
    #[inline]
    pub(super) fn ask<'a>(
        &'a self,
        record: Record,
        charges: &'a [Charge<'a>],
    ) -> Answer<'a, Result<Decision, tidegate_core::Error>> {
        self.clock.set(Timestamp::from_micros(record.time));
        self.store.decide(Call::acquire(charges))
    }

    /// Returns a charge to the policy itself. With a pool, all charges have one tenant, so that
    /// their states are in one slot of a cluster.
    fn own<'a>(&'a self, subject: &'a [u8]) -> Charge<'a> {
        let charge = Charge::new(&self.policy, subject);
        if self.pool.is_some() { charge.tenant(POOL) } else { charge }
    }

    /// Makes a grant at its time, if the policy is a quota or has credits.
    pub(super) fn grant(&mut self, grant: Grant<'_>) -> Result<(), Error> {
        if !self.policy.is_quota() {
            return Ok(());
        }
        if let Some(before) = &mut self.before {
            before.grant(grant)?;
        }
        self.clock.set(Timestamp::from_micros(grant.time));
        let charge = [self.own(grant.subject).cost(grant.amount)];
        let (operation, id) =
            (Operation::Grant { ends_at: grant.ends_at }, grant.number.to_be_bytes());
        let call = Call::new(operation, &charge).with_id(CallId::new(&id, MEMORY_OF_GRANTS));
        match self.stores.wait(self.store.decide(call)) {
            Ok(_) => self.tally.count_grant(Some(grant.amount)),
            Err(error) if error.kind() == ErrorKind::TooManyGrants => self.tally.count_grant(None),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Counts the decision about a record.
    #[inline]
    pub(super) fn count(
        &mut self,
        record: Record,
        subject: &[u8],
        decision: &Decision,
    ) -> Result<(), Error> {
        self.tally.count(record, decision);
        if let Some(decisions) = &mut self.decisions {
            decisions.push(would_admit(decision)).map_err(Error::Decisions)?;
        }
        if let Some(leased) = &mut self.leased {
            leased.decide(&self.policy, record, subject, would_admit(decision))?;
        }
        match &mut self.before {
            Some(before) => before.decide(record, subject),
            None => Ok(()),
        }
    }

    pub(super) fn restart(&mut self) {
        // Opening a store cannot fail here: it does not connect to a server, and `new` has opened a
        // store with the same settings.
        if let Ok(fresh) = self.stores.open(self.clock.clone(), self.limits.clone()) {
            self.stale = Some(std::mem::replace(&mut self.store, fresh));
        }
        self.tally = Tally::new(&self.policy, self.pool.as_ref());
        if let Some(decisions) = &mut self.decisions {
            // If the file of the decisions cannot be emptied, writing the next decision to it fails
            // too, and that error is returned.
            let _ = decisions.clear();
        }
        if let Some(leased) = &mut self.leased {
            leased.restart();
        }
        if let Some(before) = &mut self.before {
            before.restart();
        }
    }

    /// Deletes the states of all subjects. The state of a fair pool cannot be reset, because it
    /// belongs to all members. A refund after its last window deletes it.
    pub(super) fn clean_up(&self, subjects: &[&[u8]]) -> Result<(), Error> {
        let mut charges: Vec<_> = subjects.iter().map(|subject| [self.own(subject)]).collect();
        charges.extend(self.pool.iter().map(|pool| [Charge::new(pool, POOL).tenant(POOL)]));
        let (mut pools, others): (Vec<_>, Vec<_>) =
            charges.into_iter().partition(|[charge]| charge.policy.is_fair_pool());
        // All members have one state, so one refund deletes it.
        pools.dedup_by(|[later], [first]| later.shares_state_with(first));
        self.delete(Operation::Reset, &others)?;
        self.clock.set(Timestamp::MAX);
        self.delete(Operation::Refund, &pools)?;
        self.before.as_ref().map_or(Ok(()), |before| before.clean_up(subjects))
    }

    fn delete(&self, operation: Operation, charges: &[[Charge<'_>; 1]]) -> Result<(), Error> {
        let calls: Vec<_> = charges.iter().map(|charge| Call::new(operation, charge)).collect();
        for store in std::iter::once(&self.store).chain(&self.stale) {
            for batch in calls.chunks(BATCH) {
                let answers = Answer::later(async { Ok(store.decide_many(batch).await) });
                for answer in self.stores.wait(answers)? {
                    let _ = answer?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn report(&self, subjects: &Subjects) -> PolicyReport {
        let report = self.tally.report(&self.policy, self.pool.as_ref(), subjects);
        let compared =
            self.before.as_ref().map(|before| self.tally.compared_with(&before.tally, subjects));
        PolicyReport { compared, ..report }
    }

    /// Returns the report about leases, or `None` if this run has no leases.
    pub(super) fn leased(&self) -> Option<LeasedRun> {
        self.leased.as_ref().map(|leased| leased.report(&self.policy))
    }

    /// Returns the decisions, if they are stored.
    pub fn decisions(&mut self) -> Option<&mut Decisions> {
        self.decisions.as_mut()
    }
}
