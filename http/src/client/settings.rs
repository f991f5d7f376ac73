//! The settings that a layer shares with its services.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate_core::{Limiter, Subject};

use super::announcements::Announcements;

pub(super) struct Settings<S, R> {
    pub(super) limiter: Limiter<S>,
    pub(super) announcements: Announcements,
    pub(super) subject: Arc<SubjectOf>,
    pub(super) cost: Option<Arc<CostOf>>,
    pub(super) max_wait: Duration,
    pub(super) default_pause: Duration,
    pub(super) max_retries: u32,
    pub(super) retry: R,
}

pub(super) type SubjectOf = dyn Fn(&Parts) -> Option<Subject<'static>> + Send + Sync;
pub(super) type CostOf = dyn Fn(&Parts) -> u64 + Send + Sync;

// `#[derive(Clone)]` would require that the store implements `Clone`.
impl<S, R: Clone> Clone for Settings<S, R> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            announcements: self.announcements.clone(),
            subject: Arc::clone(&self.subject),
            cost: self.cost.clone(),
            retry: self.retry.clone(),
            ..*self
        }
    }
}

impl<S, R> fmt::Debug for Settings<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("max_wait", &self.max_wait)
            .field("default_pause", &self.default_pause)
            .field("max_retries", &self.max_retries)
            .finish_non_exhaustive()
    }
}
