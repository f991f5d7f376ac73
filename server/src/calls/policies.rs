use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use foldhash::fast::RandomState;
use tidegate_core::{Error, ErrorKind, Policy, Store, TokenBucket};

/// The maximum number of policies in each of the two tables of [`Policies`].
pub const MAX_POLICIES: usize = 10_000;

/// The maximum length of a policy's text in bytes.
pub const MAX_POLICY_BYTES: usize = 512;

/// The name of every policy that [`Policies::bucket`] creates. The name does not contain the
/// numbers, so a subject keeps its bucket if a later call sends other numbers, as in redis-cell.
const BUCKET_NAME: &str = "throttle";

/// A cache of policies, because parsing and checking a policy costs more than a decision. One table
/// contains the policies by text, and the other contains buckets by their numbers. If a table has
/// [`MAX_POLICIES`] entries, the next new policy clears the table.
#[derive(Debug)]
pub struct Policies {
    store: Arc<dyn Store>,
    texts: Table<String>,
    buckets: Table<[u64; 3]>,
}

#[derive(Debug)]
struct Table<K>(RwLock<HashMap<K, Policy, RandomState>>);

impl Policies {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, texts: Table(RwLock::default()), buckets: Table(RwLock::default()) }
    }

    /// Returns the policy that `text` describes in Tidegate's grammar.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidCall`] if the text is not a policy, and
    /// [`ErrorKind::Unsupported`] if the store cannot keep the states of the policy.
    pub fn parse(&self, text: &str) -> Result<Policy, Error> {
        self.texts.find_or_build(text, || {
            if text.len() > MAX_POLICY_BYTES {
                return Err(invalid(format!(
                    "the policy has {} bytes; at most {MAX_POLICY_BYTES} are possible",
                    text.len()
                )));
            }
            let policy = text.parse::<Policy>().map_err(|error| invalid(error.to_string()))?;
            self.supported(policy)
        })
    }

    /// Returns the policy of a bucket of `capacity` tokens that refills `count` tokens per `period`
    /// seconds.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidCall`] if the numbers are not a valid bucket, for example
    /// because they are too large for exact decisions. Returns [`ErrorKind::Unsupported`] if the
    /// store cannot keep the states of the policy.
    pub fn bucket(&self, capacity: u64, count: u64, period: u64) -> Result<Policy, Error> {
        self.buckets.find_or_build(&[capacity, count, period], || {
            let bucket = TokenBucket::gcra(count, Duration::from_secs(period)).burst(capacity);
            let policy = Policy::new(BUCKET_NAME, bucket);
            self.supported(policy.map_err(|error| invalid(error.to_string()))?)
        })
    }

    fn supported(&self, policy: Policy) -> Result<Policy, Error> {
        self.store.supports(&policy)?;
        Ok(policy)
    }
}

impl<K: Eq + Hash> Table<K> {
    fn find_or_build<Q>(
        &self,
        key: &Q,
        build: impl FnOnce() -> Result<Policy, Error>,
    ) -> Result<Policy, Error>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if let Some(policy) = known {
            return Ok(policy);
        }
        let policy = build()?;
        let mut policies = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if policies.len() >= MAX_POLICIES {
            policies.clear();
        }
        policies.insert(key.to_owned(), policy.clone());
        Ok(policy)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}

#[cfg(test)]
mod tests {
    use tidegate_memory::MemoryStore;

    use super::*;

    #[test]
    fn b46_policies_are_remembered_up_to_a_bound() {
        let policies = Policies::new(Arc::new(MemoryStore::new()));
        let first = policies.parse("gcra 1/s").unwrap();
        assert!(policies.parse("gcra 1/s").unwrap().is_same_object(&first));
        for index in 1..=MAX_POLICIES as u64 {
            policies.parse(&format!("fixed-window {index}/1m")).unwrap();
            policies.bucket(index, 1, 1).unwrap();
        }
        assert!(!policies.parse("gcra 1/s").unwrap().is_same_object(&first));
        assert!(policies.texts.0.read().unwrap().len() < MAX_POLICIES);
        assert!(policies.buckets.0.read().unwrap().len() <= MAX_POLICIES);
        // Invalid texts are not remembered.
        let len = policies.texts.0.read().unwrap().len();
        assert!(policies.parse("gcra").is_err());
        assert!(policies.parse(&format!("gcra 1/s{}", " ".repeat(MAX_POLICY_BYTES))).is_err());
        assert_eq!(policies.texts.0.read().unwrap().len(), len);
    }
}
