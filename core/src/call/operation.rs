//! The operations of calls, and a table of their properties.

use std::time::Duration;

use crate::time::Timestamp;

/// An operation on the charges of a call.
///
/// Policies can refuse only acquires, reservations and holds. All other operations except
/// [`Peek`](Self::Peek) change states regardless of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Charges all costs if all policies admit them. Otherwise charges nothing.
    Acquire,
    /// Decides as [`Acquire`](Self::Acquire) would, and changes nothing.
    Peek,
    /// Refunds each cost. The refund is at most the amount that is charged to the state.
    Refund,
    /// Reverts an acquire or a reservation that was made at the time `at` with the same charges. An
    /// undo never admits more than the policies allow.
    ///
    /// An undo immediately after the acquire restores the previous state. A later undo refunds only
    /// the part of the charge that was not refilled between the acquire and the undo. Unlike a
    /// refund, an undo never refunds the charges of other calls. An undo does not change blocks.
    ///
    /// | algorithm | refunds | exact? |
    /// |---|---|---|
    /// | fixed window | the cost, in the window of the acquire; nothing after that window | yes |
    /// | sliding counter | the cost, in the window of the acquire, while that window still counts | yes |
    /// | sliding log | the cost, if the record of `at` is among the newest [`MAX_UNDO`](crate::algorithm::sliding_log::MAX_UNDO) | yes, or nothing |
    /// | buckets | the cost less the refill between `at` and the last charge to the state, at most the debt | if nothing was charged since `at`; else too little, by at most that refill |
    ///
    /// If the store's clock had stepped back before the acquire, the undo can refund too little, or
    /// nothing.
    ///
    /// Undo each acquire at most once, and with the policies of the acquire. Omit the charges that
    /// a shadow denied. If the charge was refunded, reset or lost in the store before the undo, the
    /// undo can refund charges of other calls, because the store cannot detect this. If the rate of
    /// a bucket was changed after the acquire, the undo computes the refill at the new rate.
    Undo {
        /// The exact time of the acquire by the store's clock. With an earlier time, the undo
        /// refunds less or nothing. With a later time, the undo possibly refunds too much.
        at: Timestamp,
    },
    /// Records costs that have already been incurred, even beyond the limits. No policy refuses
    /// this operation. Later decisions take the recorded costs into account.
    ///
    /// The usage of a state has an upper bound. If a cost would exceed this bound, the call charges
    /// only the part up to the bound. [`Decision::amounts`](crate::Decision::amounts) returns the
    /// charged amounts.
    ///
    /// | algorithm | upper bound |
    /// |---|---|
    /// | fixed window | 2^52 in the current window |
    /// | sliding counter | 2^52 in the current window |
    /// | sliding log | 2^52 in the window. If the log has its maximum number of records, a charge moves the newest record to now, so that it counts longer |
    /// | buckets | the debt that is refilled within [`MAX_SPAN`](crate::MAX_SPAN), and at most 2^52 units of debt (without fractions, a unit is a token); whole tokens only |
    ///
    /// This operation also charges blocked subjects and shadow policies, and changes no block. It
    /// returns the verdicts that a peek of cost 0 would return after it.
    Charge,
    /// Acquires the same amount for each charge. The amount is the maximum that all enforced
    /// policies admit, from `min` up to the lowest cost of the charges.
    /// [`Decision::amounts`](crate::Decision::amounts) returns the amount.
    ///
    /// If the policies do not admit `min`, the call is refused like an acquire of `min` for each
    /// charge. A shadow does not limit the amount, and is charged only if it admits the amount. A
    /// [check-only](crate::Charge::check_only) charge does not limit the amount either, but its
    /// policy must admit the cost of this charge.
    ///
    /// The charges must have different states.
    AcquireUpTo {
        /// The minimum amount, from 1 up to the lowest cost of the charges.
        min: u64,
    },
    /// Acquires an estimate, under the id of the call, and keeps it as a *hold* until the actual
    /// costs are [settled](Self::Settle).
    ///
    /// The time to live of the [id](crate::CallId) is the expected duration of the work. It starts
    /// when the store makes the hold. During that time, the hold can be [extended](Self::Extend).
    /// The hold *lapses* when the time is over. Its estimate then stays charged, unless the policy
    /// [refunds lapsed holds](crate::Policy::refund_lapsed). After the lapse, the hold can still be
    /// settled for the same length of time. Then the hold *expires*: the store forgets it.
    ///
    /// The charges must have different states. A store does not check the [maximum
    /// hold](crate::Policy::max_hold) of a policy. The [`Limiter`](crate::Limiter) checks the
    /// maximum hold before it calls the store.
    ///
    /// A [check-only](crate::Charge::check_only) charge holds nothing, and can be settled at any
    /// cost. A shadow that denies its charge holds nothing, and its charge is not settled.
    Hold,
    /// Makes a [hold](Self::Hold) of the maximum amount that all enforced policies admit. The
    /// amount is chosen in the same way as by [`AcquireUpTo`](Self::AcquireUpTo).
    HoldUpTo {
        /// The minimum amount, from 1 up to the lowest cost of the charges.
        min: u64,
    },
    /// Makes a [hold](Self::Hold) of [slots](crate::Concurrent), or waits for it in a queue.
    ///
    /// If a policy of slots refuses the hold, the store gives the call a place in the queue of each
    /// subject whose slots the call takes, and returns the place in
    /// [`Decision::place`](crate::Decision::place). The caller then sends the call again and again,
    /// with this place, until the hold is admitted. Nothing is charged for waiting. Callers are
    /// admitted in the order of their places:
    ///
    /// * A call that lacks slots of a subject holds back all later calls on that subject, but not
    ///   on its other subjects.
    /// * A hold without a place is refused while another call waits for slots of the subject.
    /// * A call that is refused only by rates keeps its place and holds back no other call.
    ///
    /// A place ends five seconds after its last call, or after the shortest lease of the call's
    /// slots if that is shorter. A later call with this place gets a new place at the end of the
    /// queue. A caller that no longer waits gives up its place with [`Leave`](Self::Leave).
    ///
    /// If a cost is above a limit, the call can never be admitted, so it gets no place. If the call
    /// takes no slots, it is a plain hold.
    HoldInTurn {
        /// The place that the previous answer returned, or 0 for the first call.
        place: u64,
    },
    /// Gives up a place in the queues of the charges: see [`HoldInTurn`](Self::HoldInTurn). This
    /// operation changes no hold.
    Leave {
        /// The place.
        place: u64,
    },
    /// Settles a [hold](Self::Hold). The call has the id and the charges of the hold, but its costs
    /// are the total actual costs. The time to live of the id is ignored.
    ///
    /// If the actual cost is below the held amount, the call refunds the difference, but only the
    /// part that is still charged. If the actual cost exceeds both the held amount and the cost
    /// that was [settled so far](Self::SettleSoFar), the call [charges](Self::Charge) the excess.
    /// [`Decision::amounts`](crate::Decision::amounts) returns the amounts.
    ///
    /// | algorithm | refunds |
    /// |---|---|
    /// | fixed window | the difference, in the window of the hold; nothing after that window |
    /// | sliding counter | the difference, in the window of the hold, while that window still counts |
    /// | sliding log | the difference, if the record of the hold is among the newest [`MAX_UNDO`](crate::algorithm::sliding_log::MAX_UNDO); else nothing |
    /// | buckets | the difference, at most the hold less the refill between the hold and the last charge to the state, and at most the debt |
    ///
    /// A settlement never refunds too much. After a [reset](Self::Reset) of a state, a settlement
    /// refunds nothing, and charges the actual cost less the cost that was settled so far. A
    /// [refund](Self::Refund) after the hold has possibly refunded a part of the hold. So the
    /// settlement refunds less, by the amount of that refund.
    ///
    /// The settlement returns the verdicts that a peek of cost 0 would return after the settlement.
    /// No policy refuses a settlement.
    ///
    /// If the same settlement is sent again, the store returns the same answer and changes nothing.
    /// A second settlement at other costs fails with
    /// [`ErrorKind::AlreadySettled`](crate::ErrorKind::AlreadySettled). A settlement at a cost of 0
    /// cancels the hold.
    Settle,
    /// Reports the total costs of a [hold](Self::Hold) so far, while the work continues. The call
    /// charges the part of the costs that exceeds the held amount, and refunds nothing. The hold
    /// stays open and is [settled](Self::Settle) later. A total below an earlier total changes
    /// nothing.
    SettleSoFar,
    /// Prolongs a [hold](Self::Hold), so that it lapses after the id's time to live, counted from
    /// now. If the hold already lapses later than that, the call changes nothing. The call has the
    /// id and the charges of the hold. The costs are ignored.
    ///
    /// The call fails with [`ErrorKind::HoldLapsed`](crate::ErrorKind::HoldLapsed) if the hold has
    /// lapsed. It fails with [`ErrorKind::AlreadySettled`](crate::ErrorKind::AlreadySettled) if the
    /// hold was settled.
    Extend,
    /// Tops up the [quota](crate::Quota) or the credits of each charge by the cost of the charge.
    /// The call needs an id: while the store remembers the id, it makes the grant once.
    ///
    /// The part that ends first is spent first: a grant that ends before the window, then the
    /// quota of the window, then a grant that ends later. A grant never [rolls
    /// over](crate::Quota::rollover). A grant that has already ended changes nothing.
    ///
    /// A state has at most [`MAX_GRANTS`](crate::algorithm::quota::MAX_GRANTS) open grants. Grants
    /// with the same end are one grant. The call fails with
    /// [`ErrorKind::TooManyGrants`](crate::ErrorKind::TooManyGrants), and grants nothing, if a
    /// state would have more grants, or if the sum of its grants would exceed 2^52.
    ///
    /// The charges must have different states. The call returns the verdicts that a peek of cost 0
    /// would return after it. No policy refuses it.
    Grant {
        /// The time at which the grant ends. A grant without an end lasts until it is spent.
        ends_at: Option<Timestamp>,
    },
    /// Reserves a place in the queue of a bucket, at most `max_wait` in the future. Callers are
    /// served in the order of their calls. Every policy must be a bucket.
    Reserve {
        /// The maximum time from now until the reserved place.
        max_wait: Duration,
    },
    /// Removes the state of the subject, including its block and its offenses. This also ends the
    /// [holds](Self::Hold) on the state.
    Reset,
    /// Blocks the subject for `span` from now. The new block replaces an earlier block. A span of
    /// zero removes the block and the [offenses](crate::Block::growing). Any other span keeps the
    /// offenses, which are then forgotten after the end of the new block.
    Block {
        /// The duration of the block.
        span: Duration,
    },
    /// Blocks the subject for at least `span` from now. An earlier block that ends later does not
    /// change. A span of zero changes nothing.
    ///
    /// The blocks of several callers can arrive at the store in any order. The result is always the
    /// block with the latest end.
    BlockAtLeast {
        /// The minimum duration of the block.
        span: Duration,
    },
}

