//! One limit of a layer.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use tidegate_core::{Policy, Subject};

use crate::subject::{ExtractSubject, HashKey, PartitionKey};

/// One limit of a layer: a policy of the limiter, and what its subject and its cost are in a request.
///
/// ```
/// use http::{Method, StatusCode};
/// use tidegate_core::{Policy, Subject};
/// use tidegate_http::server::Limit;
/// use tidegate_http::subject::{Authenticated, ClientAddress};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
///     plan: Policy, // by the authentication middleware, from a database
/// }
///
/// let limits = [
///     Limit::by("ip", ClientAddress::peer()),
///     // Writes cost 5, and each user has a plan.
///     Limit::by("user", Authenticated::new(|user: &User| Subject::from(user.id)))
///         .cost_by(|request| if request.method == Method::GET { 1 } else { 5 })
///         .policy_by(|request| Some(&request.extensions.get::<User>()?.plan))
///         .or_refuse(StatusCode::UNAUTHORIZED),
///     // Searches count by themselves too.
///     Limit::by("search", ClientAddress::peer()).only(|request| request.uri.path() == "/search"),
/// ];
/// # drop(limits);
/// ```
#[must_use = "a limit does nothing until it is given to a layer"]
#[derive(Clone)]
pub struct Limit {
    pub(super) policy_name: Box<str>,
    subject: Arc<dyn ExtractSubject>,
    tenant: Option<Arc<dyn ExtractSubject>>,
    cost: Cost,
    condition: Option<Arc<Condition>>,
    policy: Option<Arc<PolicyOf>>,
    pub(super) missing: Missing,
    pub(super) unit: Option<Box<str>>,
    pub(super) is_refunded: bool,
    partition_key: Option<HashKey>,
}

type Condition = dyn Fn(&Parts) -> bool + Send + Sync;
type CostOf = dyn Fn(&Parts) -> u64 + Send + Sync;
type PolicyOf = dyn for<'r> Fn(&'r Parts) -> Option<&'r Policy> + Send + Sync;

#[derive(Clone)]
enum Cost {
    Fixed(u64),
    Of(Arc<CostOf>),
}

/// What a request without a subject gets.
#[derive(Debug, Clone)]
pub(super) enum Missing {
    Refuse(StatusCode),
    Pass,
    Share(Subject<'static>),
}

/// A request without a subject, which its limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoSubject {
    pub(super) status: StatusCode,
    pub(super) remedy: Option<&'static str>,
}

/// What a limit charges for a request.
#[derive(Debug)]
pub(super) struct LimitCharge<'r> {
    /// The place of the limit in the layer.
    pub(super) limit: usize,
    pub(super) policy: &'r Policy,
    pub(super) is_own_policy: bool,
    pub(super) is_refunded: bool,
    pub(super) tenant: Option<Subject<'r>>,
    pub(super) subject: Subject<'r>,
    pub(super) cost: u64,
    /// `None` if the client is not to know it.
    pub(super) partition_key: Option<PartitionKey>,
}

impl Limit {
    /// Charges the limiter's policy of this name, by this subject: 1 for each request. A request without the
    /// subject is refused with 400.
    pub fn by(policy: impl Into<Box<str>>, subject: impl ExtractSubject + 'static) -> Self {
        Self {
            policy_name: policy.into(),
            subject: Arc::new(subject),
            tenant: None,
            cost: Cost::Fixed(1),
            condition: None,
            policy: None,
            missing: Missing::Refuse(StatusCode::BAD_REQUEST),
            unit: None,
            is_refunded: true,
            partition_key: None,
        }
    }

