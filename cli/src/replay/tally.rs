use std::time::Duration;

use super::days::Days;
use super::shares::Shares;
use super::timeline::Timeline;
use crate::report::{
    ComparedReport, ComparedSubject, GrantsReport, Offender, PolicyReport, PoolReport,
    WarningsReport, escape,
};
use crate::trace::{Record, Subjects};
use tidegate_core::{Decision, Outcome, Policy, Verdict};

/// The maximum number of subjects in a list of a report.
pub(super) const LISTED: usize = 20;

/// The counted decisions of a policy.
#[derive(Debug, Default)]
pub(super) struct Tally {
    admitted: u64,
    denied: u64,
    cost_admitted: u64,
    cost_denied: u64,
    never: u64,
    max_wait: Option<Duration>,
    by_subject: Vec<Counts>,
    timeline: Timeline,
    days: Option<Days>,
    shares: Option<Shares>,
    /// The shares of the pool that pays for requests which the policy refuses.
    pool_shares: Option<Shares>,
    grants: GrantsReport,
    /// The requests that the pool has paid for.
    pool: PoolReport,
    warns: bool,
    /// The limit of credits, or `None` for other policies. A later grant can admit any cost up to
    /// this limit, although a denial has no wait.
    credits: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    requests: u64,
    denied: u64,
    warned: u64,
}

impl Tally {
    /// Creates a tally of a policy, and of the pool that pays for requests which the policy
    /// refuses.
    pub(super) fn new(policy: &Policy, pool: Option<&Policy>) -> Self {
        let credits = policy.is_credits().then(|| policy.limit());
        let warns = policy.warn_percent().is_some();
        let (days, shares) = (Days::new(policy), Shares::new(policy));
        let pool_shares = pool.and_then(Shares::new);
        Self { days, shares, pool_shares, credits, warns, ..Self::default() }
    }

    pub(super) fn count(&mut self, record: Record, decision: &Decision) {
        let admitted = would_admit(decision);
        let subject = record.subject as usize;
        if subject >= self.by_subject.len() {
            self.by_subject.resize(subject + 1, Counts::default());
        }
        let counts = &mut self.by_subject[subject];
        counts.requests += 1;
        counts.warned += u64::from(decision.warnings().next().is_some());
        if admitted {
            self.admitted += 1;
            self.cost_admitted = self.cost_admitted.saturating_add(record.cost);
            if pool_pays(decision) {
                self.pool.admitted += 1;
                self.pool.cost_admitted = self.pool.cost_admitted.saturating_add(record.cost);
            }
        } else {
            counts.denied += 1;
            self.denied += 1;
            self.cost_denied = self.cost_denied.saturating_add(record.cost);
            // With a pool, the verdict that refuses has the shorter of the two waits.
            let refusal = decision.refused_by().next().unwrap_or(0);
            let verdict = decision.verdicts().get(refusal);
            // A list denies a subject, whatever the cost.
            let is_listed = verdict.is_some_and(|verdict| verdict.outcome() == Outcome::DenyListed);
            match verdict.and_then(Verdict::retry_after) {
                Some(wait) => self.max_wait = self.max_wait.max(Some(wait)),
                None if is_listed => {}
                None if self.credits.is_some_and(|credits| record.cost <= credits) => {}
                None => self.never += 1,
            }
        }
        self.timeline.count(record.time, admitted);
        if let Some(days) = &mut self.days {
            days.count(record.time, admitted);
        }
        let outcome =
            |place: usize| decision.verdicts().get(place).map(|verdict| verdict.outcome());
        if let Some(shares) = &mut self.shares {
            shares.count(record, outcome(0));
        }
        if let Some(shares) = &mut self.pool_shares
            && matches!(outcome(0), Some(Outcome::Denied | Outcome::Skipped))
        {
            shares.count(record, outcome(1));
        }
    }

    /// Counts a grant. `made` is its amount, or `None` if the store refused it.
    pub(super) fn count_grant(&mut self, made: Option<u64>) {
        let GrantsReport { amount, made: count, refused } = &mut self.grants;
        match made {
            Some(granted) => {
                *count += 1;
                *amount = amount.saturating_add(granted);
            }
            None => *refused += 1,
        }
    }

