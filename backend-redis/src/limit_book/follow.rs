//! Follows a kept limit set.

use std::collections::HashMap;
use std::fmt;
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;

use tidegate_core::{Answer, CurrentLimits, Error, ErrorKind, LimitSet, OverrideSource, Store};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::{KeptLimits, LimitBook, LimitBookError, Version, add_lines_before, corrupt};

/// The interval between two reads of the version.
const INTERVAL: Duration = Duration::from_millis(500);

/// An event while a program [follows](LimitBook::follow) a limit set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LimitsEvent {
    /// The version is in force.
    InForce {
        /// The number of the version.
        version: u64,
        /// The number of policies.
        policies: usize,
        /// The number of overrides.
        overrides: usize,
    },
    /// The set on the server cannot be read or is not valid, so the last valid version stays in
    /// force.
    Failed {
        /// The version in force. It is 0 if no version was read yet.
        version: u64,
        /// The time since the last successful read, or since the start of the program.
        since: Duration,
        /// The reason.
        error: LimitBookError,
    },
    /// The set was read, and the version in force is still the last one.
    Unchanged {
        /// The version in force. It is 0 if no limit was ever set.
        version: u64,
    },
}

impl LimitsEvent {
    /// Returns the version in force. It is 0 if no version was read yet.
    #[must_use]
    pub fn version(&self) -> u64 {
        match self {
            Self::InForce { version, .. }
            | Self::Failed { version, .. }
            | Self::Unchanged { version } => *version,
        }
    }
}

impl fmt::Display for LimitsEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce { version, policies, overrides } => write!(
                f,
                "version {version} of the limit set is in force, with {policies} policies and \
                 {overrides} overrides"
            ),
            Self::Failed { version: 0, error, .. } => {
                write!(f, "the limit set is not in force: {error}")
            }
            Self::Failed { version, error, .. } => {
                write!(f, "version {version} of the limit set stays in force: {error}")
            }
            Self::Unchanged { version } => {
                write!(f, "version {version} of the limit set is still in force")
            }
        }
    }
}

impl LimitBook {
    /// Puts each version of the limit set in force, about half a second after it was made.
    /// Overrides end by the clock of the server. `report` is called after each read.
    ///
    /// If the server fails, or if a version is not valid for `store`, the last valid version stays
    /// in force, and its overrides still end. The same applies if the server has lost the set.
    ///
    /// If the set has [many overrides](Self#many-overrides) and one of them cannot be read when a
    /// call needs it, the call is decided without this override, and the next report is a failure.
    /// Only the overrides in memory are checked for `store`.
    ///
    /// This function never returns; drop the future to stop it.
    pub async fn follow(
        &self,
        limits: CurrentLimits,
        store: impl Store,
        report: impl Fn(&LimitsEvent),
    ) {
        let (mut kept, mut last_read) = (KeptLimits::default(), Instant::now());
        kept.set = kept.set.with_max_loaded(self.max_loaded);
        let (mut in_force, failures) = (kept.version(), Failures::default());
        loop {
            let step = self.step(&mut kept, &mut in_force, &limits, &store, &failures);
            let event = match step.await {
                Ok(event) => {
                    last_read = Instant::now();
                    event
                }
                Err(error) => {
                    let since = last_read.elapsed();
                    LimitsEvent::Failed { version: in_force.0, since, error }
                }
            };
            report(&event);
            sleep(INTERVAL).await;
        }
    }

    async fn step(
        &self,
        kept: &mut KeptLimits,
        in_force: &mut Version,
        limits: &CurrentLimits,
        store: &impl Store,
        failures: &Failures,
    ) -> Result<LimitsEvent, LimitBookError> {
        let mut next = kept.clone();
        let is_in_force = *in_force == kept.version() && in_force.0 > 0;
        if is_in_force {
            // The set in force also has the overrides that calls have loaded.
            next.set = LimitSet::clone(&limits.set());
        }
        let before = self.read_again(&mut next).await?;
        limits.synchronize(next.time);
        *kept = next;
        if kept.version() == *in_force {
            return match failures.take() {
                None => Ok(LimitsEvent::Unchanged { version: kept.version }),
                Some(error) => Err(error),
            };
        }
        kept.set.check(store)?;
        if is_in_force {
            limits.add_loaded(&before);
        }
        let source = Source::new(self.clone(), kept.version(), failures.clone());
        limits.replace_partly(kept.set.clone(), Arc::new(source));
        *in_force = kept.version();
        let (policies, overrides) = (kept.set.policies().count(), kept.set.overrides());
        Ok(LimitsEvent::InForce { version: kept.version, policies, overrides })
    }
}

/// The last failure to read an override for a call, which was not reported yet.
#[derive(Debug, Clone, Default)]
struct Failures(Arc<sync::Mutex<Option<LimitBookError>>>);

