//! A ledger of all calls. It compares the outcome that the caller of a call sees with the states on
//! the servers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_cluster::{Call, Charge, Decision, Error, ErrorKind, Operation, Policy, Store};
use tidegate_memory::MemoryStore;
use tokio::time::Instant;

use crate::fault::Fault;

/// The result of a call for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Refused,
    /// The call failed with an error, or an error caused a layer to make a degraded decision.
    Failed(ErrorKind),
    /// The caller stopped waiting before the answer arrived.
    GivenUp,
}

impl Outcome {
    pub(crate) fn from_answer(answer: Option<Result<Decision, Error>>) -> Self {
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
    pub(crate) started: Instant,
    pub(crate) answered: Instant,
    pub(crate) outcome: Outcome,
}

/// All calls of a row of the matrix. A row is one combination of layers, store and fault.
pub(crate) struct Ledger {
    tenant: String,
    /// A second tenant, if the store is a cluster. The slot of this tenant is on another node than
    /// the slot of `tenant`. Some calls charge both tenants.
    other_tenant: Option<String>,
    /// The policy for subjects that only one call uses.
    own: Policy,
    /// The policy for the subject that many calls share. If there are several settings of the
    /// policy, the calls alternate between them.
    shared: Vec<Policy>,
    next: AtomicUsize,
    entries: Mutex<Vec<Entry>>,
}

/// Every fourth call is for the shared subject.
const SHARED: usize = 4;
/// Every fifth call is a call across slots, if the ledger has another tenant.
const ACROSS: usize = 5;
/// The limit of a subject that only one call uses. It is greater than 1, so that the test detects a
/// call that is charged twice.
const OWN_LIMIT: u64 = 9;
const SHARED_LIMIT: u64 = 20;

impl Ledger {
    pub(crate) fn new(fault: Fault, tenant: &str, other_tenant: Option<&str>) -> Self {
        let shared = match fault {
            Fault::SettingsInTurns => &["10d", "9d"][..],
            _ => &["10d"],
        };
        let shared = shared.iter().map(|span| {
            format!("shared: fixed-window {SHARED_LIMIT}/{span} anchored").parse().unwrap()
        });
        Self {
            tenant: tenant.to_owned(),
            other_tenant: other_tenant.map(str::to_owned),
            own: format!("own: fixed-window {OWN_LIMIT}/10d anchored").parse().unwrap(),
            shared: shared.collect(),
            next: AtomicUsize::new(0),
            entries: Mutex::default(),
        }
    }

    /// Reserves and returns the numbers of the next `count` calls.
    pub(crate) fn next(&self, count: usize) -> Range<usize> {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }

    /// Makes the calls with the given numbers. If there are several calls, they form one batch.
    pub(crate) async fn call(
        &self,
        store: &dyn Store,
        numbers: Range<usize>,
    ) -> Vec<Result<Decision, Error>> {
        let subjects: Vec<String> = numbers.clone().map(subject_for).collect();
        let charges = numbers.clone().zip(&subjects).map(|(number, subject)| {
            let charge = Charge::new(self.policy_for(number), subject);
            let mut charges = vec![charge.tenant(&self.tenant)];
            if self.is_across(number)
                && let Some(other) = &self.other_tenant
            {
                charges.push(charge.tenant(other));
            }
            charges
        });
        let charges: Vec<_> = charges.collect();
        let calls: Vec<_> = charges.iter().map(|charges| Call::acquire(charges)).collect();
        match &calls[..] {
            [call] => vec![store.decide(*call).await],
            calls => store.decide_many(calls).await,
        }
    }

