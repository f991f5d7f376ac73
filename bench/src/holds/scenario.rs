//! The policies that are charged, and the form of the calls.

/// The policies that one call charges.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// The policies. Their limits are never reached.
    pub(super) policies: &'static [&'static str],
}

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario { name: "fixed window", policies: &["a: fixed-window 1000000/24h"] },
    Scenario {
        name: "fixed window that refunds lapsed holds",
        policies: &["h: fixed-window 1000000/24h refund-lapsed"],
    },
    Scenario { name: "sliding counter", policies: &["b: sliding-counter 1000000/24h"] },
    Scenario { name: "token bucket", policies: &["c: token-bucket 100/1m burst 10000"] },
    Scenario {
        name: "token bucket by intervals",
        policies: &["d: token-bucket 100/1m burst 10000 by-interval"],
    },
    Scenario { name: "sliding log of 100", policies: &["e: sliding-log 100/1h"] },
    Scenario {
        name: "fixed window and token bucket",
        policies: &["f: fixed-window 1000000/24h", "g: token-bucket 100/1m burst 10000"],
    },
];

/// The form of each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    Plain,
    WithId,
    /// A hold, which is then settled at a lower cost.
    HoldAndSettlement,
}

impl Form {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::WithId, Self::HoldAndSettlement];
}