    /// Sets the cost of each request.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost: Cost::Fixed(cost), ..self }
    }

    /// Sets the cost of a request by its head. A cost of 0 is never refused, except while the subject is
    /// blocked, and its response tells what is left.
    pub fn cost_by(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        Self { cost: Cost::Of(Arc::new(cost)), ..self }
    }

    /// Applies the limit only to requests for which `condition` is true: to some routes, some methods, some
    /// tenants. Twice: to those for which both are.
    pub fn only(self, condition: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        let condition: Arc<Condition> = match self.condition {
            None => Arc::new(condition),
            Some(first) => Arc::new(move |request| first(request) && condition(request)),
        };
        Self { condition: Some(condition), ..self }
    }

    /// Uses another policy for a request, such as the plan of its user. With `None`, the limiter's counts.
    ///
    /// The policy is borrowed from the request: the middleware that loads it (from a database, say) puts it
    /// into the request's extensions. Plans that differ in numbers only should have the name of the limiter's
    /// policy, so that what was used stays used when the plan changes: see
    /// [`Policy`](Policy#what-happens-to-what-was-used-when-a-policy-changes).
    pub fn policy_by(
        self,
        policy: impl for<'r> Fn(&'r Parts) -> Option<&'r Policy> + Send + Sync + 'static,
    ) -> Self {
        Self { policy: Some(Arc::new(policy)), ..self }
    }

    /// Counts the subjects of each tenant by themselves, and keeps the states of a tenant together. A request
    /// without a tenant gets what one without a subject gets.
    ///
    /// ```
    /// use tidegate_core::Subject;
    /// use tidegate_http::server::Limit;
    /// use tidegate_http::subject::{Authenticated, Everybody};
    ///
    /// #[derive(Clone)]
    /// struct Tenant(String);
    ///
    /// let limit = Limit::by("tenant", Everybody)
    ///     .tenant_by(Authenticated::new(|tenant: &Tenant| Subject::from(&tenant.0)));
    /// # drop(limit);
    /// ```
    pub fn tenant_by(self, tenant: impl ExtractSubject + 'static) -> Self {
        Self { tenant: Some(Arc::new(tenant)), ..self }
    }

    /// Refuses requests without a subject, with this status of a client error: 401, say. Default: 400.
    pub fn or_refuse(self, status: StatusCode) -> Self {
        Self { missing: Missing::Refuse(status), ..self }
    }

    /// Does not apply the limit to requests without a subject. Other limits of the layer still apply.
    ///
    /// A client that can leave out its subject can then leave out the limit.
    pub fn or_pass(self) -> Self {
        Self { missing: Missing::Pass, ..self }
    }

    /// Counts all requests without a subject as one subject of this name. It is written as
    /// [several parts](Subject::parts) are, so that no user, address or key of that name equals it.
    pub fn or_share(self, name: &str) -> Self {
        Self { missing: Missing::Share(Subject::parts(["no subject", name])), ..self }
    }

    /// Says what is counted, if not requests, for the field `RateLimit-Policy`: see
    /// [`FieldWriterBuilder::unit`](crate::fields::FieldWriterBuilder::unit).
    pub fn unit(self, unit: impl Into<Box<str>>) -> Self {
        Self { unit: Some(unit.into()), ..self }
    }

    /// Tells clients the partition that a request was counted in: the parameter `pk` of the field `RateLimit`, as a
    /// keyed hash of the tenant and the subject (HMAC-SHA-256, cut to 128 bits). Written in the format
    /// [`FieldFormat::Ietf11`](crate::fields::FieldFormat::Ietf11) only. Default: not written.
    ///
    /// A client with several accounts can tell by it which of them a limit is of. But the key is the same in all
    /// responses about a subject, so it discloses which of them are about the same one: to two clients behind
    /// one address that they share it, and to a log or a proxy that a user came back from another address. The
    /// hash hides the subject only as long as the secret is not known; do not use the secret for
    /// anything else. It costs a hash and an allocation for each request.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tidegate_core::Subject;
    /// use tidegate_http::server::{Limit, RateLimitLayer};
    /// use tidegate_http::subject::{Authenticated, HashKey};
    /// use tidegate_memory::{Limiter, MemoryStore};
    /// use tower::{ServiceBuilder, ServiceExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new(), ["account: fixed-window 100/1h".parse()?])?;
    /// let secret = HashKey::new(b"from the settings, the same for all processes")?;
    /// let limit = Limit::by("account", Authenticated::new(|account: &u64| Subject::from(*account)));
    /// let service = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::new(limiter, [limit.partition_key(secret)])?)
    ///     .service_fn(|_: Request<()>| async { Ok::<_, std::io::Error>(Response::new(String::new())) });
    ///
    /// let mut request = Request::new(());
    /// request.extensions_mut().insert(7_u64); // by the authentication middleware
    /// let response = service.oneshot(request).await?;
    /// let field = response.headers()["ratelimit"].to_str()?;
    /// assert!(field.ends_with(";pk=:OGG0gHp7o+vbH7MlH+dy6w==:"), "{field}");
    /// # Ok(()) }
    /// ```
    pub fn partition_key(self, key: HashKey) -> Self {
        Self { partition_key: Some(key), ..self }
    }

    /// Keeps the charge of a request that failed, where the layer
    /// [refunds](super::RateLimitLayer::refund_when) others: of a limit on attempts, say.
    pub fn without_refund(self) -> Self {
        Self { is_refunded: false, ..self }
    }

    /// Returns what the limit charges; `None` if it does not apply.
    ///
    /// # Errors
    ///
    /// Returns how the request is refused, if it has no subject.
    pub(super) fn charge<'r>(
        &'r self,
        limit: usize,
        own_policy: &'r Policy,
        request: &'r Parts,
    ) -> Result<Option<LimitCharge<'r>>, NoSubject> {
        if self.condition.as_ref().is_some_and(|condition| !condition(request)) {
            return Ok(None);
        }
        let tenant = self.tenant.as_ref().map(|tenant| tenant.extract(request));
        // `None` stands for a tenant that is missing.
        let subject = match tenant {
            Some(None) => None,
            _ => self.subject.extract(request),
        };
        let subject = match (subject, &self.missing) {
            (Some(subject), _) => subject,
            (None, Missing::Refuse(status)) => {
                let remedy = match (&self.tenant, &tenant) {
                    (Some(extractor), Some(None)) => extractor.remedy(request),
                    _ => self.subject.remedy(request),
                };
                return Err(NoSubject { status: *status, remedy });
            }
            (None, Missing::Pass) => return Ok(None),
            (None, Missing::Share(shared)) => Subject::from(shared),
        };
        let policy = self.policy.as_ref().and_then(|policy| policy(request));
        let cost = match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::Of(cost) => cost(request),
        };
        let tenant = tenant.flatten();
        let partition_key = self.partition_key.as_ref().map(|key| {
            key.partition_key(tenant.as_ref().map_or(&[], Subject::as_bytes), subject.as_bytes())
        });
        Ok(Some(LimitCharge {
            limit,
            policy: policy.unwrap_or(own_policy),
            is_own_policy: policy.is_none(),
            is_refunded: self.is_refunded,
            tenant,
            subject,
            cost,
            partition_key,
        }))
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("policy", &self.policy_name)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}
