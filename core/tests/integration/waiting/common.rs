//! Stores to wait on, and what should come of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tidegate_core::{
    Answer, Call, Decision, Error, Limiter, Operation, Store, Timestamp, TokioClock,
};
use tidegate_memory::MemoryStore;
use tokio::time::Instant;

/// A store in virtual time that notes each call and when it was made.
#[derive(Debug, Clone)]
pub(crate) struct Noted<S = Arc<MemoryStore<TokioClock>>> {
    inner: S,
    started: Instant,
    calls: Arc<Mutex<Vec<(Operation, Duration)>>>,
}

impl Noted {
    pub(crate) fn new() -> Self {
        Self::over(Arc::new(MemoryStore::builder().clock(TokioClock::new()).build()))
    }
}

impl<S> Noted<S> {
    pub(crate) fn over(inner: S) -> Self {
        Self { inner, started: Instant::now(), calls: Arc::default() }
    }

    pub(crate) fn calls(&self) -> Vec<(Operation, Duration)> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, is_meant: impl Fn(&Operation) -> bool) -> usize {
        self.calls().iter().filter(|(operation, _)| is_meant(operation)).count()
    }

    pub(crate) fn reserves(&self) -> usize {
        self.count(|operation| matches!(operation, Operation::Reserve { .. }))
    }

    pub(crate) fn refunds(&self) -> usize {
        self.count(|operation| *operation == Operation::Refund)
    }
}

impl<S: Store> Store for Noted<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.calls.lock().unwrap().push((call.operation, self.started.elapsed()));
        self.inner.decide(call)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }
}

/// A store that takes its time: half of it before it decides, half of it until the answer is there.
#[derive(Debug)]
pub(crate) struct Slow<S>(pub(crate) S, pub(crate) Duration);

impl<S: Store> Store for Slow<S> {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            tokio::time::sleep(self.1 / 2).await;
            let decision = self.0.decide(call).await;
            tokio::time::sleep(self.1 / 2).await;
            decision
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.now()
    }
}

pub(crate) fn limiter<S: Store>(store: S, policy: &str) -> Limiter<S> {
    Limiter::new(store, [policy.parse().unwrap()]).unwrap()
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Lets all other tasks run that can, without any time going by.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Tasks that have not ended.
pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// A bucket of `capacity`, refilled by `rate` a second: what it owes, in millionths of a token.
///
/// Written from the definition alone: it holds the waits of the library against it.
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

    /// Books at a time (µs), and tells how long to wait (µs).
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

/// Whether at most `capacity + more + rate · t` passed in each interval, if the clock tells times no
/// finer than `grain` (µs). `passes`: when (µs), and at what cost.
pub(crate) fn never_more(
    bucket: Bucket,
    passes: &[(u64, u64)],
    more: u64,
    grain: u64,
) -> TestCaseResult {
    let mut passes = passes.to_vec();
    passes.sort_unstable();
    for (first, &(from, _)) in passes.iter().enumerate() {
        let mut sum = 0;
        for &(to, cost) in &passes[first..] {
            sum += cost;
            let most = (bucket.capacity + more) * 1_000_000 + (to - from + grain) * bucket.rate;
            prop_assert!(sum * 1_000_000 <= most, "{sum} from {from} to {to}: {passes:?}");
        }
    }
    Ok(())
}