impl Failures {
    fn add(&self, error: LimitBookError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn take(&self) -> Option<LimitBookError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The overrides of a version that are not in memory.
#[derive(Debug)]
struct Source {
    book: LimitBook,
    version: Version,
    changed: Mutex<Changed>,
    failures: Failures,
}

/// The limits that other versions have changed since the version of a source.
#[derive(Debug)]
struct Changed {
    /// The last of these versions.
    until: Version,
    /// The lines in the version of the source, by their keys.
    before: HashMap<String, Option<String>>,
}

impl Source {
    fn new(book: LimitBook, version: Version, failures: Failures) -> Self {
        let changed = Changed { until: version, before: HashMap::new() };
        Self { book, version, changed: Mutex::new(changed), failures }
    }

    /// Returns the lines with these keys, as the version of the source has them.
    async fn lines(&self, keys: &[String]) -> Result<Vec<Option<String>>, LimitBookError> {
        let (found, mut lines) = self.book.lines(keys).await?;
        let mut changed = self.changed.lock().await;
        // One call reads the changes of a version for all calls. Another call can have read newer
        // lines in the meantime.
        let is_between = self.version.0 < found.0 && found.0 < changed.until.0;
        if !is_between && found != self.version && found != changed.until {
            let Some(changes) = self.book.changes(changed.until, found).await? else {
                let (known, found) = (self.version.0, found.0);
                return Err(LimitBookError::Corrupt(format!(
                    "the limit set has version {found}, whose history does not lead back to {known}"
                )));
            };
            add_lines_before(&mut changed.before, changes)?;
            changed.until = found;
        }
        for (key, line) in keys.iter().zip(&mut lines) {
            if let Some(before) = changed.before.get(key) {
                line.clone_from(before);
            }
        }
        Ok(lines)
    }
}

impl OverrideSource for Source {
    fn read<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Result<Vec<String>, Error>> {
        Answer::later(async move {
            let lines = self.lines(keys).await.map_err(|error| {
                self.failures.add(error.clone());
                match error {
                    LimitBookError::Store(error) => error,
                    error => Error::new(ErrorKind::Protocol, error.to_string()),
                }
            })?;
            let valid = |(key, line): (&String, Option<String>)| {
                valid(key, line).map_err(|error| self.failures.add(error)).ok()
            };
            Ok(keys.iter().zip(lines).filter_map(valid).collect())
        })
    }
}

/// Checks that the limit with this key exists and is valid.
fn valid(key: &str, line: Option<String>) -> Result<String, LimitBookError> {
    let Some(line) = line else { return Err(corrupt(key, &"it is missing")) };
    match LimitSet::key_of(&line) {
        Ok(found) if found == key => Ok(line),
        Ok(_) => Err(corrupt(key, &"it has the subjects of another limit")),
        Err(error) => Err(corrupt(key, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use redis::{Pipeline, Value};
    use tidegate_core::Timestamp;

    use super::*;
    use crate::limit_book::{LimitChange, Run};
    use crate::protocol::Keys;

    const FIRST: &str = "a: fixed-window 1/1h for subject x";
    const SECOND: &str = "a: fixed-window 2/1h for subject x";
    const THIRD: &str = "a: fixed-window 3/1h for subject x";

    /// A server that sends these replies, one to each pipeline.
    struct Replies(sync::Mutex<VecDeque<Value>>);

    impl Run for Replies {
        fn run<'a>(
            &'a self,
            _: &'a [u8],
            _: &'a Pipeline,
        ) -> Answer<'a, Result<Vec<Value>, Error>> {
            let reply = self.0.lock().unwrap().pop_front();
            Answer::ready(Ok(vec![reply.expect("one command more than replies")]))
        }
    }

    fn list(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| Value::BulkString((*text).into())).collect())
    }

    fn version(number: u64) -> Version {
        Version(number, Timestamp::from_micros(number))
    }

    fn change(number: u64, before: Option<&str>, after: &str) -> String {
        let lines = vec![(before.map(str::to_owned), Some(after.to_owned()))];
        let (time, text) = (Timestamp::from_micros(number), || "text".to_owned());
        LimitChange { version: number, time, author: text(), reason: text(), lines }.to_string()
    }

    /// Two calls read an override at the same time. The server answers the call that was sent last
    /// first, with a newer version.
    #[tokio::test]
    async fn an_answer_with_an_older_version_than_another_answer_needs_no_changes() {
        let history = [
            change(1, None, FIRST),
            change(2, Some(FIRST), SECOND),
            change(3, Some(SECOND), THIRD),
        ];
        let history: Vec<&str> = history.iter().map(String::as_str).collect();
        let replies = [
            list(&[&version(3).to_string(), THIRD]),
            list(&history),
            list(&[&version(2).to_string(), SECOND]),
            list(&[&version(3).to_string(), THIRD]),
            list(&[&version(1).to_string(), FIRST]),
        ];
        let server = Arc::new(Replies(sync::Mutex::new(replies.into())));
        let book = LimitBook::new(Arc::clone(&server) as Arc<dyn Run>, &Keys::new("test"));
        let source = Source::new(book, version(1), Failures::default());
        let key = ["a for subject x".to_owned()];
        for _ in 0..4 {
            assert_eq!(source.lines(&key).await.unwrap(), [Some(FIRST.to_owned())]);
        }
        assert!(server.0.lock().unwrap().is_empty());
    }
}