    pub(crate) fn enter(&self, number: usize, started: Instant, outcome: Outcome) {
        let entry = Entry { number, started, answered: Instant::now(), outcome };
        self.entries.lock().unwrap().push(entry);
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    fn policy_for(&self, number: usize) -> &Policy {
        if is_shared(number) {
            &self.shared[number / SHARED % self.shared.len()]
        } else {
            &self.own
        }
    }

    fn is_across(&self, number: usize) -> bool {
        self.other_tenant.is_some() && !is_shared(number) && number % ACROSS == 1
    }

    /// Compares the entries of the ledger with the states on the servers, and returns the
    /// violations. An observer is a store that reads the states of one tenant.
    pub(crate) async fn check(&self, observers: &[Box<dyn Store>]) -> Vec<String> {
        let entries = self.entries();
        let is_own = |entry: &&Entry| !is_shared(entry.number);
        let own: Vec<&Entry> = entries.iter().filter(is_own).collect();
        let mut findings = self.check_own(&*observers[0], &self.tenant, own).await;
        if let (Some(tenant), [_, observer]) = (&self.other_tenant, observers) {
            let is_across = |entry: &&Entry| self.is_across(entry.number);
            let across: Vec<&Entry> = entries.iter().filter(is_across).collect();
            findings.extend(self.check_own(&**observer, tenant, across).await);
        }
        findings.extend(self.check_shared(&*observers[0], &entries).await);
        findings
    }

    async fn check_own(&self, observer: &dyn Store, tenant: &str, own: Vec<&Entry>) -> Vec<String> {
        let mut findings = BTreeMap::new();
        let subjects: Vec<String> = own.iter().map(|entry| subject_for(entry.number)).collect();
        let used = used(observer, &self.own, tenant, &subjects).await;
        for (entry, used) in own.into_iter().zip(used) {
            let finding = match (entry.outcome, used) {
                (_, 2..) => "charged twice",
                (Outcome::Admitted, 0) => "admitted and not charged",
                (Outcome::Refused, _) => "refused, although no other call charged its subject",
                (Outcome::Failed(kind), 1) if kind.is_definitely_not_charged() => {
                    "charged, although the error says that it is definitely not charged"
                }
                _ => continue,
            };
            let violation = format!("{finding}: {:?}", entry.outcome);
            *findings.entry(violation).or_insert(0) += 1;
        }
        findings
            .into_iter()
            .map(|(violation, count)| format!("{count} calls {violation}"))
            .collect()
    }

    async fn check_shared(&self, observer: &dyn Store, entries: &[Entry]) -> Vec<String> {
        let admitted = entries.iter().filter(|entry| is_shared(entry.number));
        let admitted = admitted.filter(|entry| entry.outcome == Outcome::Admitted).count() as u64;
        let max = SHARED_LIMIT * self.shared.len() as u64;
        let mut charged = 0;
        for policy in &self.shared {
            charged += shared_used(observer, policy, &self.tenant).await;
        }
        let mut findings = vec![];
        if admitted > max {
            findings.push(format!("{admitted} calls were admitted; the maximum is {max}"));
        }
        if admitted > charged {
            findings
                .push(format!("{admitted} calls were admitted, but only {charged} are charged"));
        }
        findings
    }
}

fn is_shared(number: usize) -> bool {
    number.is_multiple_of(SHARED)
}

fn subject_for(number: usize) -> String {
    if is_shared(number) { "shared".to_owned() } else { format!("s{number}") }
}

async fn shared_used(observer: &dyn Store, policy: &Policy, tenant: &str) -> u64 {
    used(observer, policy, tenant, &["shared".to_owned()]).await[0]
}

/// Returns, for each subject, the used amount of its limit.
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

/// Tests the ledger itself: it must report each entry that contradicts a state on the server.
#[tokio::test]
async fn an_entry_that_contradicts_the_server_is_reported() {
    for (charges, outcome, finding) in [
        (1, Outcome::Admitted, None),
        (0, Outcome::Failed(ErrorKind::Busy), None),
        (1, Outcome::Failed(ErrorKind::Timeout), None),
        (0, Outcome::Failed(ErrorKind::Timeout), None),
        (1, Outcome::GivenUp, None),
        (2, Outcome::Admitted, Some("charged twice")),
        (2, Outcome::GivenUp, Some("charged twice")),
        (0, Outcome::Admitted, Some("admitted and not charged")),
        (
            1,
            Outcome::Failed(ErrorKind::Busy),
            Some("charged, although the error says that it is definitely not charged"),
        ),
        (0, Outcome::Refused, Some("refused")),
    ] {
        for across in [false, true] {
            let ledger = Ledger::new(Fault::Silent, "t", Some("u"));
            let store = MemoryStore::new();
            let (number, tenant) = if across { (ACROSS + 1, "u") } else { (2, "t") };
            let (policy, subject) = (&ledger.own, subject_for(number));
            if across {
                // For a call across slots, the state in the first slot is right, and only the state
                // in the second slot contradicts the entry.
                let right = u64::from(outcome == Outcome::Admitted);
                let first = [Charge::new(policy, &subject).tenant("t").cost(right)];
                let _ = store.decide(Call::acquire(&first)).await.unwrap();
            }
            let charge = Charge::new(policy, &subject).tenant(tenant).cost(charges);
            let _ = store.decide(Call::acquire(&[charge])).await.unwrap();
            ledger.enter(number, Instant::now(), outcome);
            let store = Arc::new(store);
            let observers: [Box<dyn Store>; 2] = [Box::new(Arc::clone(&store)), Box::new(store)];
            let findings = ledger.check(&observers).await;
            match finding {
                None => assert!(findings.is_empty(), "{findings:?}"),
                Some(finding) => {
                    assert!(
                        findings.iter().any(|violation| violation.contains(finding)),
                        "{findings:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn more_admissions_than_the_limit_are_reported() {
    let ledger = Ledger::new(Fault::Silent, "t", None);
    let store = Arc::new(MemoryStore::new());
    let all = [Charge::new(&ledger.shared[0], "shared").tenant("t").cost(SHARED_LIMIT)];
    let _ = store.decide(Call::acquire(&all)).await.unwrap();
    let observers: [Box<dyn Store>; 1] = [Box::new(Arc::clone(&store))];
    for _ in 0..SHARED_LIMIT {
        ledger.enter(SHARED, Instant::now(), Outcome::Admitted);
    }
    assert!(ledger.check(&observers).await.is_empty());
    ledger.enter(SHARED, Instant::now(), Outcome::Admitted);
    let findings = ledger.check(&observers).await;
    assert_eq!(findings.len(), 2, "{findings:?}");
}
