use std::time::Duration;

use bytes::Bytes;
use tidegate_core::Operation;

use super::{CallRequest, ChargeRequest};

/// What a client asks for: the names of Tidegate's own commands, in each protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// Charges if all policies admit it.
    Acquire,
    /// Says what [`Acquire`](Self::Acquire) would, and takes nothing.
    Peek,
    /// Charges what has happened already.
    Charge,
    /// Gives back, at most what is taken.
    Refund,
    /// Refuses a subject for a time.
    Block,
    /// Forgets what a subject has taken, and its block.
    Reset,
    /// Charges an estimate, which is settled later.
    Hold,
    /// Settles a hold at what was used.
    Settle,
    /// Settles a hold at nothing.
    Cancel,
    /// Lets a hold be needed for longer.
    Extend,
}

/// What holds for all charges of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// The least that is taken, if there is less than the cost. `None` for all or nothing.
    pub min: Option<u64>,
    /// The id of the call or the hold.
    pub id: Option<Bytes>,
    /// The time to live of the id, or the time of a block.
    pub span: Option<Duration>,
    /// Whether no block is shortened.
    pub is_at_least: bool,
    /// Whether a hold goes on after it is settled.
    pub is_so_far: bool,
}

/// An option that a call needs and does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingOption {
    /// The time of a block.
    BlockSpan,
    /// The cost at which a charge of a hold is settled.
    Cost,
    /// The id of a hold.
    Id,
    /// The id that the time to live is of.
    IdOfTimeToLive,
    /// The time to live of the id.
    TimeToLive,
}

impl Verb {
    /// All, in the order of declaration.
    pub const ALL: [Self; 10] = [
        Self::Acquire,
        Self::Peek,
        Self::Charge,
        Self::Refund,
        Self::Block,
        Self::Reset,
        Self::Hold,
        Self::Settle,
        Self::Cancel,
        Self::Extend,
    ];

    /// The name in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Peek => "peek",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Block => "block",
            Self::Reset => "reset",
            Self::Hold => "hold",
            Self::Settle => "settle",
            Self::Cancel => "cancel",
            Self::Extend => "extend",
        }
    }

    /// Returns the call for charges, each with its cost if the client has given it. The default is
    /// 1.
    ///
    /// A cancellation and an extension ignore the costs, so that clients can send the charges of
    /// the hold again. A settlement needs the cost of each charge that is not check-only, because a
    /// default would refund the rest of the hold.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is missing.
    pub fn call(
        self,
        charges: impl IntoIterator<Item = (ChargeRequest, Option<u64>)>,
        options: CallOptions,
    ) -> Result<CallRequest, MissingOption> {
        let CallOptions { min, id, span, is_at_least, is_so_far } = options;
        let operation = match self {
            Self::Acquire => min.map_or(Operation::Acquire, |min| Operation::AcquireUpTo { min }),
            Self::Hold => min.map_or(Operation::Hold, |min| Operation::HoldUpTo { min }),
            Self::Peek => Operation::Peek,
            Self::Charge => Operation::Charge,
            Self::Refund => Operation::Refund,
            Self::Reset => Operation::Reset,
            Self::Block => {
                let span = span.ok_or(MissingOption::BlockSpan)?;
                match is_at_least {
                    true => Operation::BlockAtLeast { span },
                    false => Operation::Block { span },
                }
            }
            Self::Settle if is_so_far => Operation::SettleSoFar,
            Self::Settle | Self::Cancel => Operation::Settle,
            Self::Extend => Operation::Extend,
        };
        let charges = charges.into_iter().map(|(mut charge, cost)| {
            charge.cost = match (self, cost) {
                (Self::Cancel, _) => 0,
                (Self::Extend, _) => 1,
                (Self::Settle, None) if charge.is_check_only => 0,
                (Self::Settle, None) => return Err(MissingOption::Cost),
                (_, cost) => cost.unwrap_or(1),
            };
            Ok(charge)
        });
        let request = CallRequest::new(operation, charges.collect::<Result<Vec<_>, _>>()?);
        match (self, id, span) {
            (Self::Block, ..) => Ok(request),
            (_, None, None) if !operation.is_of_hold() => Ok(request),
            (_, None, None) => Err(MissingOption::Id),
            (_, None, Some(_)) => Err(MissingOption::IdOfTimeToLive),
            // No use is made of the time to live.
            (Self::Settle | Self::Cancel, Some(id), _) => {
                Ok(request.with_id(id, Duration::from_secs(1)))
            }
            (_, Some(_), None) => Err(MissingOption::TimeToLive),
            (_, Some(id), Some(span)) => Ok(request.with_id(id, span)),
        }
    }
}
