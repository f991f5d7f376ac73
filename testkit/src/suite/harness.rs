//! The harness of one case: a store and its clock, with short methods that call the store and
//! record the calls.

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
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;

use super::erased::Later;
use super::fixture::Fixture;
use super::report::{
    Ended, caught, check, check_eq, ended, fail, fail_as_case, leave_out, property,
    unless_unsupported,
};
use crate::call_log::CallLog;
use crate::env;
use crate::generate::Scenario;
use crate::show;

/// The time at which cases start, in microseconds since 1970. No policy in [`EACH`] has a window
/// that begins or ends at this time.
pub(super) const START: u64 = 1_790_000_000_000_123;

/// One policy of each algorithm and variant. Each policy admits at most 5 immediately, and 5 again
/// after at most 20 µs.
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

pub(super) fn policy(text: &str) -> Policy {
    text.parse().unwrap_or_else(|error| panic!("the policy `{text}` is not valid: {error}"))
}

pub(super) fn each() -> impl Iterator<Item = Policy> {
    EACH.iter().map(|text| policy(text))
}

/// Policies of different algorithms that make the same decisions while the clock stands still. The
/// test replaces `N` by a limit.
const ALIKE: [&str; 6] = [
    "sliding-log N/1h",
    "fixed-window N/1h anchored",
    "fixed-window N/1h",
    "sliding-counter N/1h",
    "token-bucket N/1h burst N",
    "token-bucket N/1h burst N by-interval",
];

pub(super) struct Harness<'f, F: Fixture> {
    pub(super) store: Arc<F::Store>,
    pub(super) clock: ManualClock,
    pub(super) calls: RefCell<CallLog>,
    fixture: &'f F,
    _guard: F::Guard,
}