/// A flag: the operation charges its costs if the policies admit them, and is refused otherwise.
const ACQUIRES: u8 = 1;
/// A flag: the operation makes, settles or extends a hold.
const HOLD: u8 = 2;
/// A flag: the operation settles or extends a hold that an earlier call made.
const NEEDS_HOLD: u8 = 4;
/// A flag: the decision contains the amount that was refunded or recorded for each charge.
const AMOUNTS: u8 = 8;

macro_rules! facts {
    ($($operation:ident $name:literal $code:literal $facts:expr;)+) => {
        enum Row {
            $($operation,)+
        }

        impl Operation {
            #[cfg(feature = "metrics")]
            pub(crate) const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            #[inline]
            const fn row(self) -> Row {
                match self {
                    $(Self::$operation { .. } => Row::$operation,)+
                }
            }

            /// Returns the name of the operation in lower case, such as `acquire_up_to`. Metrics
            /// and traces use this name as a label.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.row() {
                    $(Row::$operation => $name,)+
                }
            }

            /// Returns the number of the operation in a [fingerprint](crate::Call::fingerprint).
            /// All operations of holds have the same number, so that all calls for one hold have
            /// the same fingerprint.
            pub(super) const fn code(self) -> u128 {
                match self.row() {
                    $(Row::$operation => $code,)+
                }
            }

            #[inline]
            const fn has(self, fact: u8) -> bool {
                let facts = match self.row() {
                    $(Row::$operation => $facts,)+
                };
                facts & fact != 0
            }
        }
    };
}

