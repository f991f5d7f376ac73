//! What became of each call, by the callers' account and by that of the server.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_cluster::{Call, Charge, Decision, Error, ErrorKind, Operation, Policy, Store};
use tokio::time::Instant;

use crate::fault::Fault;

/// What a caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Refused,
    /// An error; or a decision that was made otherwise, as there was one.
    Failed(ErrorKind),
    /// The caller did not wait for the answer.
    GivenUp,
}

impl Outcome {
    pub(crate) fn of(answer: Option<Result<Decision, Error>>) -> Self {
        match answer {
            None => Self::GivenUp,
            Some(Err(error)) => Self::Failed(error.kind()),
            Some(Ok(decision)) => match decision.degraded() {
                Some(degraded) => Self::Failed(degraded.reason),
                None if decision.is_allowed() => Self::Admitted,
                None => Self::Refused,
            },
        }
    }

    pub(crate) fn is_decided(self) -> bool {
        matches!(self, Self::Admitted | Self::Refused)
    }
}

/// A call that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    number: usize,
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    pub(crate) outcome: Outcome,
}

/// All calls of a row.
pub(crate) struct Ledger {
    tenant: String,
    /// Of the subjects that one call each is made for.
    own: Policy,
    /// Of the subject that is called for in between: of several settings, they take turns.
    shared: Vec<Policy>,
    next: AtomicUsize,
    entries: Mutex<Vec<Entry>>,
}

/// One call of so many is for the shared subject.
const SHARED: usize = 4;
/// Much more than one call takes, so that a second charge shows.
const OWN_LIMIT: u64 = 9;
const SHARED_LIMIT: u64 = 20;

impl Ledger {
    pub(crate) fn new(fault: Fault, tenant: &str) -> Self {
        let shared = match fault {
            Fault::SettingsInTurns => &["10d", "9d"][..],
            _ => &["10d"],
        };
        let shared = shared.iter().map(|span| {
            format!("shared: fixed-window {SHARED_LIMIT}/{span} anchored").parse().unwrap()
        });
        Self {
            tenant: tenant.to_owned(),
            own: format!("own: fixed-window {OWN_LIMIT}/10d anchored").parse().unwrap(),
            shared: shared.collect(),
            next: AtomicUsize::new(0),
            entries: Mutex::default(),
        }
    }

    /// The number of the next call.
    pub(crate) fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a call.
    pub(crate) async fn call(&self, store: &dyn Store, number: usize) -> Result<Decision, Error> {
        let subject = subject_of(number);
        let charge = Charge::new(self.policy_of(number), &subject).tenant(&self.tenant);
        store.decide(Call::acquire(&[charge])).await
    }

    pub(crate) fn enter(&self, number: usize, asked: Instant, outcome: Outcome) {
        let entry = Entry { number, asked, answered: Instant::now(), outcome };
        self.entries.lock().unwrap().push(entry);
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    fn policy_of(&self, number: usize) -> &Policy {
        if is_shared(number) {
            &self.shared[number / SHARED % self.shared.len()]
        } else {
            &self.own
        }
    }

    /// Compares the account with what the server has. Returns where they differ.
    pub(crate) async fn look_up(&self, observer: &dyn Store) -> Vec<String> {
        let entries = self.entries();
        let mut findings = HashSet::new();
        let own: Vec<&Entry> = entries.iter().filter(|entry| !is_shared(entry.number)).collect();
        let subjects: Vec<String> = own.iter().map(|entry| subject_of(entry.number)).collect();
        let used = used(observer, &self.own, &self.tenant, &subjects).await;
        for (entry, used) in own.into_iter().zip(used) {
            let finding = match (entry.outcome, used) {
                (_, 2..) => "charged twice",
                (Outcome::Admitted, 0) => "answered, and not charged",
                (Outcome::Refused, _) => "refused, though nothing else charged its subject",
                (Outcome::Failed(kind), 1) if kind.is_surely_not_charged() => {
                    "charged, though surely not"
                }
                _ => continue,
            };
            findings.insert(format!("{finding}: {:?}", entry.outcome));
        }

        let admitted = entries.iter().filter(|entry| is_shared(entry.number));
        let admitted = admitted.filter(|entry| entry.outcome == Outcome::Admitted).count() as u64;
        let most = SHARED_LIMIT * self.shared.len() as u64;
        let mut counted = 0;
        for policy in &self.shared {
            counted += used_of(observer, policy, &self.tenant).await;
        }
        if admitted > most {
            findings.insert(format!("of {most} {admitted} were admitted"));
        }
        if admitted > counted {
            findings.insert(format!("{admitted} were admitted, and {counted} are charged"));
        }
        findings.into_iter().collect()
    }
}

fn is_shared(number: usize) -> bool {
    number.is_multiple_of(SHARED)
}

fn subject_of(number: usize) -> String {
    if is_shared(number) { "shared".to_owned() } else { format!("s{number}") }
}

async fn used_of(observer: &dyn Store, policy: &Policy, tenant: &str) -> u64 {
    used(observer, policy, tenant, &["shared".to_owned()]).await[0]
}

/// How much is taken of the limit of each subject.
async fn used(
    observer: &dyn Store,
    policy: &Policy,
    tenant: &str,
    subjects: &[String],
) -> Vec<u64> {
    let charges = subjects.iter().map(|subject| [Charge::new(policy, subject).tenant(tenant)]);
    let charges: Vec<_> = charges.collect();
    let peek = |charge| Call::new(Operation::Peek, charge);
    let calls: Vec<_> = charges.iter().map(|charge| peek(charge)).collect();
    let answers = observer.decide_many(&calls).await.into_iter();
    answers.map(|answer| policy.limit() - answer.unwrap().verdicts()[0].remaining()).collect()
}
