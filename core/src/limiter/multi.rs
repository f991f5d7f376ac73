//! A request for several subjects.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use super::Limiter;
use crate::call::{Call, CallId, ChargeBuf, Charges, Operation};
use crate::decision::{Decision, PolicyVerdict};
use crate::error::Error;
use crate::policy::Policy;
use crate::store::{Answer, Store};
use crate::subject::Subject;

/// A request with a subject and a cost for each policy. The store decides the request in one atomic
/// call. [`Limiter::by`] creates the request. A method that is named after an operation, such as
/// [`acquire`](Self::acquire), sends the request.
///
/// The methods that send an operation borrow the request. So the application can later refund the
/// same request if the work fails.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use tidegate_core::Limiter;
/// use tidegate_memory::MemoryStore;
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     ["ip: fixed-window 3/1m".parse()?, "tokens: token-bucket 100/1m".parse()?],
/// )?;
/// let request = limiter.by("ip", "203.0.113.9").by("tokens", "alice").cost(60);
/// assert!(request.acquire().await?.is_allowed());
/// let second = request.acquire().await?;
/// let refusals: Vec<_> = request.verdicts(&second).filter(|verdict| verdict.refuses()).collect();
/// assert_eq!(refusals[0].name(), "tokens");
/// request.refund().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a request does nothing until its operation is named"]
#[derive(Debug)]
pub struct MultiRequest<'a, S> {
    pub(super) limiter: &'a Limiter<S>,
    charges: SmallVec<[ChargeBuf<'a>; 3]>,
    /// The first policy name in the request that the limiter does not have.
    unknown: Option<&'a str>,
    pub(super) id: Option<CallId<'a>>,
}

/// A policy of a request: the name of a policy of the limiter, or another policy.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum PolicyRef<'a> {
    /// The name of a policy of the limiter.
    Name(&'a str),
    /// A policy for this request only, such as a limit from a database.
    Policy(&'a Policy),
}

impl<'a> From<&'a str> for PolicyRef<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a String> for PolicyRef<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a Policy> for PolicyRef<'a> {
    fn from(policy: &'a Policy) -> Self {
        Self::Policy(policy)
    }
}

impl<'a, S: Store> MultiRequest<'a, S> {
    pub(super) fn new(limiter: &'a Limiter<S>) -> Self {
        Self { limiter, charges: SmallVec::new(), unknown: None, id: None }
    }

    /// Adds a charge to one more policy: see [`Limiter::by`].
    pub fn by(mut self, policy: impl Into<PolicyRef<'a>>, subject: impl Into<Subject<'a>>) -> Self {
        let policy = self.find(policy.into());
        self.charges.extend(policy.map(|policy| ChargeBuf::new(policy, subject)));
        self
    }

    /// Adds an alternative to the charge that was added last. The request makes only one of these
    /// charges: the first one that its policy admits. All of them are one [list of
    /// alternatives](crate::Charge::in_list).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tidegate_core::{Limiter, Outcome};
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(
    ///     MemoryStore::new(),
    ///     ["own: fixed-window 1/1m".parse()?, "pool: fixed-window 10/1m".parse()?],
    /// )?;
    /// let request = limiter.by("own", "alice").or("pool", "all");
    /// for payer in ["own", "pool"] {
    ///     let decision = request.acquire().await?;
    ///     assert!(decision.is_allowed());
    ///     let mut verdicts = request.verdicts(&decision);
    ///     let paid = verdicts.find(|verdict| verdict.outcome() == Outcome::Allowed);
    ///     assert_eq!(paid.map(|verdict| verdict.name()), Some(payer));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or(mut self, policy: impl Into<PolicyRef<'a>>, subject: impl Into<Subject<'a>>) -> Self {
        let lists = self.charges.iter().map(|charge| charge.list).max().unwrap_or(0);
        let Some(last) = self.charges.last_mut() else { return self.by(policy, subject) };
        if last.list == 0 {
            // A call has at most 64 charges, so a higher number is in no valid call.
            last.list = lists.saturating_add(1);
        }
        let list = last.list;
        let policy = self.find(policy.into());
        let alternative =
            policy.map(|policy| ChargeBuf { list, ..ChargeBuf::new(policy, subject) });
        self.charges.extend(alternative);
        self
    }

