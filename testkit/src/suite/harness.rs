//! The harness around a store for one case: short methods to call the store, and the record of its calls.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{
    Config, FailurePersistence, FileFailurePersistence, RngSeed, TestCaseError, TestError,
    TestRunner,
};
use tidegate_core::{
    Call, CallId, Charge, Clock, Decision, Error, ManualClock, Operation, Policy, Store, Timestamp,
    Verdict,
};

use super::fixture::Fixture;
use super::report::{
    Calls, Ended, caught, check, check_eq, ended, fail, fail_as_case, known, leave_out, property,
};
use crate::env;
use crate::generate::Scenario;
use crate::show;

/// An ordinary time, at which no window begins or ends.
pub(super) const START: u64 = 1_790_000_000_000_123;

/// One of each algorithm: at most 5 at once, again all of them after at most 20 µs.
pub(super) const EACH: [&str; 9] = [
    "p: fixed-window 5/10us",
    "p: fixed-window 5/10us phased",
    "p: fixed-window 5/10us anchored",
    "p: sliding-log 5/10us",
    "p: sliding-log 5/10us grain 2us",
    "p: sliding-counter 5/10us",
    "p: token-bucket 5/10us burst 5",
    "p: token-bucket 5/10us burst 5 by-interval",
    "p: gcra 5/10us burst 5",
];

/// A policy from its text.
pub(super) fn policy(text: &str) -> Policy {
    text.parse().unwrap_or_else(|error| panic!("`{text}`: {error}"))
}

/// Each of [`EACH`].
pub(super) fn each() -> impl Iterator<Item = Policy> {
    EACH.iter().map(|text| policy(text))
}

/// Algorithms by which a policy of few requests in an hour decides alike, if no time passes.
const ALIKE: [&str; 6] = [
    "sliding-log N/1h",
    "fixed-window N/1h anchored",
    "fixed-window N/1h",
    "sliding-counter N/1h",
    "token-bucket N/1h burst N",
    "token-bucket N/1h burst N by-interval",
];

/// An open store, its clock, and the calls so far.
pub(super) struct Harness<'f, F: Fixture> {
    pub(super) store: Arc<F::Store>,
    pub(super) clock: ManualClock,
    pub(super) calls: RefCell<Calls>,
    fixture: &'f F,
    _guard: F::Guard,
}

/// Snapshot of a store: everything that it has stored, if it can tell, and its verdicts.
#[derive(PartialEq, Eq)]
pub(super) struct Snapshot {
    stored: Option<Vec<u8>>,
    says: Vec<Verdict>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdicts: Vec<_> = self.says.iter().map(show::verdict).collect();
        write!(f, "peeks answer [{}]", show::cut(&verdicts.join("; "), 1, 400))?;
        match &self.stored {
            Some(stored) => {
                let text = String::from_utf8_lossy(stored);
                write!(f, ", {} bytes are stored: {}", stored.len(), show::cut(&text, 1, 600))
            }
            None => Ok(()),
        }
    }
}

impl<'f, F: Fixture> Harness<'f, F> {
    pub(super) async fn open(fixture: &'f F) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let (store, guard) = fixture.open(clock.clone()).await;
        Self { store: Arc::new(store), clock, calls: RefCell::default(), fixture, _guard: guard }
    }

    /// The store as another process has it, if there can be one; else this one.
    pub(super) async fn of_another_process(&self) -> Arc<F::Store> {
        let another = self.fixture.open_again(&self.store, self.clock.clone()).await;
        another.map_or_else(|| Arc::clone(&self.store), Arc::new)
    }

    pub(super) fn supports(&self, policy: &Policy) -> bool {
        self.store.supports(policy).is_ok()
    }

    /// Leaves the case out if the store does not support a policy that it is about.
    pub(super) fn needs(&self, policy: &Policy) {
        if let Err(error) = self.store.supports(policy) {
            leave_out(format!("`{policy}` ({error})"));
        }
    }

    /// Carries out a call under an id. A store that knows no ids, or not these policies, leaves the case out.
    pub(super) async fn once(
        &self,
        id: CallId<'_>,
        operation: Operation,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        charges.iter().for_each(|charge| self.needs(charge.policy));
        let call = Call::new(operation, charges).with_id(id);
        let answer = self.store.decide(call).await;
        self.calls.borrow_mut().add(self.clock.now(), &call, &answer);
        known(answer)
    }

