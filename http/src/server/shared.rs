//! What a layer and its services share: the limiter and the settings.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::response;
use tidegate_core::{Limiter, Policy};

use super::limit::Limit;
use crate::fields::FieldWriter;

/// What all services of a layer share.
pub(super) struct Shared<S, R> {
    pub(super) limiter: Limiter<S>,
    pub(super) settings: Settings,
    pub(super) respond: Arc<R>,
}

#[derive(Clone)]
pub(super) struct Settings {
    /// With the limiter's policy of each.
    pub(super) limits: Box<[(Policy, Limit)]>,
    pub(super) exemptions: Vec<Exemption>,
    /// `None` if no fields are written.
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
