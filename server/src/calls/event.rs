//! Records decided calls for the page for operators.

use std::time::{Duration, SystemTime};

use tidegate_core::{Decision, Error, Operation, Outcome};

use super::CallRequest;
use crate::observe::activity::{
    Activity, Event, Kind, LimitEvent, LimitName, LimitRef, SlowCall, Source, Usage,
};

/// Records each call of a batch. If the batch is among the slowest, it is also recorded as a slow
/// call.
pub(super) fn record(
    activity: &Activity,
    source: Source,
    requests: &[&CallRequest],
    answers: &[Result<Decision, Error>],
    took: Duration,
) {
    for (request, answer) in requests.iter().zip(answers) {
        record_one(activity, request, answer);
        if let Ok(decision) = answer {
            record_bans(activity, source, request, decision);
        }
    }
    let (Some(request), Some(answer)) = (requests.first(), answers.first()) else { return };
    activity.record_slow(took, || {
        let place = answer.as_ref().ok().and_then(|decision| decision.refused_by().next());
        let place = place.unwrap_or(0);
        let limit = request.policies().nth(place);
        SlowCall {
            took,
            at: SystemTime::now(),
            source,
            calls: requests.len(),
            limit: limit.map(|policy| LimitName::Policy(policy.clone())),
            other_limits: request.policies().count().saturating_sub(1),
            outcome: match answer {
                Ok(decision) => kind(request, decision).as_str(),
                Err(error) => error.kind().as_str(),
            },
            subject: request.subjects().nth(place).and_then(|subject| activity.cut(subject)),
        }
    });
}

fn record_one(activity: &Activity, request: &CallRequest, answer: &Result<Decision, Error>) {
    let (kind, error) = match answer {
        Ok(decision) => {
            (kind(request, decision), decision.degraded().map(|degraded| degraded.reason.as_str()))
        }
        Err(error) => (Kind::Failed, Some(error.kind().as_str())),
    };
    let verdicts = match answer {
        Ok(decision) if request.operation().is_acquire() => decision.verdicts(),
        _ => &[],
    };
    let charges = request.policies().zip(request.subjects());
    // A skipped charge of a list of alternatives was neither admitted nor refused.
    let counted =
        charges.zip(verdicts).filter(|(_, verdict)| verdict.outcome() != Outcome::Skipped);
    let limits = counted.map(|((policy, subject), verdict)| LimitEvent {
        kind: match (verdict.outcome(), verdict.is_shadow()) {
            (Outcome::Allowed, _) => Kind::Admitted,
            (_, false) => Kind::Refused,
            (_, true) => Kind::Shadow,
        },
        limit: LimitRef::Policy(policy),
        subject,
        verdict: Some(verdict),
        usage: Usage::new(verdict),
    });
    activity.record(Event { kind, error, limits });
}

/// Records a ban, or the end of one.
fn record_bans(activity: &Activity, source: Source, request: &CallRequest, decision: &Decision) {
    let is_unban = matches!(request.operation(), Operation::Block { span } if span.is_zero());
    if request.reason().is_none() && !is_unban {
        return;
    }
    let charges = request.policies().zip(request.subjects());
    for ((policy, subject), verdict) in charges.zip(decision.verdicts()) {
        let limit = LimitName::Policy(policy.clone());
        activity.record_ban(source, limit, subject, verdict, request.reason());
    }
}

/// Returns the kind of a decided call. Only an operation that charges its costs, such as an acquire
/// or a hold, can be `Refused`. A peek cannot.
fn kind(request: &CallRequest, decision: &Decision) -> Kind {
    match request.operation().is_acquire() && decision.is_denied() {
        true => Kind::Refused,
        false => Kind::Admitted,
    }
}
