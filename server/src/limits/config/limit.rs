use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::google::protobuf::Struct;
use tidegate_core::{
    Algorithm, FixedWindow, Lease, MAX_EXACT, Policy, PolicyError, format_duration,
};

use crate::limits::StatKey;

/// The name of the policy that counts the hits of a `rate_limit:`.
const COUNTER_NAME: &str = "rate_limit";

/// The time units of Envoy's rate-limit protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours. A window begins at midnight UTC.
    Day,
    /// 7 days. A window begins on a Thursday, because 1 January 1970 was a Thursday.
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
        Self::ALL.iter().find(|unit| fits(unit)).map(|unit| unit.0)
    }

    /// Returns the unit with this name, in upper or lower case.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::find(|unit| unit.1.eq_ignore_ascii_case(name))
    }

    /// Returns the name of the unit as it is written in files.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|unit| unit.0 == self).map_or("", |unit| unit.1)
    }

    /// Returns the unit with this number in the protocol.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        Self::find(|unit| unit.3 == number)
    }

    fn from_span(span: Duration) -> Option<Self> {
        Self::find(|unit| Duration::from_secs(unit.2) == span)
    }

    /// Returns the unit of a policy's windows. Returns `None` if the protocol has no such unit.
    pub(crate) fn from_policy(policy: &Policy) -> Option<Self> {
        match policy.algorithm() {
            Algorithm::Quota(quota) => Self::from_name(quota.unit().keyword()),
            _ => Self::from_span(policy.window()),
        }
    }

    /// Returns the number of the unit in the protocol.
    #[must_use]
    pub fn number(self) -> i32 {
        Self::ALL.iter().find(|unit| unit.0 == self).map_or(0, |unit| unit.3)
    }

    pub(crate) fn span(self) -> Duration {
        Duration::from_secs(Self::ALL.iter().find(|unit| unit.0 == self).map_or(1, |unit| unit.2))
    }
}

/// A limit for the descriptors that a rule matches.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) kind: Kind,
    /// The name of the limit; empty if it has no name.
    pub(crate) name: Box<str>,
    /// The names of the limits that this limit replaces if they apply to the same request.
    pub(crate) replaces: Box<[Box<str>]>,
    pub(crate) is_shadow: bool,
    pub(crate) is_quota: bool,
    /// Whether the server may lease the limit when it leases all limits. It is `false` if the limit
    /// has `lease: false`.
    pub(crate) may_be_leased: bool,
    pub(crate) has_detailed_metric: bool,
    pub(crate) metadata: Option<Struct>,
    /// The key in statistics. It contains configured values, and no values from requests.
    pub(crate) stat_key: Arc<StatKey>,
    /// The file, line and column of the limit, or the name of the resource.
    pub(crate) place: Box<str>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Unlimited,
    /// A `rate_limit:`, which counts every hit, including refused hits, as envoyproxy/ratelimit
    /// does.
    Counted(Counted),
    /// A policy of Tidegate. The policies of a request are charged together or not at all.
    Policy(PolicyLimit),
    /// A policy of slots. The value of a descriptor's last entry is the id of the hold that has the
    /// slots.
    Slots(Policy),
}

impl Kind {
    /// Returns the policy of the limit. Returns `None` if the limit is unlimited.
    fn policy(&self) -> Option<&Policy> {
        match self {
            Self::Unlimited => None,
            Self::Counted(Counted { policy, .. })
            | Self::Policy(PolicyLimit { policy, .. })
            | Self::Slots(policy) => Some(policy),
        }
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.policy().is_some_and(Policy::is_leased)
    }

    /// Returns `true` if the policy of the limit is a shadow.
    pub(crate) fn is_shadow(&self) -> bool {
        self.policy().is_some_and(Policy::is_shadow)
    }

    /// Returns the policy that the limit has as a text.
    pub(super) fn text(&self) -> Option<&Policy> {
        match self {
            Self::Unlimited | Self::Counted(_) => None,
            Self::Policy(PolicyLimit { policy, .. }) | Self::Slots(policy) => Some(policy),
        }
    }

