//! Records requests of Envoy for the page for operators.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::envoy::decide::{DecideError, Decided, Operated, Tally};
use crate::limits::StatKey;
use crate::observe::activity::{
    Activity, Event, Kind, LimitEvent, LimitName, LimitRef, SlowCall, Source, Subject,
};

/// Records a request for the page for operators. `limits` returns the limits of the request and
/// their subjects. It is called only for a slow request that was not decided.
pub(super) fn record(
    activity: &Activity,
    decided: &Result<Decided, DecideError>,
    is_shadow: bool,
    took: Duration,
    limits: impl FnOnce() -> Vec<(Arc<StatKey>, Vec<u8>)>,
) {
    let (kind, error) = match decided {
        Ok(decided) => match decided.response.overall_code() {
            Code::OverLimit => (Kind::Refused, None),
            Code::Ok | Code::Unknown => (Kind::Admitted, None),
        },
        Err(DecideError::Store(error)) => (Kind::Failed, Some(error.kind().as_str())),
        Err(DecideError::Request(_)) => (Kind::Failed, Some("invalid-call")),
    };
    let tallies = decided.as_ref().map(|decided| &*decided.tallies).unwrap_or_default();
    let limit_events = tallies.iter().map(|tally| LimitEvent {
        kind: match (tally.over > 0, is_shadow || tally.shadow > 0) {
            (false, _) => Kind::Admitted,
            (true, false) => Kind::Refused,
            (true, true) => Kind::Shadow,
        },
        limit: LimitRef::Key(&tally.limit_key),
        subject: subject(&tally.subject),
        verdict: tally.refusal.as_ref(),
        usage: tally.usage,
    });
    activity.record(Event { kind, error, limits: limit_events });
    activity.record_slow(took, || {
        let limits = match decided {
            Ok(_) => {
                let mut limits: Vec<&Tally> = tallies.iter().collect();
                limits.sort_by_key(|tally| tally.over == 0);
                let limit = |tally: &Tally| (Arc::clone(&tally.limit_key), tally.subject.clone());
                limits.into_iter().map(limit).collect()
            }
            Err(_) => limits(),
        };
        let first = limits.first();
        SlowCall {
            took,
            at: SystemTime::now(),
            source: Source::Envoy,
            calls: 1,
            limit: first.map(|(limit, _)| LimitName::Key(Arc::clone(limit))),
            other_limits: limits.len().saturating_sub(1),
            outcome: error.unwrap_or(kind.as_str()),
            subject: first.and_then(|(_, bytes)| activity.cut(subject(bytes))),
        }
    });
}

/// Records bans with a reason. Without a reason, records the ends of bans.
pub(super) fn record_bans(activity: &Activity, operated: &[Operated], reason: Option<&str>) {
    for Operated { limit_key, subject: bytes, verdict, .. } in operated {
        let limit = LimitName::Key(Arc::clone(limit_key));
        activity.record_ban(Source::Envoy, limit, subject(bytes), verdict, reason);
    }
}

fn subject(subject: &[u8]) -> Subject<'_> {
    Subject { tenant: &[], subject }
}