/// The state of a store at one time: the verdicts of some peeks and, if the fixture can list them,
/// the complete contents of the store.
#[derive(PartialEq, Eq)]
pub(super) struct Snapshot {
    stored: Option<Vec<u8>>,
    verdicts: Vec<Verdict>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.verdicts.iter().map(show::verdict).collect();
        write!(f, "peeks return [{}]", show::cut(&shown.join("; "), 1, 400))?;
        match &self.stored {
            Some(stored) => {
                let text = String::from_utf8_lossy(stored);
                write!(f, ", and {} bytes are stored: {}", stored.len(), show::cut(&text, 1, 600))
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

    /// Opens a second store that shares the states of the first store, as another process would.
    /// Returns the first store if the fixture cannot open a second store.
    pub(super) async fn store_in_another_process(&self) -> Arc<F::Store> {
        let another = self.fixture.open_again(&self.store, self.clock.clone()).await;
        another.map_or_else(|| Arc::clone(&self.store), Arc::new)
    }

    pub(super) fn supports(&self, policy: &Policy) -> bool {
        self.store.supports(policy).is_ok()
    }

    /// Skips the case if the store does not support `policy`, which the case needs.
    pub(super) fn needs(&self, policy: &Policy) {
        if let Err(error) = self.store.supports(policy) {
            leave_out(format!("`{policy}` ({error})"));
        }
    }

    /// Executes a call with an id. Skips the case if the store does not support ids or one of the
    /// policies.
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
        unless_unsupported(answer)
    }

    /// Executes a call with an id like [`once`](Self::once). Fails the property if the call fails.
    pub(super) async fn must(
        &self,
        id: CallId<'_>,
        operation: Operation,
        charges: &[Charge<'_>],
    ) -> Decision {
        match self.once(id, operation, charges).await {
            Ok(decision) => decision,
            Err(error) => {
                let id = id.id.escape_ascii();
                fail(&format!("{operation:?} with the id \"{id}\" must not fail: {error}"))
            }
        }
    }

    /// Returns a policy that admits at most `limit` per hour. Its algorithm is the first one in
    /// `ALIKE` that the store supports. The text of the policy ends with `more`.
    pub(super) fn hourly(&self, name: &str, limit: u64, more: &str) -> Policy {
        let texts = ALIKE.map(|text| text.replace('N', &limit.to_string()));
        let mut policies = texts.iter().map(|text| policy(&format!("{name}: {text}{more}")));
        let first = policies.clone().next();
        match policies.find(|policy| self.supports(policy)).or(first) {
            Some(policy) => {
                self.needs(&policy);
                policy
            }
            None => fail("the list of algorithms is empty"),
        }
    }

    /// Returns the scenario with only the policies that the store supports. If the store supports
    /// none of them, skips the case.
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

    pub(super) fn set(&self, micros: u64) {
        self.clock.set(Timestamp::from_micros(micros));
    }

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
        check_eq!(
            decision.verdicts().len(),
            charges.len(),
            "a decision must have one verdict per charge"
        );
        check_eq!(decision.degraded(), None, "a decision of the store itself must not be degraded");
        Ok(decision)
    }

    pub(super) async fn ask(&self, operation: Operation, charges: &[Charge<'_>]) -> Decision {
        match self.try_ask(operation, charges).await {
            Ok(decision) => decision,
            Err(error) => fail(&format!(
                "{} must not fail: {error}",
                show::call(&Call::new(operation, charges))
            )),
        }
    }

    pub(super) async fn acquire(&self, policy: &Policy, cost: u64) -> Decision {
        let charge = Charge::new(policy, "s").cost(cost);
        self.ask(Operation::Acquire, &[charge]).await
    }

    /// Acquires `cost` for the subject "s". Fails the property if the store refuses the call.
    pub(super) async fn take(&self, policy: &Policy, cost: u64) {
        let decision = self.acquire(policy, cost).await;
        check!(decision.is_allowed(), "`{policy}` must admit a cost of {cost}");
    }

    /// Acquires `cost` for the subject "s". Fails the property if the store admits the call.
    pub(super) async fn refused(&self, policy: &Policy, cost: u64) -> Decision {
        let decision = self.acquire(policy, cost).await;
        check!(decision.is_denied(), "`{policy}` must refuse a cost of {cost}");
        decision
    }

    /// Executes an operation on the subject "s", and returns the verdict of the policy.
    pub(super) async fn does(&self, operation: Operation, policy: &Policy, cost: u64) -> Verdict {
        let charge = Charge::new(policy, "s").cost(cost);
        self.ask(operation, &[charge]).await.verdicts()[0]
    }

    pub(super) async fn remaining(&self, policy: &Policy) -> u64 {
        self.does(Operation::Peek, policy, 0).await.remaining()
    }

    /// Returns the state of the store: the verdicts of peeks at `charges` with costs of 0 and 1,
    /// and the contents of the store if the fixture can list them.
    pub(super) async fn snapshot(&self, charges: &[Charge<'_>]) -> Snapshot {
        let mut verdicts = vec![];
        for charge in charges {
            for cost in [0, 1] {
                let peek = self.ask(Operation::Peek, &[charge.cost(cost)]).await;
                verdicts.extend_from_slice(peek.verdicts());
            }
        }
        Snapshot { stored: self.fixture.snapshot(&self.store).await, verdicts }
    }
}

/// Runs one case of a property, with a newly opened store.
pub(super) fn case<F: Fixture>(fixture: &F, check: impl AsyncFnOnce(&Harness<'_, F>)) {
    let end = to_end(&runtime(), async {
        let harness = Harness::open(fixture).await;
        let result = caught(check(&harness)).await;
        ended(result.map(Ok), &harness.calls.borrow())
    });
    if let Ended::Failed(message) = end {
        fail_as_case(message);
    }
}

/// Runs a case for each policy of [`EACH`].
#[expect(clippy::needless_pass_by_value, reason = "callers write the check in place")]
pub(super) fn each_case<F: Fixture>(fixture: &F, check: impl AsyncFn(&Harness<'_, F>, Policy)) {
    each().for_each(|policy| case(fixture, async |harness| check(harness, policy).await));
}

/// Runs random cases. If a case needs a policy that the store does not support, another case is
/// drawn.
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
        // If many cases were rejected and none has run, the store probably supports no policy of
        // the strategy. So the remaining cases are rejected without opening a store.
        if held.get() == 0 && rejected.get() > cases {
            return Err(TestCaseError::reject("not supported"));
        }
        let end = to_end(&runtime, async {
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
        // If the store supports few of the drawn policies, the property runs fewer cases, which is
        // not a failure.
        Err(TestError::Abort(_)) if rejected.get() > 0 => {}
        Err(TestError::Abort(reason)) => fail(&format!("no cases can be drawn: {reason}")),
        Err(TestError::Fail(message, _)) => {
            fail_as_case(format!("the smallest random case that fails:\n  {message}"));
        }
    }
}

fn regressions(fixture: &impl Fixture) -> Option<Box<dyn FailurePersistence>> {
    let file = fixture.regressions()?.join(property()).with_extension("txt");
    // The path is leaked, because proptest requires `'static` paths and uses them until the end of
    // the test run.
    let file = String::leak(file.to_str()?.to_owned());
    Some(Box::new(FileFailurePersistence::Direct(file)))
}

pub(super) fn supports_any<F: Fixture>(fixture: &F) -> bool {
    runtime().block_on(async {
        let harness = Harness::open(fixture).await;
        let hourly = ALIKE.map(|text| policy(&format!("p: {}", text.replace('N', "5"))));
        each().chain(hourly).any(|policy| harness.supports(&policy))
    })
}

/// Runs the future of a case. The type of the future is erased, because `block_on` would otherwise
/// be compiled for each of the 200 cases, which takes half a minute.
fn to_end<'a>(runtime: &Runtime, case: impl Future<Output = Ended> + 'a) -> Ended {
    let case: Later<'a, Ended> = Box::pin(case);
    runtime.block_on(case)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be built")
}

/// Runs one case on several threads. The property fails if the case takes longer than the fixture's
/// `patience`.
pub(super) fn threads<F: Fixture>(fixture: &F, check: impl AsyncFnOnce(&Harness<'_, F>)) {
    let runtime = Builder::new_multi_thread()
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
    // A normal shutdown of the runtime would wait forever for a blocked thread.
    runtime.shutdown_background();
    if !in_time {
        fail(&format!(
            "the calls did not end within {patience:?}: the store has a deadlock, or it needs a \
             longer `Fixture::patience`"
        ));
    }
    if let Some(Ended::Failed(message)) = end {
        fail_as_case(message);
    }
}

/// Runs one concurrent task for each caller, and returns the results.
pub(super) async fn concurrently<T: Send + 'static, R>(
    callers: usize,
    call: impl Fn(usize) -> R,
) -> Vec<T>
where
    R: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(callers));
    let start = |caller| {
        let (barrier, call) = (Arc::clone(&barrier), call(caller));
        tokio::spawn(async move {
            barrier.wait().await;
            call.await
        })
    };
    let mut results = vec![];
    for task in (0..callers).map(start).collect::<Vec<_>>() {
        match task.await {
            Ok(result) => results.push(result),
            Err(error) => fail(&format!("one of {callers} concurrent callers panics: {error}")),
        }
    }
    results
}

/// Runs a case. Returns `true` if the case ends within `patience`.
///
/// A separate thread measures the time, because the timers of a runtime stop if all its threads are
/// blocked.
async fn watched(patience: Duration, case: impl Future<Output = ()>) -> bool {
    let (alarm, mut late) = tokio::sync::oneshot::channel::<()>();
    let (done, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Sending fails if the case has just ended and dropped the receiver.
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
