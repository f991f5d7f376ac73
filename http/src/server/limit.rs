//! One limit of a layer.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use tidegate_core::{Policy, Subject};

use crate::subject::{ExtractSubject, HashKey, PartitionKey};

/// A limit of a layer: a policy of the limiter, and functions that return the subject and the cost
/// of a request.
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
///     // Searches have an additional limit.
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
    /// Whether the limit is an alternative to the limit before it.
    pub(super) is_alternative: bool,
    /// The number of the list of alternatives to which the limit belongs, or 0.
    pub(super) list: u8,
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

/// The treatment of a request without a subject.
#[derive(Debug, Clone)]
pub(super) enum Missing {
    Refuse(StatusCode),
    Pass,
    Share(Subject<'static>),
}

/// The refusal of a request that has no subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoSubject {
    pub(super) status: StatusCode,
    pub(super) remedy: Option<&'static str>,
}

/// The charge of a limit for a request.
#[derive(Debug)]
pub(super) struct LimitCharge<'r> {
    /// The index of the limit in the layer.
    pub(super) limit: usize,
    pub(super) policy: &'r Policy,
    pub(super) is_refunded: bool,
    pub(super) tenant: Option<Subject<'r>>,
    pub(super) subject: Subject<'r>,
    pub(super) cost: u64,
    pub(super) list: u8,
    /// `None` if the response does not disclose the partition key.
    pub(super) partition_key: Option<PartitionKey>,
}

impl Limit {
    /// Creates a limit that charges 1 per request to this subject, under the limiter's policy with
    /// this name. A request without the subject is refused with status 400.
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
            is_alternative: false,
            list: 0,
            partition_key: None,
        }
    }

    /// Sets the cost of each request.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost: Cost::Fixed(cost), ..self }
    }

    /// Sets a function that returns the cost of a request from its head. A request with a cost of 0
    /// is refused only while the subject is blocked. Its response announces the remaining amount.
    pub fn cost_by(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        Self { cost: Cost::Of(Arc::new(cost)), ..self }
    }

    /// Applies the limit only to requests for which `condition` returns `true`, for example to some
    /// routes, methods or tenants. If this method is called several times, all conditions must be
    /// `true`.
    pub fn only(self, condition: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        let condition: Arc<Condition> = match self.condition {
            None => Arc::new(condition),
            Some(first) => Arc::new(move |request| first(request) && condition(request)),
        };
        Self { condition: Some(condition), ..self }
    }

    /// Sets a function that returns another policy for a request, such as the plan of its user. If
    /// the function returns `None`, the limiter's policy applies.
    ///
    /// The policy is borrowed from the request. A middleware loads the policy, for example from a
    /// database, and puts it into the extensions of the request. Plans that differ only in numbers
    /// should have the name of the limiter's policy, so that the usage of a subject is kept when
    /// its plan changes: see
    /// [`Policy`](Policy#what-happens-to-what-was-used-when-a-policy-changes).
    pub fn policy_by(
        self,
        policy: impl for<'r> Fn(&'r Parts) -> Option<&'r Policy> + Send + Sync + 'static,
    ) -> Self {
        Self { policy: Some(Arc::new(policy)), ..self }
    }

    /// Sets the tenant of a request. The subjects of each tenant are counted separately, and all
    /// states of a tenant are stored together. A request without a tenant is treated like a request
    /// without a subject.
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

    /// Refuses requests without a subject with this status, which must be a client error (4xx). The
    /// default is 400.
    pub fn or_refuse(self, status: StatusCode) -> Self {
        Self { missing: Missing::Refuse(status), ..self }
    }

    /// Exempts requests without a subject from this limit. The other limits of the layer still
    /// apply to them.
    ///
    /// A client that can omit its subject can therefore bypass the limit.
    pub fn or_pass(self) -> Self {
        Self { missing: Missing::Pass, ..self }
    }

    /// Counts all requests without a subject as one subject of this name. The name is encoded as
    /// [several parts](Subject::parts), so that it never equals a user, an address or a key.
    pub fn or_share(self, name: &str) -> Self {
        Self { missing: Missing::Share(Subject::parts(["no subject", name])), ..self }
    }

    /// Sets the unit that the limit counts, for the field `RateLimit-Policy`. The default is
    /// requests. See [`FieldWriterBuilder::unit`](crate::fields::FieldWriterBuilder::unit).
    pub fn unit(self, unit: impl Into<Box<str>>) -> Self {
        Self { unit: Some(unit.into()), ..self }
    }

    /// Discloses the partition of a request to the client, as the parameter `pk` of the field
    /// `RateLimit`. The partition is a keyed hash of the tenant and the subject (HMAC-SHA-256,
    /// truncated to 128 bits). Only the format
    /// [`FieldFormat::Ietf11`](crate::fields::FieldFormat::Ietf11) has this parameter. By default,
    /// the partition is not disclosed.
    ///
    /// With the partition, a client that has several accounts can recognize the account that a
    /// limit applies to. However, all responses about one subject have the same partition key, so
    /// that the key discloses which responses are about the same subject. For example, two clients
    /// at one address can find out that they share the address, and a log or a proxy can recognize
    /// a user who returns from another address.
    ///
    /// The hash hides the subject only while the secret is not known, so use the secret for nothing
    /// else. The partition costs one hash and one allocation per request.
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

    /// Excludes the limit from [refunds](super::RateLimitLayer::refund_when), so that a failed
    /// request stays charged. This is useful for a limit on attempts.
    pub fn without_refund(self) -> Self {
        Self { is_refunded: false, ..self }
    }

    /// Makes the limit an alternative to the limit before it in the layer. The layer charges only
    /// one of these limits: the first one that its policy admits. The fields of the response do not
    /// name the others. See [`Charge::in_list`](tidegate_core::Charge::in_list).
    ///
    /// If a limit of the list does not apply to a request, the others are its alternatives.
    ///
    /// ```
    /// use tidegate_http::server::Limit;
    /// use tidegate_http::subject::{ClientAddress, Everybody};
    ///
    /// // The own limit of each client pays first. If it is used up, the shared pool pays.
    /// let limits =
    ///     [Limit::by("own", ClientAddress::peer()), Limit::by("pool", Everybody).alternative()];
    /// # drop(limits);
    /// ```
    pub fn alternative(self) -> Self {
        Self { is_alternative: true, ..self }
    }

    /// Returns the charge of the limit for a request. Returns `None` if the limit does not apply.
    ///
    /// # Errors
    ///
    /// Returns the refusal of the request if it has no subject.
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
        // `Some(None)` means that the limit needs a tenant, but the request has none. `None` means
        // that the limit has no tenants.
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
            is_refunded: self.is_refunded,
            tenant,
            subject,
            cost,
            list: self.list,
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
