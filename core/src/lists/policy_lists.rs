//! The lists of several policies, which can be replaced while a program runs.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::{ListAction, Lists};

type ByPolicy = HashMap<Box<str>, Arc<Lists>>;

/// The [`Lists`] of policies, by the names of the policies. Clones share the lists, so that a
/// program can keep a clone and replace the lists while a store uses them.
///
/// ```
/// use tidegate_core::{ListAction, Lists, PolicyLists};
///
/// let lists = PolicyLists::new().with("ip", "deny 203.0.113.0/24".parse()?);
/// assert_eq!(lists.find("ip", b"203.0.113.7"), Some(ListAction::Deny));
/// assert_eq!(lists.find("user", b"203.0.113.7"), None);
///
/// let shared = lists.clone();
/// shared.replace([("ip".to_owned(), Lists::new())]);
/// assert_eq!(lists.find("ip", b"203.0.113.7"), None);
/// # Ok::<(), tidegate_core::ListError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct PolicyLists(Arc<RwLock<Arc<ByPolicy>>>);

/// One version of the lists, or `None` if there are no lists. A decision uses one version.
#[derive(Debug)]
pub(crate) struct Version(Option<Arc<ByPolicy>>);

impl PolicyLists {
    /// Creates a value without lists.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the lists of the policy with this name.
    #[must_use]
    pub fn with(self, policy: &str, lists: Lists) -> Self {
        let mut all = ByPolicy::clone(&self.read());
        all.insert(policy.into(), Arc::new(lists));
        self.store(all);
        self
    }

    /// Replaces all lists, of all policies together. A decision that is being made still uses the
    /// previous lists.
    pub fn replace(&self, lists: impl IntoIterator<Item = (String, Lists)>) {
        let lists = lists.into_iter().map(|(policy, lists)| (policy.into(), Arc::new(lists)));
        self.store(lists.collect());
    }

    /// Returns the action for a subject under the policy with this name, or `None` if no entry
    /// matches.
    #[must_use]
    pub fn find(&self, policy: &str, subject: &[u8]) -> Option<ListAction> {
        self.version().find(policy, subject)
    }

    fn store(&self, lists: ByPolicy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(lists);
    }

    fn read(&self) -> RwLockReadGuard<'_, Arc<ByPolicy>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self) -> Version {
        let lists = self.read();
        Version((!lists.is_empty()).then(|| Arc::clone(&lists)))
    }
}

impl Version {
    pub(crate) fn find(&self, policy: &str, subject: &[u8]) -> Option<ListAction> {
        self.0.as_ref()?.get(policy)?.find(subject)
    }
}
