//! The limiter and the settings, which a layer and its services share.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::request::Parts;
use http::{Response, response};
use tidegate_core::{Limiter, Policy};

use super::decide::{Admission, Decided};
use super::limit::Limit;
use super::refusal::{Refusal, Respond};
use crate::fields::{FieldWriter, Problem};

pub(super) struct Shared<S, R> {
    pub(super) limiter: Limiter<S>,
    pub(super) settings: Settings,
    pub(super) respond: Arc<R>,
}

#[derive(Clone)]
pub(super) struct Settings {
    /// Each limit, with the limiter's policy of the same name.
    pub(super) limits: Box<[(Policy, Limit)]>,
    pub(super) exemptions: Vec<Exemption>,
    /// `None` if the layer writes no fields.
    pub(super) fields: Option<FieldWriter>,
    pub(super) refund: Option<Arc<RefundRule>>,
}

#[derive(Clone)]
pub(super) enum Exemption {
    Path(Box<str>),
    If(Arc<dyn Fn(&Parts) -> bool + Send + Sync>),
}

pub(super) type RefundRule = dyn Fn(&response::Parts) -> bool + Send + Sync;

impl Settings {
    pub(super) fn exempts(&self, request: &Parts) -> bool {
        self.exemptions.iter().any(|exemption| match exemption {
            Exemption::Path(path) => **path == *request.uri.path(),
            Exemption::If(condition) => condition(request),
        })
    }
}

impl<S, R> Shared<S, R> {
    /// If the request is admitted, returns the decision, or `None` if the response does not depend
    /// on the decision. If the request is refused, returns the response.
    pub(super) fn admit<B>(
        &self,
        request: &Parts,
        admission: Admission,
    ) -> ControlFlow<Response<B>, Option<Decided>>
    where
        R: Respond<B>,
    {
        match admission {
            Admission::Passes => ControlFlow::Continue(None),
            Admission::Decided(decided) => {
                let Some(problem) = Problem::new(decided.verdicts(), &decided.decision) else {
                    return ControlFlow::Continue(Some(decided));
                };
                let refusal = Refusal::denied(request, &decided, problem);
                let mut response = self.respond.respond(&refusal);
                self.write_fields(&decided, &mut response);
                ControlFlow::Break(response)
            }
            Admission::NoSubject { policy, refused } => {
                let refusal = Refusal::no_subject(request, policy.name(), refused);
                ControlFlow::Break(self.respond.respond(&refusal))
            }
            Admission::Failed(error) => {
                let refusal = Refusal::failed(request, &error);
                ControlFlow::Break(self.respond.respond(&refusal))
            }
        }
    }

    pub(super) fn write_fields<B>(&self, decided: &Decided, response: &mut Response<B>) {
        if let Some(writer) = &self.settings.fields {
            let headers = response.headers_mut();
            writer.write_partitioned(decided.partitioned(), &decided.decision, headers);
        }
    }

    /// Returns `true` if the charges of a request with this response are refunded. `response` is
    /// `None` if the service failed.
    pub(super) fn refunds(&self, response: Option<&response::Parts>) -> bool {
        self.settings.refund.as_ref().is_some_and(|rule| response.is_none_or(|head| rule(head)))
    }
}

impl<S: fmt::Debug, R> fmt::Debug for Shared<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("RateLimit", f)
    }
}

impl<S: fmt::Debug, R> Shared<S, R> {
    pub(super) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.settings.limits.iter().map(|(_, limit)| limit).collect::<Vec<_>>();
        f.debug_struct(name)
            .field("limiter", &self.limiter)
            .field("limits", &limits)
            .finish_non_exhaustive()
    }
}
