//! The layer that applies limits to a service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, response};
use tidegate_core::{Error, ErrorKind, Limiter, MAX_CHARGES, Policy, Store};
use tower_layer::Layer;

use super::hold::{ActualCost, HoldLayer, HoldSettings};
use super::limit::{Limit, Missing};
use super::refusal::ProblemJson;
use super::service::RateLimit;
use super::shared::{Exemption, Settings, Shared};
use crate::fields::{FieldFormat, FieldScope, FieldWriter};

/// A layer that applies limits to the requests of a service. [The module](super) has an example,
/// and describes the responses and the position of the layer among other layers.
///
/// `R` creates the responses of refusals. The layer implements `Clone` for every `S` and `R`. All
/// clones share one limiter.
///
/// ```
/// use http::{Request, Response};
/// use tidegate_http::server::{Limit, RateLimitLayer};
/// use tidegate_http::subject::Everybody;
/// use tidegate_memory::{Limiter, MemoryStore};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new(), ["all: fixed-window 1/1h".parse()?])?;
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(limiter, [Limit::by("all", Everybody)])?)
///     .service_fn(|_: Request<()>| async { Ok::<_, std::io::Error>(Response::new("Hello!".to_string())) });
///
/// let response = service.clone().oneshot(Request::new(())).await?;
/// assert_eq!((response.status().as_u16(), response.body().as_str()), (200, "Hello!"));
/// assert_eq!(response.headers()["ratelimit-policy"], r#""all";q=1;w=3600"#);
///
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(response.status(), 429);
/// assert!(response.headers().contains_key("retry-after"));
/// assert!(response.body().contains(r#""violated-policies":["all"]"#));
/// # Ok(()) }
/// ```
#[must_use = "a layer does nothing until a service is wrapped by it"]
pub struct RateLimitLayer<S, R = ProblemJson> {
    // The layer is a single pointer, so that it can be applied quickly: axum applies the layer of a
    // route again for each request.
    shared: Arc<Shared<S, R>>,
}

impl<S: Store> RateLimitLayer<S> {
    /// Creates a layer that applies these limits in one decision.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] in these cases:
    ///
    /// * There is no limit, or there are more limits than [`MAX_CHARGES`].
    /// * The limiter has no policy with the name of a limit.
    /// * A field cannot contain the name of a policy or of a unit.
    /// * The status for requests without a subject is not a client error.
    /// * The first limit is an [alternative](Limit::alternative), or the policy of an alternative
    ///   blocks or is a shadow.
    pub fn new(
        limiter: Limiter<S>,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Result<Self, Error> {
        let mut limits: Box<[(Policy, Limit)]> = limits
            .into_iter()
            .map(|limit| {
                let policy = policy_of(&limiter, &limit)?;
                check_status(&limit)?;
                Ok((policy.clone(), limit))
            })
            .collect::<Result<_, Error>>()?;
        if limits.is_empty() || limits.len() > MAX_CHARGES {
            let count = limits.len();
            return Err(invalid(format!(
                "the number of limits is {count}; it must be 1 to {MAX_CHARGES}"
            )));
        }
        number_lists(&mut limits)?;
        let mut writer = FieldWriter::builder();
        for (policy, limit) in &limits {
            if let Some(unit) = &limit.unit {
                writer = writer.unit(policy.name(), unit.clone());
            }
        }
        let writer = writer.build(limits.iter().map(|(policy, _)| policy));
        let settings = Settings {
            fields: Some(writer.map_err(|error| invalid(error.to_string()))?),
            limits,
            exemptions: vec![],
            refund: None,
        };
        Ok(Self::from_shared(Shared { limiter, settings, respond: Arc::new(ProblemJson) }))
    }
}

/// Sets the number of the list of each limit that is an alternative or has one.
fn number_lists(limits: &mut [(Policy, Limit)]) -> Result<(), Error> {
    let mut last = 0;
    for index in 0..limits.len() {
        let is_next = limits.get(index + 1).is_some_and(|(_, next)| next.is_alternative);
        let Some((policy, limit)) = limits.get_mut(index) else { continue };
        match (limit.is_alternative, is_next) {
            (true, _) if index == 0 => {
                let message = format!(
                    "`{policy}` is an alternative to the limit before it, and is the first limit"
                );
                return Err(invalid(message));
            }
            (false, true) => last += 1,
            (false, false) => continue,
            (true, _) => {}
        }
        limit.list = last;
        if policy.block().is_some() || policy.is_shadow() {
            let message = format!(
                "`{policy}` is in a list of alternatives; a policy that blocks or is a shadow cannot \
                 be an alternative"
            );
            return Err(invalid(message));
        }
    }
    Ok(())
}

impl<S, R> RateLimitLayer<S, R> {
    /// Exempts requests with this path, such as `/health`, from all limits. The layer compares the
    /// whole path that it receives. In a nested router, axum removes the prefix of the path before
    /// the layer receives it.
    pub fn exempt_path(self, path: impl Into<Box<str>>) -> Self {
        self.exempt_by(Exemption::Path(path.into()))
    }

