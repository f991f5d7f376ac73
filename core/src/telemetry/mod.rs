//! Information for operators: metrics, and log events.

#[cfg(feature = "tracing")]
pub(crate) mod events;
#[cfg(feature = "metrics")]
pub mod names;

/// Counts a reported warning: see [`names::WARNINGS`].
#[cfg(feature = "metrics")]
pub(crate) fn count_warning() {
    metrics::counter!(names::WARNINGS.name).increment(1);
}

/// Counts a verdict on which an entry of a list has decided: see [`names::LISTED`].
#[cfg(feature = "metrics")]
pub fn count_listed(policy: &str, action: crate::ListAction) {
    let (name, policy) = (names::LISTED.name, policy.to_owned());
    metrics::counter!(name, "policy" => policy, "list" => action.as_str()).increment(1);
}
