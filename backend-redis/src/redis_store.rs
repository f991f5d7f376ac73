use std::sync::Arc;

use tidegate_core::{Answer, Call, Charge, Charges, Decision, Error, Policy, Store, Timestamp};

use crate::connection::{PROBE_OPERATIONS, check_runtime, check_server, probes};
use crate::inner::Inner;
use crate::limit_book::LimitBook;
use crate::protocol::{self, Plan, in_a_batch, no_reply};
use crate::script_free;

/// A store on one Redis server, or on the primary of a Sentinel group. Lua scripts on the server
/// decide a call in one round trip. See the [crate's front page](crate).
///
/// A clone shares the connections of the store.
#[derive(Debug, Clone)]
pub struct RedisStore(pub(crate) Arc<Inner>);

impl RedisStore {
    /// Checks that the store can decide calls, for example when a program starts.
    ///
    /// The check connects and logs in, checks the server's version, and loads and runs the scripts.
    /// The scripts write, read and remove probe keys under the prefix, which expire after a second.
    /// The check does not change the state of any subject.
    ///
    /// Without this check, the first call fails if the password is wrong or a permission is
    /// missing. A service that must start while Redis is down can log the error of the check and
    /// continue, because the store connects again by itself.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tidegate_redis::Error> {
    /// use tidegate_redis::RedisStore;
    ///
    /// let store = RedisStore::new("redis://limiter:secret@127.0.0.1:6379")?;
    /// store.ready().await?; // fails on a typo in the password
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the first error that a call would return, such as `Unavailable`, `Misconfigured`,
    /// `UnsupportedServer`, `ReadOnly` or `OutOfMemory`.
    pub async fn ready(&self) -> Result<(), Error> {
        check_runtime()?;
        check_server(self.0.connection()).await?;
        self.0.now().await?;
        for policy in probes().iter().filter(|policy| self.supports(policy).is_ok()) {
            let charges = [Charge::new(policy, "ready")];
            for operation in PROBE_OPERATIONS {
                let _ = self.decide_one(Call::new(operation, &charges)).await?;
            }
        }
        Ok(())
    }

    /// Returns the limit set that is kept on the server, under the prefix of this store.
    #[must_use]
    pub fn limit_book(&self) -> LimitBook {
        let server: Arc<Inner> = Arc::clone(&self.0);
        LimitBook::new(server, &self.0.keys)
    }

    async fn decide_one(&self, call: Call<'_>) -> Result<Decision, Error> {
        check_runtime()?;
        if self.0.script_free {
            return script_free::decide(&self.0, &call).await;
        }
        let (calls, mut answer) = ([call], None);
        self.0
            .execute(Plan::for_all(&self.0.keys, &calls), |_, decision| answer = Some(decision))
            .await;
        answer.unwrap_or_else(|| Err(no_reply()))
    }

    async fn decide_each(&self, calls: &[Call<'_>]) -> Vec<Result<Decision, Error>> {
        if let Err(error) = check_runtime() {
            return calls.iter().map(|_| Err(in_a_batch(&error))).collect();
        }
        if self.0.script_free {
            let mut answers = Vec::with_capacity(calls.len());
            for call in calls {
                answers.push(script_free::decide(&self.0, call).await);
            }
            return answers;
        }
        let mut answers: Vec<_> = calls.iter().map(|_| None).collect();
        let plan = Plan::for_all(&self.0.keys, calls);
        self.0.execute(plan, |place, decision| answers[place] = Some(decision)).await;
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(no_reply()))).collect()
    }
}

impl Store for RedisStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(self.decide_one(call))
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(self.decide_each(calls))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::later(self.0.now())
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        Answer::later(Self::ready(self))
    }

    fn batch_group(&self, call: &Call<'_>) -> Option<u64> {
        if self.0.script_free || call.id.is_some() {
            return None;
        }
        Some(self.0.connections.share(|| call.charges.get(0).map(|charge| charge.slot_key())))
    }

    fn until_turn(&self, charges: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
        self.0.connections.until_turn(self.0.keys.keys_of_slots(charges), place)
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        if self.0.script_free { script_free::supports(policy) } else { protocol::supports(policy) }
    }
}
