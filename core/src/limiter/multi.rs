//! A request on several subjects.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::Limiter;
use crate::decision::{PolicyVerdict, Receipt};
use crate::subject::ShownBytes;
use crate::{Call, CallId, Charge, Decision, Error, Operation, Policy, Store, Subject};

/// A request with a subject and a cost for each policy, all decided in one atomic call: finished by
/// naming the operation. Begun by [`Limiter::by`].
///
/// The operations borrow the request, so that one that failed later can be refunded.
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
/// let refused: Vec<_> = request.verdicts(&second).filter(|it| it.refuses()).collect();
/// assert_eq!(refused[0].name(), "tokens");
/// request.refund().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a request does nothing until its operation is named"]
#[derive(Debug)]
pub struct MultiRequest<'a, S> {
    pub(crate) limiter: &'a Limiter<S>,
    parts: SmallVec<[Part<'a>; 3]>,
    /// The first name that the limiter does not have.
    unknown: Option<&'a str>,
    pub(crate) id: Option<CallId<'a>>,
}

struct Part<'a> {
    policy: &'a Policy,
    /// Whether it is one of the limiter's, which were checked when that was built.
    is_checked: bool,
    tenant: &'a [u8],
    subject: Subject<'a>,
    cost: u64,
    is_check_only: bool,
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("policy", &self.policy)
            .field("is_checked", &self.is_checked)
            .field("tenant", &ShownBytes(self.tenant))
            .field("subject", &self.subject)
            .field("cost", &self.cost)
            .field("is_check_only", &self.is_check_only)
            .finish()
    }
}

/// A policy of a request: the name of one of the limiter's, or another policy.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum PolicyRef<'a> {
    /// The name of a policy of the limiter.
    Name(&'a str),
    /// A policy for this request, as a limit from a database.
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
        Self { limiter, parts: SmallVec::new(), unknown: None, id: None }
    }

    /// The same request, charged to one more policy: see [`Limiter::by`].
    pub fn by(mut self, policy: impl Into<PolicyRef<'a>>, subject: impl Into<Subject<'a>>) -> Self {
        let (policy, is_checked) = match policy.into() {
            PolicyRef::Policy(policy) => (policy, false),
            PolicyRef::Name(name) => match self.limiter.policy(name) {
                Ok(policy) => (policy, true),
                Err(_) => {
                    self.unknown.get_or_insert(name);
                    return self;
                }
            },
        };
        let subject = subject.into();
        let part = Part { policy, is_checked, tenant: b"", subject, cost: 1, is_check_only: false };
        self.parts.push(part);
        self
    }

    /// The cost for the policy named last. Default: 1.
    pub fn cost(mut self, cost: u64) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.cost = cost;
        }
        self
    }

    /// Takes nothing from the policy named last: it only has to admit its cost. See [`Charge::check_only`].
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
    /// // A request is admitted while tokens are left.
    /// let request = limiter.by("requests", "alice").by("tokens", "alice").check_only();
    /// assert!(request.acquire().await?.is_allowed());
    /// // Afterwards it is known that it took 1200.
    /// limiter.by("tokens", "alice").cost(1200).charge().await?;
    /// assert!(request.acquire().await?.is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_only(mut self) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.is_check_only = true;
        }
        self
    }

    /// The tenant of the subject named last. Default: none.
    pub fn tenant(mut self, tenant: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.tenant = tenant.as_ref();
        }
        self
    }

    /// Carries out the operation once under this id, however often it is asked for within `ttl`: see
    /// [`Request::id`](super::Request::id). On Redis Cluster, all subjects must be of one tenant.
    pub fn id(self, id: &'a (impl AsRef<[u8]> + ?Sized), ttl: Duration) -> Self {
        Self { id: Some(CallId::new(id, ttl)), ..self }
    }

    /// Decides, and takes all costs if all policies admit them.
    ///
    /// # Errors
    ///
    /// Of each operation: [`ErrorKind::InvalidCall`](crate::ErrorKind::InvalidCall) if the limiter has no policy of a name;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot keep the states of
    /// a policy that was given;
    /// and whatever the store's are.
    pub async fn acquire(&self) -> Result<Decision, Error> {
        self.send(Operation::Acquire).await
    }

    /// Decides as [`acquire`](Self::acquire) would, and writes nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn peek(&self) -> Result<Decision, Error> {
        self.send(Operation::Peek).await
    }

    /// Takes as much as there is: the same amount from each policy, at least `min` and at most the minimum of the
    /// costs. [`Decision::amounts`] has it; see [`Operation::AcquireUpTo`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_up_to(&self, min: u64) -> Result<Decision, Error> {
        self.send(Operation::AcquireUpTo { min }).await
    }

    /// Records costs that were known only afterwards, beyond the limits if need be: later requests pay for them.
    /// [`Receipt::amounts`] has how much was recorded; see [`Operation::Charge`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn charge(&self) -> Result<Receipt, Error> {
        self.send(Operation::Charge).await.map(Receipt::new)
    }

    /// Gives the costs back, as when the work was not done after all. [`Receipt::amounts`] has how much of each was still
    /// taken, and so given back.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn refund(&self) -> Result<Receipt, Error> {
        self.send(Operation::Refund).await.map(Receipt::new)
    }

    /// Reserves a place at most `max_wait` in the future; [`Decision::wait`] is how far. First come, first served.
    /// Buckets only.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn reserve(&self, max_wait: Duration) -> Result<Decision, Error> {
        self.send(Operation::Reserve { max_wait }).await
    }

    /// Forgets all that the subjects have taken, and their blocks.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn reset(&self) -> Result<Receipt, Error> {
        self.send(Operation::Reset).await.map(Receipt::new)
    }

    /// Blocks the subjects for `span` from now on; zero lifts a block.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn block(&self, span: Duration) -> Result<Receipt, Error> {
        self.send(Operation::Block { span }).await.map(Receipt::new)
    }

    /// Blocks the subjects for at least `span` from now on: blocks that end later stay as they are. Zero changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn block_at_least(&self, span: Duration) -> Result<Receipt, Error> {
        self.send(Operation::BlockAtLeast { span }).await.map(Receipt::new)
    }

    /// The verdicts of a decision on this request, with their policies.
    pub fn verdicts<'d>(
        &'d self,
        decision: &'d Decision,
    ) -> impl Iterator<Item = PolicyVerdict<'d>> {
        decision.verdicts_of(self.parts.iter().map(|part| part.policy))
    }

    async fn send(&self, operation: Operation) -> Result<Decision, Error> {
        self.check()?;
        let charges: SmallVec<[Charge<'_>; 4]> = self.charges().collect();
        self.limiter.store().decide(Call { id: self.id, ..Call::new(operation, &charges) }).await
    }

    /// What was checked of the limiter's own policies when it was built.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(name) = self.unknown {
            self.limiter.policy(name)?;
        }
        for part in self.parts.iter().filter(|part| !part.is_checked) {
            self.limiter.store().supports(part.policy)?;
        }
        Ok(())
    }

    pub(crate) fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        self.parts.iter().map(|part| {
            let subject = part.subject.as_bytes();
            let Part { policy, tenant, cost, is_check_only, .. } = *part;
            Charge { policy, tenant, subject, cost, is_check_only }
        })
    }
}