facts! {
    // operation  name             code  facts
    Acquire       "acquire"         1    ACQUIRES;
    Peek          "peek"            2    0;
    Refund        "refund"          3    AMOUNTS;
    Undo          "undo"            4    AMOUNTS;
    Reserve       "reserve"         5    ACQUIRES;
    Reset         "reset"           6    0;
    Block         "block"           7    0;
    Charge        "charge"          8    AMOUNTS;
    AcquireUpTo   "acquire_up_to"   9    ACQUIRES;
    BlockAtLeast  "block_at_least" 10    0;
    Hold          "hold"           11    ACQUIRES | HOLD;
    HoldUpTo      "hold_up_to"     11    ACQUIRES | HOLD;
    HoldInTurn    "hold_in_turn"   11    ACQUIRES | HOLD;
    Settle        "settle"         11    HOLD | NEEDS_HOLD | AMOUNTS;
    SettleSoFar   "settle_so_far"  11    HOLD | NEEDS_HOLD | AMOUNTS;
    Extend        "extend"         11    HOLD | NEEDS_HOLD;
    Leave         "leave"          12    0;
    Grant         "grant"          13    0;
}

impl Operation {
    #[cfg(feature = "metrics")]
    pub(crate) const fn index(self) -> usize {
        self.row() as usize
    }