    /// Exempts requests with the method `OPTIONS` from all limits. Use this if the service inside
    /// the layer answers CORS preflight requests.
    pub fn exempt_options(self) -> Self {
        self.exempt(|request| request.method == Method::OPTIONS)
    }

    /// Exempts requests for which `condition` returns `true` from all limits.
    pub fn exempt(self, condition: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.exempt_by(Exemption::If(Arc::new(condition)))
    }

    fn exempt_by(self, exemption: Exemption) -> Self {
        self.with(|settings| settings.exemptions.push(exemption))
    }

    /// Sets the format of the fields that announce the limits. The default is
    /// [`FieldFormat::Ietf11`].
    pub fn fields(self, format: FieldFormat) -> Self {
        self.with(|settings| {
            settings.fields = settings.fields.take().map(|writer| writer.with_format(format));
        })
    }

    /// Sets the policies that the fields name. By default, a response to a request with more than
    /// four limits names only the tightest policy of each [unit](Limit::unit): see [`FieldScope`].
    pub fn field_scope(self, scope: FieldScope) -> Self {
        self.with(|settings| {
            settings.fields = settings.fields.take().map(|writer| writer.with_scope(scope));
        })
    }

    /// Disables the fields that announce the limits. Refusals then have no `Retry-After` either,
    /// unless [`respond_with`](Self::respond_with) adds it.
    pub fn without_fields(self) -> Self {
        self.with(|settings| settings.fields = None)
    }

    /// Refunds the charges of a request if its service fails, or if the status of the response is
    /// 500 or higher.
    pub fn refund_server_errors(self) -> Self {
        self.refund_when(|response| response.status.is_server_error())
    }

    /// Refunds the charges of a request if its service fails, or if `rule` returns `true` for the
    /// head of the response. [`Limit::without_refund`] excludes a limit from refunds.
    ///
    /// The response waits until the store has executed the refund. If the refund fails, or if the
    /// client disconnects before the response, the request stays charged. A charge that has
    /// recovered before the response, such as a charge of an earlier window, is not refunded.
    /// Requests that a failure policy admitted are not refunded.
    ///
    /// ```
    /// # use tidegate_core::Store;
    /// # use tidegate_http::server::RateLimitLayer;
    /// # fn with_refunds<S: Store>(layer: RateLimitLayer<S>) -> RateLimitLayer<S> {
    /// // A response from the cache costs nothing.
    /// layer.refund_when(|response| response.headers.get("x-cache").is_some_and(|value| value == "HIT"))
    /// # }
    /// ```
    pub fn refund_when(
        self,
        rule: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.refund = Some(Arc::new(rule)))
    }

