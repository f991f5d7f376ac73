//! The source of the error for a hold that is already settled.

use std::error::Error as StdError;
use std::fmt;

use super::Decision;
use crate::error::{Error, ErrorKind};

/// The earlier settlement of a hold. If a later call settles this hold at other costs, reports
/// costs or extends the hold, the call fails with [`ErrorKind::AlreadySettled`]. The source of this
/// error is the earlier settlement.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::error::Error;
/// use std::time::Duration;
/// use tidegate_core::{AlreadySettled, ErrorKind, Limiter};
/// use tidegate_memory::MemoryStore;
///
/// let limiter = Limiter::new(MemoryStore::new(), ["tokens: token-bucket 1000/1m".parse()?])?;
/// let hold = limiter.subject("alice").cost(600).hold("job 7", Duration::from_secs(60)).await?;
/// let ticket = hold.into_ticket().unwrap();
/// limiter.settle(&ticket, [("tokens", 450)]).await?;
///
/// let error = limiter.settle(&ticket, [("tokens", 451)]).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::AlreadySettled);
/// let settled = error.source().and_then(|source| source.downcast_ref::<AlreadySettled>());
/// assert_eq!(settled.unwrap().costs(), [450]);
/// # Ok::<(), Box<dyn Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlreadySettled {
    costs: Vec<u64>,
    decision: Decision,
}

impl AlreadySettled {
    /// Creates a value for an earlier settlement. `costs` are the costs of this settlement, one for
    /// each charge. `decision` is the store's answer to this settlement.
    #[must_use]
    pub fn new(costs: Vec<u64>, decision: Decision) -> Self {
        Self { costs, decision }
    }

    /// Returns the costs of the earlier settlement, one for each charge.
    #[must_use]
    pub fn costs(&self) -> &[u64] {
        &self.costs
    }

    /// Returns the store's answer to the earlier settlement.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the error for the hold with this id. The source of the error is this value. The
    /// message of the error omits the costs, because the message of its source contains them.
    #[must_use]
    pub fn into_error(self, id: &[u8]) -> Error {
        let message = format!("the hold \"{}\" has ended", id.escape_ascii());
        Error::new(ErrorKind::AlreadySettled, message).with_source(self)
    }
}

impl fmt::Display for AlreadySettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.costs.iter().all(|&cost| cost == 0) {
            true => f.write_str("it was cancelled"),
            false => write!(f, "it was settled at {:?}", self.costs),
        }
    }
}

impl StdError for AlreadySettled {}
