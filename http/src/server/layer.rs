//! The layer.

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

/// Puts limits before a service. See [the module](super) for an example, for what a request gets and for
/// where the layer stands among others.
///
/// `R` makes the responses of refusals. The layer is `Clone`, whatever `S` and `R` are: clones share one limiter.
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
    // One pointer, as axum applies the layer of a route anew for each request.
    shared: Arc<Shared<S, R>>,
}

impl<S: Store> RateLimitLayer<S> {
    /// A layer that applies these limits, all in one decision.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if there is no limit or more than [`MAX_CHARGES`], if the limiter has no policy
    /// of a limit's name, if a field cannot hold a name or a unit, or if a status for requests
    /// without a subject is not of a client error.
    pub fn new(
        limiter: Limiter<S>,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Result<Self, Error> {
        let limits: Box<[(Policy, Limit)]> = limits
            .into_iter()
            .map(|limit| {
                let policy = policy_of(&limiter, &limit)?;
                check_status(&limit)?;
                Ok((policy.clone(), limit))
            })
            .collect::<Result<_, Error>>()?;
        if limits.is_empty() || limits.len() > MAX_CHARGES {
            let count = limits.len();
            return Err(invalid(format!("a layer has 1 to {MAX_CHARGES} limits, not {count}")));
        }
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

impl<S, R> RateLimitLayer<S, R> {
    /// Lets requests of this path pass, and counts them nowhere: `/health`, say. The path is compared as a
    /// whole, as the layer sees it; axum takes off the prefix of a nested router.
    pub fn exempt_path(self, path: impl Into<Box<str>>) -> Self {
        self.exempt_by(Exemption::Path(path.into()))
    }

    /// Lets requests of the method `OPTIONS` pass, and counts them nowhere: for a server that answers CORS
    /// preflights inside of the layer.
    pub fn exempt_options(self) -> Self {
        self.exempt(|request| request.method == Method::OPTIONS)
    }

    /// Lets requests for which `condition` is true pass, and counts them nowhere.
    pub fn exempt(self, condition: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.exempt_by(Exemption::If(Arc::new(condition)))
    }

    fn exempt_by(self, exemption: Exemption) -> Self {
        self.with(|settings| settings.exemptions.push(exemption))
    }

    /// Sets the form of the fields that tell the limits. Default: [`FieldFormat::Ietf11`].
    pub fn fields(self, format: FieldFormat) -> Self {
        self.with(|settings| {
            settings.fields = settings.fields.take().map(|writer| writer.with_format(format));
        })
    }

    /// Sets the policies that the fields name. By default, a response to a request with more than
    /// four limits names only the tightest of each [unit](Limit::unit): see [`FieldScope`].
    pub fn field_scope(self, scope: FieldScope) -> Self {
        self.with(|settings| {
            settings.fields = settings.fields.take().map(|writer| writer.with_scope(scope));
        })
    }

    /// Tells no limits. Refusals then have no `Retry-After` either, unless
    /// [`respond_with`](Self::respond_with) adds it.
    pub fn without_fields(self) -> Self {
        self.with(|settings| settings.fields = None)
    }

    /// Gives the charges of a request back if its service fails, or answers with a status from 500 on.
    pub fn refund_server_errors(self) -> Self {
        self.refund_when(|response| response.status.is_server_error())
    }

    /// Gives the charges of a request back if its service fails, or if `rule` is true for the head of the
    /// response. [`Limit::without_refund`] excludes a limit.
    ///
    /// The response waits for the store to answer. A refund that fails leaves the request charged, and so does a
    /// client that disconnects earlier. What a failure policy admitted is not given back.
    ///
    /// ```
    /// # use tidegate_core::Store;
    /// # use tidegate_http::server::RateLimitLayer;
    /// # fn with_refunds<S: Store>(layer: RateLimitLayer<S>) -> RateLimitLayer<S> {
    /// // An answer from the cache costs nothing.
    /// layer.refund_when(|response| response.headers.get("x-cache").is_some_and(|it| it == "HIT"))
    /// # }
    /// ```
    pub fn refund_when(
        self,
        rule: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.refund = Some(Arc::new(rule)))
    }

    /// Takes the costs as estimates, for a service whose costs are known only when it has answered: see
    /// [`hold`](super::hold). The limits that are named are settled at their [`ActualCost`]; others keep their costs.
    ///
    /// `ttl` is how long a response takes at most. The store remembers a hold for twice that time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if there is no limit of a name, if two limits are of one policy, and if `ttl` is zero
    /// or above [`MAX_SPAN`](tidegate_core::MAX_SPAN).
    pub fn hold_for<'n>(
        self,
        ttl: Duration,
        costs: impl IntoIterator<Item = (&'n str, ActualCost)>,
    ) -> Result<HoldLayer<S, R>, Error> {
        let shared = self.into_shared();
        let settings = HoldSettings::new(&shared.settings.limits, ttl, costs)?;
        Ok(HoldLayer::new(shared, settings))
    }

    /// Answers refusals with what a function returns. The fields are added to that.
    ///
    /// Without it, [`ProblemJson`] answers, whose body the service's type of body must be made from:
    /// `From<String>`, as `axum::body::Body` and `http_body_util::Full<Bytes>` have it.
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

    /// Answers refusals with a [`Respond`](super::Respond), whose type has a name:
    /// [`GrpcStatus`](super::GrpcStatus), or one of the application.
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

    /// Clones of the layer keep their own.
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
            limiter.policies().iter().map(|it| format!("`{}`", it.name())).collect();
        let (name, names) = (&limit.policy_name, names.join(", "));
        invalid(format!("the limiter has no policy `{name}`, but {names}"))
    })
}

fn check_status(limit: &Limit) -> Result<(), Error> {
    match limit.missing {
        Missing::Refuse(status) if !status.is_client_error() => Err(invalid(format!(
            "requests without a subject for `{}` would be refused with {status}; that has to be a \
             client error, 400 to 499",
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

// Not derived, as that would ask for `S: Clone` and `R: Clone`.
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