    pub(super) fn report(
        &self,
        policy: &Policy,
        pool: Option<&Policy>,
        subjects: &Subjects,
    ) -> PolicyReport {
        let mut denied: Vec<(usize, Counts)> =
            self.by_subject.iter().copied().enumerate().filter(|(_, c)| c.denied > 0).collect();
        let subjects_denied = denied.len() as u64;
        // Subjects with equally many denials are listed in the order in which they were first seen.
        denied.sort_by_key(|&(subject, counts)| (std::cmp::Reverse(counts.denied), subject));
        let offender = |(subject, counts): (usize, Counts)| Offender {
            subject: printable(subjects, subject),
            requests: counts.requests,
            denied: counts.denied,
        };
        let warned = self.by_subject.iter().filter(|counts| counts.warned > 0);
        let warnings = self.warns.then(|| WarningsReport {
            requests: warned.clone().map(|counts| counts.warned).sum(),
            subjects: warned.count() as u64,
        });
        let micros = |wait: Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        PolicyReport {
            policy: policy.to_string(),
            algorithm: policy.algorithm().keyword().to_owned(),
            admitted: self.admitted,
            denied: self.denied,
            cost_admitted: self.cost_admitted,
            cost_denied: self.cost_denied,
            never: self.never,
            subjects_denied,
            max_wait: self.max_wait.map(micros),
            offenders: denied.into_iter().take(LISTED).map(offender).collect(),
            timeline: self.timeline.report(),
            grants: (self.grants != GrantsReport::default()).then_some(self.grants),
            warnings,
            compared: None,
            pool: pool.map(|pool| PoolReport {
                policy: pool.to_string(),
                shares: self.pool_shares.as_ref().map(|shares| shares.report(subjects)),
                ..self.pool.clone()
            }),
            shares: self.shares.as_ref().map(|shares| shares.report(subjects)),
            days: self.days.as_ref().map(Days::report).unwrap_or_default(),
        }
    }

    /// Compares the denials of each subject with those of an earlier limit.
    pub(super) fn compared_with(&self, before: &Self, subjects: &Subjects) -> ComparedReport {
        let pairs = self.by_subject.iter().zip(&before.by_subject).enumerate();
        let changed = |more: fn(&Counts, &Counts) -> bool| {
            pairs.clone().filter(move |(_, (now, before))| more(now, before))
        };
        let mut more: Vec<_> = changed(|now, before| now.denied > before.denied).collect();
        more.sort_by_key(|&(subject, (now, before))| {
            (std::cmp::Reverse(now.denied - before.denied), subject)
        });
        let compared = |&(subject, (now, before)): &(usize, (&Counts, &Counts))| ComparedSubject {
            subject: printable(subjects, subject),
            requests: now.requests,
            denied_before: before.denied,
            denied: now.denied,
        };
        ComparedReport {
            subjects_new: changed(|now, before| now.denied > 0 && before.denied == 0).count()
                as u64,
            subjects_more: more.len() as u64,
            subjects_fewer: changed(|now, before| now.denied < before.denied).count() as u64,
            denied_before: before.denied,
            subjects: more.iter().take(LISTED).map(compared).collect(),
        }
    }
}

/// Returns the text of the subject with this number.
pub(super) fn printable(subjects: &Subjects, subject: usize) -> String {
    let bytes = u32::try_from(subject).ok().and_then(|subject| subjects.get(subject));
    escape::printable(bytes.unwrap_or_default())
}

/// Returns `true` if the second charge, which is the charge to the pool, pays.
fn pool_pays(decision: &Decision) -> bool {
    decision.verdicts().get(1).is_some_and(|verdict| verdict.outcome() == Outcome::Allowed)
}

/// Returns `true` if every policy of the decision allowed the request. For a shadow, this is the
/// decision that an enforced policy would have made, because a replay also reports the denials of a
/// shadow.
pub(super) fn would_admit(decision: &Decision) -> bool {
    let passes =
        |verdict: &Verdict| matches!(verdict.outcome(), Outcome::Allowed | Outcome::Skipped);
    decision.verdicts().iter().all(passes)
}
