//! Decides calls that contain their policies, so that services can limit requests without Envoy.
//! The protocols RESP and `/v1` (JSON) use this module.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use std::sync::Arc;
//! use tidegate_core::Operation;
//! use tidegate_memory::MemoryStore;
//! use tidegate_server::calls::{CallRequest, Calls, ChargeRequest};
//!
//! let calls = Calls::new(Arc::new(MemoryStore::new()));
//! let policy = calls.policies().parse("gcra 10/s burst 2")?;
//! let request = CallRequest::new(Operation::Acquire, [ChargeRequest::new(policy, "alice".into())]);
//! assert!(calls.decide(&request).await?.is_allowed());
//! assert!(calls.decide(&request).await?.is_allowed());
//! assert!(calls.decide(&request).await?.is_denied());
//! # Ok::<(), tidegate_core::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event;
mod policies;
mod request;
pub mod resp;
mod stats;
pub mod v1;
mod verb;

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use tidegate_core::{Call, Charge, Decision, Error, Store};

use crate::observe::activity::{Activity, Source};
use crate::observe::unreadable::{self, Unreadable};
pub use policies::{MAX_POLICIES, MAX_POLICY_BYTES, Policies};
pub use request::{CallRequest, ChargeRequest};
pub use stats::{CallStats, Outcome};
pub use verb::{CallOptions, OptionError, Verb};

/// Decides calls. Each call contains its own policies.
#[derive(Debug)]
pub struct Calls {
    store: Arc<dyn Store>,
    policies: Policies,
    activity: Option<(Source, Arc<Activity>)>,
    unreadable: unreadable::Log,
}

impl Calls {
    /// Creates calls to a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let policies = Policies::new(Arc::clone(&store));
        Self { store, policies, activity: None, unreadable: unreadable::Log::default() }
    }

    /// Makes `Calls` record each call in `activity`. `source` is the protocol of the calls.
    #[must_use]
    pub fn activity(self, source: Source, activity: Option<Arc<Activity>>) -> Self {
        Self { activity: activity.map(|activity| (source, activity)), ..self }
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the cache of parsed policies.
    #[must_use]
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Returns `true` if the store always decides immediately, like the memory store.
    pub(crate) fn answer_immediately(&self) -> bool {
        self.store.answers_immediately()
    }

    /// Logs a request that could not be parsed. The caller counts the request in its own metric.
    pub(crate) fn unreadable(&self, reason: &str) {
        self.unreadable.add(None, reason);
    }

    /// Calls `report` with the requests that could not be parsed: immediately for the first such
    /// request, and then at most once every 10 s.
    ///
    /// This function never returns; drop the future to stop it.
    pub async fn follow_unreadable(&self, report: impl Fn(Unreadable)) {
        self.unreadable.follow(report).await;
    }

    /// Executes a call.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is not valid, or if the store cannot decide it.
    pub async fn decide(&self, request: &CallRequest) -> Result<Decision, Error> {
        let start = self.start();
        let answer = self.answer(request).await;
        self.record(start, &[request], std::slice::from_ref(&answer));
        answer
    }

    async fn answer(&self, request: &CallRequest) -> Result<Decision, Error> {
        let request = request.bounded_by(&*self.store).await;
        request.check()?;
        let charges = request.charges();
        let decision = self.store.decide(request.call(&charges)).await?;
        self.decided(&request, decision).await
    }

    /// Returns the decision for the client. If the store received a peek instead of a hold, and a
    /// limit set has raised the maximum hold since the check, sends the hold.
    async fn decided(&self, request: &CallRequest, decision: Decision) -> Result<Decision, Error> {
        let is_peek = request.is_too_large();
        let decided = request.decided(decision);
        if !is_peek || !decided.is_allowed() {
            return Ok(decided);
        }
        let charges = request.charges();
        self.store.decide(request.call_as_sent(&charges)).await
    }

    /// Returns the current time, or `None` if calls are not recorded.
    fn start(&self) -> Option<Instant> {
        self.activity.is_some().then(Instant::now)
    }

    fn record(
        &self,
        start: Option<Instant>,
        requests: &[&CallRequest],
        answers: &[Result<Decision, Error>],
    ) {
        if let (Some(start), Some((source, activity))) = (start, &self.activity) {
            event::record(activity, *source, requests, answers, start.elapsed());
        }
    }

    /// Executes calls in one batch of the store. Each call is atomic, but the batch is not. Calls
    /// that share a state are executed in order. Returns one answer per call, in order.
    pub async fn decide_many(&self, requests: &[&CallRequest]) -> Vec<Result<Decision, Error>> {
        if let [request] = requests {
            return vec![self.decide(request).await];
        }
        let start = self.start();
        let (mut bounded, bounded_requests): (Vec<_>, Vec<_>);
        let mut requests = requests;
        if requests.iter().any(|request| request.is_hold()) {
            bounded = Vec::with_capacity(requests.len());
            for request in requests {
                bounded.push(request.bounded_by(&*self.store).await);
            }
            bounded_requests = bounded.iter().map(|request| &**request).collect();
            requests = &bounded_requests;
        }
        let checked: Vec<Result<SmallVec<[Charge<'_>; 1]>, Error>> =
            requests.iter().map(|request| request.check().map(|()| request.charges())).collect();
        let calls: Vec<Call<'_>> = requests
            .iter()
            .zip(&checked)
            .filter_map(|(request, charges)| Some(request.call(charges.as_ref().ok()?)))
            .collect();
        let mut decisions = self.store.decide_many(&calls).await.into_iter();
        let mut answers = Vec::with_capacity(requests.len());
        for (request, charges) in requests.iter().zip(&checked) {
            answers.push(match charges {
                Err(error) => Err(error.clone()),
                Ok(_) => match decisions.next() {
                    Some(Ok(decision)) => self.decided(request, decision).await,
                    Some(Err(error)) => Err(error),
                    None => Err(request::unanswered()),
                },
            });
        }
        self.record(start, requests, &answers);
        answers
    }
}