    fn find(&mut self, policy: PolicyRef<'a>) -> Option<&'a Policy> {
        match policy {
            PolicyRef::Policy(policy) => Some(policy),
            PolicyRef::Name(name) => {
                let known = self.limiter.find_policy(name);
                if known.is_none() {
                    self.unknown.get_or_insert(name);
                }
                known
            }
        }
    }

    /// Sets the cost of the charge that was added last. The default is 1.
    pub fn cost(mut self, cost: u64) -> Self {
        if let Some(charge) = self.charges.last_mut() {
            charge.cost = cost;
        }
        self
    }

    /// Turns the charge that was added last into a condition: its policy must admit its cost, but
    /// nothing is charged. See [`Charge::check_only`](crate::Charge::check_only).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let limiter = Limiter::new(
    ///     MemoryStore::new(),
    ///     ["requests: fixed-window 10/1m".parse()?, "tokens: fixed-window 1000/1m".parse()?],
    /// )?;
    /// // A request is admitted while any tokens remain.
    /// let request = limiter.by("requests", "alice").by("tokens", "alice").check_only();
    /// assert!(request.acquire().await?.is_allowed());
    /// // The answer had 1200 tokens.
    /// limiter.by("tokens", "alice").cost(1200).charge().await?;
    /// assert!(request.acquire().await?.is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_only(mut self) -> Self {
        if let Some(charge) = self.charges.last_mut() {
            charge.is_check_only = true;
        }
        self
    }

    /// Sets the tenant of the subject that was added last. By default, a subject has no tenant.
    pub fn tenant(mut self, tenant: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        if let Some(charge) = self.charges.last_mut() {
            charge.tenant = Cow::Borrowed(tenant.as_ref());
        }
        self
    }

    /// Sets an id for the call. The operation is executed once under this id, even if the request
    /// is sent again within `ttl`: see [`Request::id`](super::Request::id). On Redis Cluster, all
    /// subjects of the request must have one tenant.
    pub fn id(self, id: &'a (impl AsRef<[u8]> + ?Sized), ttl: Duration) -> Self {
        Self { id: Some(CallId::new(id, ttl)), ..self }
    }

    /// Returns the verdicts of a decision on this request, together with their policies.
    pub fn verdicts<'d>(
        &'d self,
        decision: &'d Decision,
    ) -> impl Iterator<Item = PolicyVerdict<'d>> {
        decision.verdicts_of(self.charges.iter().map(ChargeBuf::policy))
    }

    /// Returns the charges of the request. Returns an error if the request names a policy that the
    /// limiter does not have, or if the store does not support a policy of the request.
    pub(super) fn charges(&self) -> Result<Charges<'_>, Error> {
        if let Some(name) = self.unknown {
            self.limiter.policy(name)?;
        }
        // The policies of the limiter need no check here, because `Limiter::new` checked them.
        let is_own =
            |policy: &Policy| self.limiter.policies().iter().any(|own| own.is_same_object(policy));
        for policy in self.charges.iter().map(ChargeBuf::policy).filter(|policy| !is_own(policy)) {
            self.limiter.store().supports(policy)?;
        }
        Ok(Charges::from(&self.charges[..]))
    }

    pub(super) fn send(&self, operation: Operation) -> Answer<'_, Result<Decision, Error>> {
        match self.charges() {
            Ok(charges) => {
                let call = Call::with_charges(operation, charges);
                self.limiter.store().decide(Call { id: self.id, ..call })
            }
            Err(error) => Answer::ready(Err(error)),
        }
    }
}
