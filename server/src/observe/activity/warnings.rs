use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tidegate_core::{Policy, Warning};

use super::lock;
use super::shown::{Cut, Subject};

/// The maximum number of warnings that are kept.
const CAPACITY: usize = 20;

/// The last [warnings](tidegate_core::Warnings) of the stores. Clones share them.
#[derive(Debug, Clone)]
pub struct LastWarnings {
    shows_subjects: bool,
    last: Arc<Mutex<VecDeque<Warned>>>,
}

/// A warning that was reported.
#[derive(Debug, Clone)]
pub(super) struct Warned {
    pub(super) at: SystemTime,
    pub(super) policy: Policy,
    pub(super) subject: Option<Cut>,
    pub(super) remaining: u64,
}

impl LastWarnings {
    /// Creates an empty list. Subjects are kept only if `shows_subjects` is `true`.
    #[must_use]
    pub fn new(shows_subjects: bool) -> Self {
        Self { shows_subjects, last: Arc::default() }
    }

    /// Adds a warning. If there are more than 20, the oldest is removed.
    pub fn record(&self, warning: &Warning<'_>) {
        let Warning { policy, tenant, subject, verdict, .. } = *warning;
        let subject = Subject { tenant, subject };
        let warned = Warned {
            at: SystemTime::now(),
            policy: policy.clone(),
            subject: self.shows_subjects.then(|| Cut::new(subject)),
            remaining: verdict.remaining(),
        };
        let last = &mut *lock(&self.last);
        last.truncate(CAPACITY - 1);
        last.push_front(warned);
    }

    /// Returns the last warnings, the newest first.
    pub(super) fn last(&self) -> Vec<Warned> {
        lock(&self.last).iter().cloned().collect()
    }
}
