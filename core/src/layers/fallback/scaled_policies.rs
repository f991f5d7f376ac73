//! A cache of policies that are scaled to a share of their limit. With the cache, the fallback
//! store always gets the same object for a policy. If a store gets the same policy object again, it
//! need not compare all fields of the policy.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::{Error, ErrorKind, Policy, Share};

/// The maximum number of cached policies. A cache with this many policies is cleared.
const MAX_POLICIES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct ScaledPolicies(RwLock<HashMap<Box<str>, ScaledPolicy>>);

#[derive(Debug)]
struct ScaledPolicy {
    from: Policy,
    to: Option<Policy>,
}

impl ScaledPolicies {
    /// Returns the policy with its share of the limit, or `None` if the share rounds down to 0. The
    /// caller must always pass the same `share` for a policy name, because the cache compares only
    /// policies and not shares.
    pub(super) fn scaled(&self, policy: &Policy, share: Share) -> Result<Option<Policy>, Error> {
        if let Some(scaled) = self.cached(policy) {
            return Ok(scaled);
        }
        let to = policy.scaled_to(share).map_err(|error| {
            let message = format!("`{policy}` has no share of {share}");
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        })?;
        let mut cached = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= MAX_POLICIES {
            cached.clear();
        }
        cached.insert(policy.name().into(), ScaledPolicy { from: policy.clone(), to: to.clone() });
        Ok(to)
    }

    fn cached(&self, policy: &Policy) -> Option<Option<Policy>> {
        let cached = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let scaled = cached.get(policy.name())?;
        let is_same = scaled.from.is_same_object(policy) || scaled.from == *policy;
        is_same.then(|| scaled.to.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        text.parse().unwrap()
    }

    #[test]
    fn a_policy_is_scaled_once_until_it_changes() {
        let (shares, third) = (ScaledPolicies::default(), Share::new(1, 3).unwrap());
        let scaled = |policy: &Policy| shares.scaled(policy, third).unwrap().unwrap();
        let first = scaled(&policy("a: sliding-log 9/1m"));
        assert!(first.is_same_object(&scaled(&policy("a: sliding-log 9/1m"))));
        assert_eq!(scaled(&policy("a: sliding-log 6/1m")).limit(), 2);
        assert_eq!(shares.scaled(&policy("a: sliding-log 2/1m"), third).unwrap(), None);
    }

    #[test]
    fn b46_the_number_of_cached_policies_is_bounded() {
        let (shares, half) = (ScaledPolicies::default(), Share::new(1, 2).unwrap());
        for n in 0..3 * MAX_POLICIES {
            let limit = 2 + u64::try_from(n).unwrap();
            let scaled = shares.scaled(&policy(&format!("p{n}: fixed-window {limit}/1s")), half);
            assert_eq!(scaled.unwrap().unwrap().limit(), limit / 2);
            assert!(shares.0.read().unwrap().len() <= MAX_POLICIES);
        }
    }
}