    /// Marks the policy of the limit as leased. A `rate_limit:` then decides like a policy, because
    /// only a limit that does not count refused hits can be leased.
    ///
    /// # Errors
    ///
    /// Returns the reason if the limit cannot be leased.
    pub(super) fn lease(&mut self, is_quota: bool) -> Result<(), String> {
        let policy = match self {
            Self::Unlimited => return Err("it is unlimited".into()),
            Self::Counted(_) if is_quota => return Err("a quota refuses no request".into()),
            Self::Counted(counted) => &mut counted.policy,
            Self::Policy(limit) if limit.charges_afterwards => {
                return Err("its hits are charged after they have happened".into());
            }
            Self::Policy(limit) if limit.one_of.is_some() => {
                return Err("the store chooses one of several alternatives".into());
            }
            Self::Policy(limit) if limit.policy.is_credits() => {
                return Err("nothing refills the credits that a crash of the server loses".into());
            }
            Self::Policy(limit) => &mut limit.policy,
            Self::Slots(_) => return Err("slots are taken and freed in the store".into()),
        };
        Lease::new().check(policy).map_err(|error| error.to_string())?;
        *policy = policy.clone().leased();
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Counted {
    pub(crate) requests_per_unit: u32,
    /// The policy that counts the hits of a window and never refuses hits. A state does not depend
    /// on the limit of its policy, so the counted hits are kept if the configured limit changes.
    pub(crate) counter: Policy,
    /// A policy with the configured limit. It has the same window as `counter`, and therefore the
    /// same state. It replaces `counter` where hits can be refused, for example if the limit is
    /// leased.
    pub(crate) policy: Policy,
}

#[derive(Debug, Clone)]
pub(crate) struct PolicyLimit {
    pub(crate) policy: Policy,
    /// Whether requests report hits that have already happened. The policy charges these hits even
    /// beyond the limit. A request with 0 hits checks whether anything remains.
    pub(crate) charges_afterwards: bool,
    /// The policy that counts refused hits; `None` without `refunds: true`. A refund is reduced by
    /// these hits, because they were never charged.
    pub(crate) refused: Option<Policy>,
    /// The name of the list of alternatives to which the limit belongs. If several descriptors of a
    /// request have limits with this name, one of them pays.
    pub(crate) one_of: Option<Box<str>>,
}

impl Limit {
    /// Leases the limit if it can be leased and does not have `lease: false`. A calendar quota is
    /// not leased, because the part that a crash of the server loses returns only with the next
    /// window.
    pub(super) fn lease_if_possible(&mut self) {
        if self.may_be_leased && !self.kind.policy().is_some_and(Policy::is_quota) {
            // A limit that cannot be leased is not changed.
            let _ = self.kind.lease(self.is_quota);
        }
    }

    /// Returns the kind of this limit with another policy, or `None` if the limit cannot have this
    /// policy. The policy keeps the name of the limit's own policy, so that the usage is kept.
    /// `is_quota` is `true` if the limit is a quota, also by a setting for all limits.
    pub(crate) fn adjusted(&self, policy: &Policy, is_quota: bool) -> Option<Kind> {
        let own = self.kind.policy()?;
        if own.is_concurrent() != policy.is_concurrent()
            || own.is_fair_pool() != policy.is_fair_pool()
            || self.is_alternative() && !policy.can_be_alternative()
        {
            return None;
        }
        let policy = renamed(policy, own.name())?;
        let mut kind = match &self.kind {
            // A counter can neither block nor warn.
            Kind::Counted(own)
                if policy.shares_state_with(&own.policy)
                    && policy.block().is_none()
                    && policy.warn_percent().is_none() =>
            {
                let requests_per_unit = u32::try_from(policy.limit()).unwrap_or(u32::MAX);
                Kind::Counted(Counted { requests_per_unit, counter: own.counter.clone(), policy })
            }
            // A quota refuses no request, and only a counter can do this.
            Kind::Counted(_) if is_quota => return None,
            // A `rate_limit:` accepts refunds, also with another policy.
            Kind::Counted(_) => Kind::Policy(PolicyLimit::new(policy).with_refunds().ok()?),
            Kind::Policy(own) => Kind::Policy(PolicyLimit { policy, ..own.clone() }),
            Kind::Slots(_) | Kind::Unlimited => Kind::Slots(policy),
        };
        if self.kind.is_leased() {
            // A policy that cannot be leased is decided by the store.
            let _ = kind.lease(is_quota);
        }
        Some(kind)
    }

    /// Returns `true` if the limit has `one_of`.
    fn is_alternative(&self) -> bool {
        matches!(self.kind, Kind::Policy(PolicyLimit { one_of: Some(_), .. }))
    }

    /// Returns the line about this limit in the answer to `GET /rlconfig`.
    pub(super) fn dump(&self) -> String {
        // A value can contain line breaks, but the answer has one line for each limit.
        let key = self.stat_key.to_string().replace(char::is_control, " ");
        let rule = match &self.kind {
            Kind::Unlimited => "unlimited".to_owned(),
            Kind::Counted(counted) => {
                let policy = &counted.policy;
                let unit = Unit::from_policy(policy).map_or_else(
                    || format!("period={}", format_duration(policy.window())),
                    |unit| format!("unit={}", unit.name().to_ascii_uppercase()),
                );
                let requests = counted.requests_per_unit;
                match policy.algorithm() {
                    Algorithm::Quota(quota) => {
                        format!("{unit} requests_per_unit={requests} calendar={quota}")
                    }
                    _ => format!("{unit} requests_per_unit={requests}"),
                }
            }
            Kind::Policy(PolicyLimit { policy, .. }) | Kind::Slots(policy) => {
                format!("policy={policy}")
            }
        };
        format!("{key}: {rule}, shadow_mode: {}\n", self.is_shadow)
    }
}

/// Formats a limit as `100 per 1m` or as the text of its policy, followed by `shadow`, `quota` and
/// `leased` if they apply.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Unlimited => f.write_str("unlimited")?,
            Kind::Counted(counted) => {
                let window = format_duration(counted.counter.window());
                match counted.policy.algorithm() {
                    Algorithm::Quota(quota) => write!(f, "{quota}")?,
                    _ => write!(f, "{} per {window}", counted.requests_per_unit)?,
                }
            }
            Kind::Policy(PolicyLimit { policy, .. }) | Kind::Slots(policy) => {
                write!(f, "{policy}")?;
            }
        }
        let is_policy = self.kind.text().is_some();
        for (is_so, word) in [
            // The text of a policy already contains `shadow`.
            (self.is_shadow && !is_policy, "shadow"),
            (self.is_quota, "quota"),
            (self.kind.is_leased() && !is_policy, "leased"),
        ] {
            if is_so {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

/// Returns a policy with another name. Returns `None` only for a policy that has no name.
fn renamed(policy: &Policy, name: &str) -> Option<Policy> {
    if policy.name() == name {
        return Some(policy.clone());
    }
    let text = policy.to_string();
    let rule = text.strip_prefix(policy.name())?.strip_prefix(": ")?;
    format!("{name}: {rule}").parse().ok()
}

impl Counted {
    pub(crate) fn new(requests_per_unit: u32, window: Duration) -> Result<Self, PolicyError> {
        let counter = Policy::new(COUNTER_NAME, FixedWindow::new(MAX_EXACT, window))?;
        let policy = Policy::new(COUNTER_NAME, FixedWindow::new(requests_per_unit.into(), window))?;
        Ok(Self { requests_per_unit, counter, policy })
    }

    /// Creates a limit per window of a calendar. `calendar` is the part of a quota after its unit,
    /// such as `in Europe/Amsterdam`.
    pub(crate) fn in_calendar(
        requests_per_unit: u32,
        unit: Unit,
        calendar: &str,
    ) -> Result<Self, String> {
        let policy = |limit: u64| {
            let text = format!("{COUNTER_NAME}: quota {limit}/{} {calendar}", unit.name());
            let policy: Policy = text.parse().map_err(|error: PolicyError| error.to_string())?;
            // The options of all policies, such as `block`, are not possible.
            if policy.to_string() != format!("{COUNTER_NAME}: {}", policy.algorithm()) {
                return Err("only `in`, `from`, `at` and `anchored` are possible".to_owned());
            }
            Ok(policy)
        };
        let (counter, policy) = (policy(MAX_EXACT)?, policy(requests_per_unit.into())?);
        Ok(Self { requests_per_unit, counter, policy })
    }
}

impl PolicyLimit {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, charges_afterwards: false, refused: None, one_of: None }
    }

    /// Returns this limit with support for refunds.
    pub(crate) fn with_refunds(self) -> Result<Self, PolicyError> {
        // Refused hits are counted for as long as a refund can arrive: for the retention of the
        // policy, and for at least one hour, because a client can send a refund at the end of a
        // long request.
        let span = self.policy.max_retention().max(Duration::from_secs(3_600));
        let name = format!("{COUNTER_NAME}.refused");
        let refused = Policy::new(&name, FixedWindow::new(MAX_EXACT, span).anchored())?;
        Ok(Self { refused: Some(refused), ..self })
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::config::{Config, ConfigFile, SameDomain};

    #[test]
    fn an_adjusted_limit_is_leased_if_and_only_if_the_limit_is() {
        let text = "domain: d\ndescriptors:\n\
            - {key: a, lease: true, policy: 'plan: fixed-window 100/1h'}\n\
            - {key: b, policy: 'plan: fixed-window 100/1h'}\n\
            - {key: c, lease: true, rate_limit: {name: plan, unit: hour, requests_per_unit: 100}}\n\
            - {key: d, rate_limit: {name: plan, unit: hour, requests_per_unit: 100}}\n";
        let file = ConfigFile { name: "a.yaml".into(), text: text.into() };
        let config = Config::from_files(&[file], SameDomain::Refuse).unwrap();
        let mut leased = vec![];
        config.for_each_limit(&mut |limit| {
            for policy in ["plan: fixed-window 900/1h", "plan: fixed-window 900/1d"] {
                let adjusted = limit.adjusted(&policy.parse().unwrap(), false).unwrap();
                assert_eq!(adjusted.is_leased(), limit.kind.is_leased(), "{policy}");
                leased.push(adjusted.is_leased());
            }
        });
        leased.sort_unstable();
        assert_eq!(leased, [[false; 4], [true; 4]].concat());
    }
}
