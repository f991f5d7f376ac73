//! The stores for tests of waiting, and the model that computes the expected waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tidegate_core::layers::{Layer, Layered};
use tidegate_core::{
    Answer, Call, Decision, Error, Limiter, Operation, Store, StoreExt, TokioClock,
};
use tidegate_memory::MemoryStore;
use tidegate_testkit::decide_one_by_one;
use tokio::time::Instant;

/// A memory store in virtual time, with a layer that records its calls.
pub(crate) type Recording<S = Arc<MemoryStore<TokioClock>>> = Layered<RecordCalls, S>;

/// A layer that records each call and its time. Clones of the layer share the records.
#[derive(Debug, Clone)]
pub(crate) struct RecordCalls {
    started: Instant,
    calls: Arc<Mutex<Vec<(Operation, Duration)>>>,
}

pub(crate) fn recording() -> Recording {
    Arc::new(MemoryStore::builder().clock(TokioClock::new()).build()).layer(RecordCalls::new())
}

impl RecordCalls {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), calls: Arc::default() }
    }

    pub(crate) fn calls(&self) -> Vec<(Operation, Duration)> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, filter: impl Fn(&Operation) -> bool) -> usize {
        self.calls().iter().filter(|(operation, _)| filter(operation)).count()
    }

    pub(crate) fn reserves(&self) -> usize {
        self.count(|operation| matches!(operation, Operation::Reserve { .. }))
    }

    pub(crate) fn refunds(&self) -> usize {
        self.count(|operation| *operation == Operation::Refund)
    }
}

impl<S: Store> Layer<S> for RecordCalls {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.calls.lock().unwrap().push((call.operation, self.started.elapsed()));
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

/// A layer that delays each call by a time. Half of the time passes before the store decides, and
/// the other half after the decision.
#[derive(Debug)]
pub(crate) struct Slow(pub(crate) Duration);

impl<S: Store> Layer<S> for Slow {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            tokio::time::sleep(self.0 / 2).await;
            let decision = inner.decide(call).await;
            tokio::time::sleep(self.0 / 2).await;
            decision
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

pub(crate) fn limiter<S: Store>(store: S, policy: &str) -> Limiter<S> {
    Limiter::new(store, [policy.parse().unwrap()]).unwrap()
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Lets all other tasks run until they wait. No virtual time passes.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Returns the number of tasks that have not ended.
pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// A bucket of `capacity` that is refilled by `rate` per second. The debt of the bucket is in
/// millionths of a token.
///
/// The model follows only the definition of a bucket. The tests compare the waits of the library
/// with the waits of the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    pub(crate) capacity: u64,
    pub(crate) rate: u64,
    debt: u64,
    at: u64,
}

impl Bucket {
    pub(crate) fn new(rate: u64, capacity: u64) -> Self {
        Self { capacity, rate, debt: 0, at: 0 }
    }

    pub(crate) fn policy(&self) -> String {
        format!("p: token-bucket {}/1s burst {}", self.rate, self.capacity)
    }

    /// Reserves a place at the time `now` in microseconds, and returns the wait in microseconds.
    pub(crate) fn book(&mut self, now: u64, cost: u64) -> u64 {
        self.debt = self.debt.saturating_sub((now - self.at) * self.rate);
        self.at = now;
        self.debt += cost * 1_000_000;
        self.debt.saturating_sub(self.capacity * 1_000_000).div_ceil(self.rate)
    }
}

pub(crate) fn micros(span: Duration) -> u64 {
    span.as_micros() as u64
}

/// Checks that at most `capacity + more + rate · t` was admitted in each interval of length `t`.
/// The times are exact to `grain` microseconds. `admissions` contains times in microseconds and
/// costs.
pub(crate) fn check_bound(
    bucket: Bucket,
    admissions: &[(u64, u64)],
    more: u64,
    grain: u64,
) -> TestCaseResult {
    let mut admissions = admissions.to_vec();
    admissions.sort_unstable();
    for (first, &(from, _)) in admissions.iter().enumerate() {
        let mut sum = 0;
        for &(to, cost) in &admissions[first..] {
            sum += cost;
            let max = (bucket.capacity + more) * 1_000_000 + (to - from + grain) * bucket.rate;
            prop_assert!(sum * 1_000_000 <= max, "{sum} from {from} to {to}: {admissions:?}");
        }
    }
    Ok(())
}
