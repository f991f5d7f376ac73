use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::google::protobuf::Struct;
use tidegate_core::{FixedWindow, MAX_EXACT, Policy, PolicyError, format_duration};

use crate::limits::StatKey;

/// The name of the policy under which hits of a `rate_limit:` are counted.
const COUNTER_NAME: &str = "rate_limit";

/// The time units of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours, in UTC.
    Day,
    /// 7 days, of which the first is a Thursday.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    const ALL: [(Self, &str, u64, i32); 7] = [
        (Self::Second, "second", 1, 1),
        (Self::Minute, "minute", 60, 2),
        (Self::Hour, "hour", 3_600, 3),
        (Self::Day, "day", 86_400, 4),
        (Self::Week, "week", 7 * 86_400, 7),
        (Self::Month, "month", 30 * 86_400, 5),
        (Self::Year, "year", 365 * 86_400, 6),
    ];

    fn find(fits: impl Fn(&(Self, &str, u64, i32)) -> bool) -> Option<Self> {
        Self::ALL.iter().find(|it| fits(it)).map(|it| it.0)
    }

    /// The unit of this name, in upper or lower case.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::find(|it| it.1.eq_ignore_ascii_case(name))
    }

    /// The name of the unit in files.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|it| it.0 == self).map_or("", |it| it.1)
    }

    /// The unit of this number in the protocol.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        Self::find(|it| it.3 == number)
    }

    pub(crate) fn from_span(span: Duration) -> Option<Self> {
        Self::find(|it| Duration::from_secs(it.2) == span)
    }

    /// The number of the unit in the protocol.
    #[must_use]
    pub fn number(self) -> i32 {
        Self::ALL.iter().find(|it| it.0 == self).map_or(0, |it| it.3)
    }

    pub(crate) fn span(self) -> Duration {
        Duration::from_secs(Self::ALL.iter().find(|it| it.0 == self).map_or(1, |it| it.2))
    }
}

/// What holds for the descriptors that a rule matches.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) kind: Kind,
    /// Empty for none.
    pub(crate) name: Box<str>,
    /// The names of the limits that do not hold in a request for which this one does.
    pub(crate) replaces: Box<[Box<str>]>,
    pub(crate) is_shadow: bool,
    pub(crate) is_quota: bool,
    pub(crate) has_detailed_metric: bool,
    pub(crate) metadata: Option<Struct>,
    /// The key in statistics, with configured values.
    pub(crate) stat_key: Arc<StatKey>,
    /// File, line and column; or the resource.
    pub(crate) place: Box<str>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Unlimited,
    /// As envoyproxy/ratelimit counts: every hit, a refused one too.
    Counted(Counted),
    /// By our algorithms: all or none.
    Policy(PolicyLimit),
}

#[derive(Debug, Clone)]
pub(crate) struct Counted {
    pub(crate) requests_per_unit: u32,
    /// Counts the hits of a window without refusing any. Its limit is no part of its state, so the state is that of
    /// any limit with this window.
    pub(crate) counter: Policy,
    /// The same window, decided all or none, with the same state.
    pub(crate) policy: Policy,
}

#[derive(Debug, Clone)]
pub(crate) struct PolicyLimit {
    pub(crate) policy: Policy,
    /// Hits are what was used already: they are charged, whatever was taken before. A request without hits asks whether
    /// anything is left.
    pub(crate) charges_afterwards: bool,
    /// Counts what was refused, so that a refund of that gives nothing back.
    pub(crate) refused: Option<Policy>,
}

impl Limit {
    /// Returns the line of `GET /rlconfig`.
    pub(super) fn dump(&self) -> String {
        // A value may have any characters, and each limit has one line.
        let key = self.stat_key.to_string().replace(char::is_control, " ");
        let rule = match &self.kind {
            Kind::Unlimited => "unlimited".to_owned(),
            Kind::Counted(counted) => {
                let window = counted.counter.window();
                let unit = Unit::from_span(window).map_or_else(
                    || format!("period={}", format_duration(window)),
                    |unit| format!("unit={}", unit.name().to_ascii_uppercase()),
                );
                format!("{unit} requests_per_unit={}", counted.requests_per_unit)
            }
            Kind::Policy(limit) => format!("policy={}", limit.policy),
        };
        format!("{key}: {rule}, shadow_mode: {}\n", self.is_shadow)
    }
}

/// `100 per 1m`, or the policy; and what is special about it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Unlimited => f.write_str("unlimited")?,
            Kind::Counted(counted) => {
                let window = counted.counter.window();
                write!(f, "{} per {}", counted.requests_per_unit, format_duration(window))?;
            }
            Kind::Policy(limit) => write!(f, "{}", limit.policy)?,
        }
        for (is_so, word) in [
            // The text of a policy has it.
            (self.is_shadow && !matches!(self.kind, Kind::Policy(_)), "shadow"),
            (self.is_quota, "quota"),
        ] {
            if is_so {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

impl Counted {
    pub(crate) fn new(requests_per_unit: u32, window: Duration) -> Result<Self, PolicyError> {
        let counter = Policy::new(COUNTER_NAME, FixedWindow::new(MAX_EXACT, window))?;
        let policy = Policy::new(COUNTER_NAME, FixedWindow::new(requests_per_unit.into(), window))?;
        Ok(Self { requests_per_unit, counter, policy })
    }
}

impl PolicyLimit {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, charges_afterwards: false, refused: None }
    }

    /// The same limit, which takes refunds.
    pub(crate) fn with_refunds(self) -> Result<Self, PolicyError> {
        // Refunds come at the end of a request, which takes less than the window and this time.
        let span = self.policy.max_retention().max(Duration::from_secs(3_600));
        let name = format!("{COUNTER_NAME}.refused");
        let refused = Policy::new(&name, FixedWindow::new(MAX_EXACT, span).anchored())?;
        Ok(Self { refused: Some(refused), ..self })
    }
}
