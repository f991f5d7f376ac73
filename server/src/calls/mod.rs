//! Calls that name their policies themselves, for services that limit without Envoy: what RESP and `/v1` have in common.
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

mod policies;
mod request;
mod stats;
mod verb;

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Call, Charge, Decision, Error, Store};

pub use policies::{MAX_POLICIES, MAX_POLICY_BYTES, Policies};
pub use request::{CallRequest, ChargeRequest};
pub use stats::{CallStats, Outcome};
pub use verb::{CallOptions, MissingOption, Verb};

/// Decides on calls by the policies that they bring.
#[derive(Debug)]
pub struct Calls {
    store: Arc<dyn Store>,
    policies: Policies,
}

impl Calls {
    /// Calls to a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let policies = Policies::new(Arc::clone(&store));
        Self { store, policies }
    }

    /// The policies that calls have named.
    #[must_use]
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Carries out a call.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn decide(&self, request: &CallRequest) -> Result<Decision, Error> {
        request.check()?;
        let charges = request.charges();
        let decision = self.store.decide(request.call(&charges)).await?;
        Ok(request.decided(decision))
    }

    /// Carries out calls in one batch of the store: each is atomic, all together are not. Those that share a state are
    /// carried out in order. Returns one answer per call, in order.
    pub async fn decide_many(&self, requests: &[&CallRequest]) -> Vec<Result<Decision, Error>> {
        if let [request] = requests {
            return vec![self.decide(request).await];
        }
        let checked: Vec<Result<SmallVec<[Charge<'_>; 1]>, Error>> =
            requests.iter().map(|it| it.check().map(|()| it.charges())).collect();
        let calls: Vec<Call<'_>> = requests
            .iter()
            .zip(&checked)
            .filter_map(|(request, charges)| Some(request.call(charges.as_ref().ok()?)))
            .collect();
        let mut decisions = self.store.decide_many(&calls).await.into_iter();
        let answer = |(request, charges): (&&CallRequest, &Result<_, Error>)| match charges {
            Err(error) => Err(error.clone()),
            Ok(_) => match decisions.next() {
                Some(decision) => decision.map(|decision| request.decided(decision)),
                None => Err(request::unanswered()),
            },
        };
        requests.iter().zip(&checked).map(answer).collect()
    }
}
