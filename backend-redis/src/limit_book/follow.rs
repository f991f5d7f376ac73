//! Follows a kept limit set.

use std::fmt;
use std::time::Duration;

use tidegate_core::{CurrentLimits, Store};
use tokio::time::{Instant, sleep};

use super::{KeptLimits, LimitBook, LimitBookError, Version};

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
    /// This function never returns; drop the future to stop it.
    pub async fn follow(
        &self,
        limits: CurrentLimits,
        store: impl Store,
        report: impl Fn(&LimitsEvent),
    ) {
        let (mut kept, mut last_read) = (KeptLimits::default(), Instant::now());
        let mut in_force = kept.version();
        loop {
            let event = match self.step(&mut kept, &mut in_force, &limits, &store).await {
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
    ) -> Result<LimitsEvent, LimitBookError> {
        let mut next = kept.clone();
        self.read_again(&mut next).await?;
        limits.synchronize(next.time);
        *kept = next;
        if kept.version() == *in_force {
            return Ok(LimitsEvent::Unchanged { version: kept.version });
        }
        kept.set.check(store)?;
        limits.replace(kept.set.clone());
        *in_force = kept.version();
        let (policies, overrides) = (kept.set.policies().count(), kept.set.overrides());
        Ok(LimitsEvent::InForce { version: kept.version, policies, overrides })
    }
}