    /// Treats the costs as estimates, for a service whose costs are known only after the response:
    /// see [`hold`](super::hold). The layer settles each limit in `costs` at its [`ActualCost`].
    /// The other limits keep their costs.
    ///
    /// `ttl` is the maximum duration of a response. The store remembers a hold for twice this time.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`] if `costs` contains a name that no limit of the layer
    /// has, if two limits have the same policy, or if `ttl` is zero or exceeds
    /// [`MAX_SPAN`](tidegate_core::MAX_SPAN).
    pub fn hold_for<'n>(
        self,
        ttl: Duration,
        costs: impl IntoIterator<Item = (&'n str, ActualCost)>,
    ) -> Result<HoldLayer<S, R>, Error> {
        let shared = self.into_shared();
        let settings = HoldSettings::new(&shared.settings.limits, ttl, costs)?;
        Ok(HoldLayer::new(shared, settings))
    }

    /// Answers refusals with the responses that the function `respond` returns. The layer adds its
    /// fields to these responses.
    ///
    /// By default, [`ProblemJson`] creates the responses to refused requests and to errors. It
    /// requires that the body type of the service implements `From<String>`, as `axum::body::Body`
    /// and `http_body_util::Full<Bytes>` do.
    ///
    /// ```
    /// use axum::response::{Html, IntoResponse as _};
    /// use tidegate_http::server::Refusal;
    /// # use tidegate_core::Store;
    /// # use tidegate_http::server::{RateLimitLayer, Respond};
    ///
    /// # fn with_page<S: Store>(layer: RateLimitLayer<S>) -> RateLimitLayer<S, impl Respond<axum::body::Body>> {
    /// layer.respond_with(|refusal: &Refusal<'_>| {
    ///     (refusal.status(), Html("<h1>Slow down, please</h1>")).into_response()
    /// })
    /// # }
    /// ```
    pub fn respond_with<F, B>(self, respond: F) -> RateLimitLayer<S, F>
    where
        F: Fn(&super::Refusal<'_>) -> http::Response<B>,
    {
        self.respond(respond)
    }

    /// Answers refusals with a value that implements [`Respond`](super::Respond):
    /// [`GrpcStatus`](super::GrpcStatus), or a type of the application.
    pub fn respond<R2>(self, respond: R2) -> RateLimitLayer<S, R2> {
        let Shared { limiter, settings, .. } = self.into_shared();
        RateLimitLayer::from_shared(Shared { limiter, settings, respond: Arc::new(respond) })
    }

    fn with(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut shared = self.into_shared();
        change(&mut shared.settings);
        Self::from_shared(shared)
    }

    fn from_shared(shared: Shared<S, R>) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Returns the data of the layer. If other clones of the layer share the data, returns a copy
    /// of it.
    fn into_shared(self) -> Shared<S, R> {
        Arc::try_unwrap(self.shared).unwrap_or_else(|shared| Shared {
            limiter: shared.limiter.clone(),
            settings: shared.settings.clone(),
            respond: Arc::clone(&shared.respond),
        })
    }
}

fn policy_of<'a, S: Store>(limiter: &'a Limiter<S>, limit: &Limit) -> Result<&'a Policy, Error> {
    limiter.policy(&limit.policy_name).map_err(|_| {
        let names: Vec<_> =
            limiter.policies().iter().map(|policy| format!("`{}`", policy.name())).collect();
        let (name, names) = (&limit.policy_name, names.join(", "));
        invalid(format!("the limiter has no policy `{name}`, but {names}"))
    })
}

fn check_status(limit: &Limit) -> Result<(), Error> {
    match limit.missing {
        Missing::Refuse(status) if !status.is_client_error() => Err(invalid(format!(
            "the status for requests without a subject for `{}` is {status}; it must be a client error \
             (400 to 499)",
            limit.policy_name
        ))),
        _ => Ok(()),
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

impl<Svc, S, R> Layer<Svc> for RateLimitLayer<S, R> {
    type Service = RateLimit<Svc, S, R>;

    fn layer(&self, inner: Svc) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

// `#[derive(Clone)]` would require `S: Clone` and `R: Clone`.
impl<S, R> Clone for RateLimitLayer<S, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for RateLimitLayer<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.debug("RateLimitLayer", f)
    }
}