    /// Returns `true` if the operation charges its costs when the policies admit them, and is
    /// refused otherwise. These operations are acquires, reservations, and the operations that make
    /// a hold.
    #[must_use]
    #[inline]
    pub const fn is_acquire(self) -> bool {
        self.has(ACQUIRES)
    }

    /// Returns `true` if a decision on the operation can be a refusal. This is the case for
    /// [acquires](Self::is_acquire), and for a peek because a peek decides as an acquire would.
    ///
    /// Operations that policies cannot refuse change states regardless of the limits. They return
    /// the verdicts that a peek of cost 0 would return after the call.
    #[must_use]
    #[inline]
    pub const fn can_be_refused(self) -> bool {
        self.is_acquire() || matches!(self, Self::Peek)
    }

    /// Returns `true` if the operation makes, settles or extends a [hold](Self::Hold).
    #[must_use]
    #[inline]
    pub const fn is_of_hold(self) -> bool {
        self.has(HOLD)
    }

    /// Returns `true` if the operation settles or extends a [hold](Self::Hold) that was made
    /// before.
    #[must_use]
    #[inline]
    pub const fn needs_hold(self) -> bool {
        self.has(NEEDS_HOLD)
    }

    /// Returns `true` if the [amounts](crate::Decision::amounts) of the decision are amounts that
    /// the operation refunded or recorded. (The amounts of [`AcquireUpTo`](Self::AcquireUpTo) and
    /// [`HoldUpTo`](Self::HoldUpTo) are amounts that the operation acquired.)
    #[must_use]
    #[inline]
    pub const fn has_amounts(self) -> bool {
        self.has(AMOUNTS)
    }

    /// Returns the `min` of [`AcquireUpTo`](Self::AcquireUpTo) or [`HoldUpTo`](Self::HoldUpTo), or
    /// `None` for all other operations.
    #[must_use]
    #[inline]
    pub const fn min_amount(self) -> Option<u64> {
        match self {
            Self::AcquireUpTo { min } | Self::HoldUpTo { min } => Some(min),
            _ => None,
        }
    }

    /// Returns the acquire that makes the same charges as this operation, if the operation makes a
    /// hold. Returns all other operations unchanged.
    #[must_use]
    #[inline]
    pub const fn without_hold(self) -> Self {
        match self {
            Self::Hold | Self::HoldInTurn { .. } => Self::Acquire,
            Self::HoldUpTo { min } => Self::AcquireUpTo { min },
            other => other,
        }
    }
}