    /// A policy of at most `limit` in an hour, of the first algorithm that the store supports.
    pub(super) fn hourly(&self, name: &str, limit: u64, more: &str) -> Policy {
        let texts = ALIKE.map(|text| text.replace('N', &limit.to_string()));
        let mut policies = texts.iter().map(|text| policy(&format!("{name}: {text}{more}")));
        let first = policies.clone().next();
        match policies.find(|policy| self.supports(policy)).or(first) {
            Some(policy) => {
                self.needs(&policy);
                policy
            }
            None => fail("there are algorithms"),
        }
    }

    /// The scenario with those of its policies that the store supports; without any, it is left out.
    pub(super) fn supported<'s>(&self, scenario: &'s Scenario) -> Cow<'s, Scenario> {
        if scenario.policies.iter().all(|policy| self.supports(policy)) {
            return Cow::Borrowed(scenario);
        }
        if !scenario.policies.iter().any(|policy| self.supports(policy)) {
            scenario.policies.iter().for_each(|policy| self.needs(policy));
        }
        let mut scenario = scenario.clone();
        scenario.policies.retain(|policy| self.supports(policy));
        Cow::Owned(scenario)
    }

    /// Sets the clock, µs since 1970.
    pub(super) fn set(&self, micros: u64) {
        self.clock.set(Timestamp::from_micros(micros));
    }

    /// Sets the clock to so much after [`START`].
    pub(super) fn at(&self, micros: u64) {
        self.set(START + micros);
    }

    pub(super) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(super) async fn try_ask(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
    ) -> Result<Decision, Error> {
        charges.iter().for_each(|charge| self.needs(charge.policy));
        let call = Call::new(operation, charges);
        let answer = self.store.decide(call).await;
        self.calls.borrow_mut().add(self.clock.now(), &call, &answer);
        let decision = answer?;
        check_eq!(decision.verdicts().len(), charges.len(), "there is one verdict per charge");
        check_eq!(decision.degraded(), None, "a store that answers is not degraded");
        Ok(decision)
    }

    pub(super) async fn ask(&self, operation: Operation, charges: &[Charge<'_>]) -> Decision {
        match self.try_ask(operation, charges).await {
            Ok(decision) => decision,
            Err(error) => {
                fail(&format!("{} fails: {error}", show::call(&Call::new(operation, charges))))
            }
        }
    }

    /// Acquires for the subject "s".
    pub(super) async fn acquire(&self, policy: &Policy, cost: u64) -> Decision {
        let charge = Charge::new(policy, "s").cost(cost);
        self.ask(Operation::Acquire, &[charge]).await
    }

    /// Acquires for the subject "s"; it must be admitted.
    pub(super) async fn take(&self, policy: &Policy, cost: u64) {
        let decision = self.acquire(policy, cost).await;
        check!(decision.is_allowed(), "`{policy}` must admit a cost of {cost}");
    }

    /// Acquires for the subject "s"; it must be refused.
    pub(super) async fn refused(&self, policy: &Policy, cost: u64) -> Decision {
        let decision = self.acquire(policy, cost).await;
        check!(decision.is_denied(), "`{policy}` must refuse a cost of {cost}");
        decision
    }

    /// Does something else to the subject "s".
    pub(super) async fn does(&self, operation: Operation, policy: &Policy, cost: u64) -> Verdict {
        let charge = Charge::new(policy, "s").cost(cost);
        self.ask(operation, &[charge]).await.verdicts()[0]
    }

    /// What remains for the subject "s".
    pub(super) async fn remaining(&self, policy: &Policy) -> u64 {
        self.does(Operation::Peek, policy, 0).await.remaining()
    }

    /// What the store looks like to these charges.
    pub(super) async fn snapshot(&self, charges: &[Charge<'_>]) -> Snapshot {
        let mut says = vec![];
        for charge in charges {
            for cost in [0, 1] {
                let peek = self.ask(Operation::Peek, &[charge.cost(cost)]).await;
                says.extend_from_slice(peek.verdicts());
            }
        }
        Snapshot { stored: self.fixture.snapshot(&self.store).await, says }
    }
}

/// Runs one case.
pub(super) fn case<F: Fixture>(fixture: &F, check: impl AsyncFnOnce(&Harness<'_, F>)) {
    let end = runtime().block_on(async {
        let harness = Harness::open(fixture).await;
        let result = caught(check(&harness)).await;
        ended(result.map(Ok), &harness.calls.borrow())
    });
    if let Ended::Failed(message) = end {
        fail_as_case(message);
    }
}

/// Runs random cases. Those about policies that the store does not support are drawn again.
#[expect(clippy::needless_pass_by_value, reason = "callers write the check in place")]
pub(super) fn cases<F: Fixture, I: fmt::Debug>(
    fixture: &F,
    inputs: impl Strategy<Value = I>,
    check: impl AsyncFn(&Harness<'_, F>, &I) -> Result<(), String>,
) {
    let runtime = runtime();
    let (cases, held, rejected) = (fixture.cases(), Cell::new(0), Cell::new(0));
    let config = Config {
        cases,
        failure_persistence: regressions(fixture),
        max_global_rejects: cases.saturating_mul(8),
        rng_seed: RngSeed::Fixed(env::seed()),
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&inputs, |input| {
        // Where none of so many is supported, none is: no further store is opened.
        if held.get() == 0 && rejected.get() > cases {
            return Err(TestCaseError::reject("not supported"));
        }
        let end = runtime.block_on(async {
            let harness = Harness::open(fixture).await;
            let result = caught(check(&harness, &input)).await;
            ended(result, &harness.calls.borrow())
        });
        match end {
            Ended::Held => {
                held.set(held.get() + 1);
                Ok(())
            }
            Ended::LeftOut => {
                rejected.set(rejected.get() + 1);
                Err(TestCaseError::reject("not supported"))
            }
            Ended::Failed(message) => Err(TestCaseError::fail(message)),
        }
    });
    match result {
        Ok(()) => {}
        // Of policies that are rarely supported, fewer cases are run.
        Err(TestError::Abort(_)) if rejected.get() > 0 => {}
        Err(TestError::Abort(why)) => fail(&format!("no cases can be drawn: {why}")),
        Err(TestError::Fail(message, _)) => {
            fail_as_case(format!("of random cases, this is the smallest that fails:\n  {message}"));
        }
    }
}

/// Keeps the seeds of failing cases of the property that runs.
fn regressions(fixture: &impl Fixture) -> Option<Box<dyn FailurePersistence>> {
    let file = fixture.regressions()?.join(property()).with_extension("txt");
    // proptest takes paths that live for ever: this is one for each property of a test run.
    let file = String::leak(file.to_str()?.to_owned());
    Some(Box::new(FileFailurePersistence::Direct(file)))
}

/// Whether the store supports any policy that the suite is about.
pub(super) fn supports_any<F: Fixture>(fixture: &F) -> bool {
    runtime().block_on(async {
        let harness = Harness::open(fixture).await;
        let hourly = ALIKE.map(|text| policy(&format!("p: {}", text.replace('N', "5"))));
        each().chain(hourly).any(|policy| harness.supports(&policy))
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

/// Runs one case on several threads, and fails loudly if it does not come to an end.
pub(super) fn threads<F: Fixture>(fixture: &F, check: impl AsyncFnOnce(&Harness<'_, F>)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(8)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let patience = fixture.patience();
    let mut end = None;
    let in_time = runtime.block_on(watched(patience, async {
        let harness = Harness::open(fixture).await;
        let result = caught(check(&harness)).await;
        end = Some(ended(result.map(Ok), &harness.calls.borrow()));
    }));
    // A thread that is stuck would keep the runtime from ending.
    runtime.shutdown_background();
    if !in_time {
        fail(&format!("the calls have not come to an end within {patience:?}: a deadlock"));
    }
    if let Some(Ended::Failed(message)) = end {
        fail_as_case(message);
    }
}

/// Whether a case comes to an end in time.
///
/// A thread of its own watches: where all threads of the runtime are stuck, its timers are too.
async fn watched(patience: Duration, case: impl Future<Output = ()>) -> bool {
    let (alarm, mut late) = tokio::sync::oneshot::channel::<()>();
    let (done, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
            // The receiver is gone if the case has just ended.
            let _ = alarm.send(());
        }
    });
    let mut case = pin!(case);
    let in_time = poll_fn(|context| {
        if case.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        Pin::new(&mut late).poll(context).map(|_| false)
    })
    .await;
    drop(done);
    in_time
}
