use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{MEMORY_OF_GRANTS, Operation, Timestamp};

use super::{CallRequest, ChargeRequest};

/// The verbs of Tidegate's own commands. Each verb has the same name in RESP and in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// Makes the charges if all policies admit them.
    Acquire,
    /// Returns the decision that [`Acquire`](Self::Acquire) would return, and charges nothing.
    Peek,
    /// Charges an amount that was already used, even beyond the limit.
    Charge,
    /// Adds an amount to what a subject has in addition to its quota or credits.
    Grant,
    /// Refunds an amount, but not more than the state has charged.
    Refund,
    /// Blocks a subject for a time.
    Block,
    /// Bans a subject for a time, with a reason. An existing block that ends later stays unchanged.
    Ban,
    /// Removes the block of a subject, and forgets its offenses.
    Unban,
    /// Deletes the state of a subject, including its block.
    Reset,
    /// Charges an estimate, which is settled later.
    Hold,
    /// Settles a hold at the amount that was used.
    Settle,
    /// Settles a hold at zero.
    Cancel,
    /// Extends the time of a hold.
    Extend,
    /// Gives up a place in the queue for slots.
    Leave,
}

/// The options that apply to all charges of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// The minimum amount to acquire if the whole cost is not available. Without it, a call
    /// acquires all or nothing.
    pub min: Option<u64>,
    /// The id of the call or the hold.
    pub id: Option<Bytes>,
    /// The time to live of the id, or the time of a block or a ban.
    pub span: Option<Duration>,
    /// The reason of a ban.
    pub reason: Option<String>,
    /// Whether an existing block that ends later stays unchanged.
    pub is_at_least: bool,
    /// Whether the hold stays open after the settlement.
    pub is_so_far: bool,
    /// The place of the call in the queue for slots, or 0 for the first call.
    pub place: Option<u64>,
    /// Whether the server settles the hold when the connection of the client closes.
    pub is_bound: bool,
    /// The time at which a grant ends. Without it, a grant lasts until it is spent.
    pub ends_at: Option<Timestamp>,
}

impl CallOptions {
    /// Sets the time at which a grant ends, in milliseconds since 1970.
    pub(super) fn set_ends_at_millis(&mut self, millis: u64) {
        self.ends_at = Some(Timestamp::from_micros(millis.saturating_mul(1_000)));
    }
}

/// An option that is missing in a call, or that the call cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// The time of a block.
    BlockSpan,
    /// The time of a ban.
    BanSpan,
    /// The reason of a ban.
    Reason,
    /// The cost at which a charge of a hold is settled.
    Cost,
    /// The id of a hold.
    Id,
    /// The id of a call that has a time to live.
    IdOfTimeToLive,
    /// The time to live of the id.
    TimeToLive,
    /// The place to give up.
    Place,
    /// The call has a minimum, so it cannot have a place.
    PlaceWithMinimum,
}

impl Verb {
    /// All verbs, in the order of their declaration.
    pub const ALL: [Self; 14] = [
        Self::Acquire,
        Self::Peek,
        Self::Charge,
        Self::Grant,
        Self::Refund,
        Self::Block,
        Self::Ban,
        Self::Unban,
        Self::Reset,
        Self::Hold,
        Self::Settle,
        Self::Cancel,
        Self::Extend,
        Self::Leave,
    ];

    /// Returns the name in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Peek => "peek",
            Self::Charge => "charge",
            Self::Grant => "grant",
            Self::Refund => "refund",
            Self::Block => "block",
            Self::Ban => "ban",
            Self::Unban => "unban",
            Self::Reset => "reset",
            Self::Hold => "hold",
            Self::Settle => "settle",
            Self::Cancel => "cancel",
            Self::Extend => "extend",
            Self::Leave => "leave",
        }
    }

    /// Creates a call with `charges`. Each charge has the cost that the client sent, or `None` if
    /// the client sent no cost. The default cost is 1.
    ///
    /// A cancellation and an extension ignore the costs, so that clients can send the same charges
    /// as for the hold. A settlement needs the cost of each charge that is not check-only, because
    /// a default would refund the rest of the hold.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is missing.
    pub fn call(
        self,
        charges: impl IntoIterator<Item = (ChargeRequest, Option<u64>)>,
        options: CallOptions,
    ) -> Result<CallRequest, OptionError> {
        let CallOptions { min, id, span, reason, is_at_least, is_so_far, place, is_bound, ends_at } =
            options;
        let operation = match self {
            Self::Acquire => min.map_or(Operation::Acquire, |min| Operation::AcquireUpTo { min }),
            Self::Hold => match (min, place) {
                (None, None) => Operation::Hold,
                (None, Some(place)) => Operation::HoldInTurn { place },
                (Some(min), None) => Operation::HoldUpTo { min },
                (Some(_), Some(_)) => return Err(OptionError::PlaceWithMinimum),
            },
            Self::Leave => Operation::Leave { place: place.ok_or(OptionError::Place)? },
            Self::Peek => Operation::Peek,
            Self::Charge => Operation::Charge,
            Self::Grant => Operation::Grant { ends_at },
            Self::Refund => Operation::Refund,
            Self::Reset => Operation::Reset,
            Self::Block => {
                let span = span.ok_or(OptionError::BlockSpan)?;
                match is_at_least {
                    true => Operation::BlockAtLeast { span },
                    false => Operation::Block { span },
                }
            }
            Self::Ban => Operation::BlockAtLeast { span: span.ok_or(OptionError::BanSpan)? },
            Self::Unban => Operation::Block { span: Duration::ZERO },
            Self::Settle if is_so_far => Operation::SettleSoFar,
            Self::Settle | Self::Cancel => Operation::Settle,
            Self::Extend => Operation::Extend,
        };
        let charges = charges.into_iter().map(|(mut charge, cost)| {
            charge.cost = match (self, cost) {
                (Self::Cancel | Self::Leave, _) => 0,
                (Self::Extend, _) => 1,
                (Self::Settle, None) if charge.is_check_only => 0,
                (Self::Settle, None) => return Err(OptionError::Cost),
                (_, cost) => cost.unwrap_or(1),
            };
            Ok(charge)
        });
        let request = CallRequest::new(operation, charges.collect::<Result<Vec<_>, _>>()?);
        let request = if is_bound { request.bound() } else { request };
        match (self, id, span) {
            (Self::Block, ..) => Ok(request),
            (Self::Ban, ..) => Ok(request.with_reason(reason.ok_or(OptionError::Reason)?)),
            (Self::Grant, Some(id), span) => {
                Ok(request.with_id(id, span.unwrap_or(MEMORY_OF_GRANTS)))
            }
            (Self::Grant, None, _) => Err(OptionError::Id),
            (_, None, None) if !operation.is_of_hold() => Ok(request),
            (_, None, None) => Err(OptionError::Id),
            (_, None, Some(_)) => Err(OptionError::IdOfTimeToLive),
            // A settlement needs an id, but ignores the time to live.
            (Self::Settle | Self::Cancel, Some(id), _) => {
                Ok(request.with_id(id, Duration::from_secs(1)))
            }
            (_, Some(_), None) => Err(OptionError::TimeToLive),
            (_, Some(id), Some(span)) => Ok(request.with_id(id, span)),
        }
    }
}
