//! Creates the response from the answers of the store.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf::Duration as DurationMessage;
use tidegate_core::{Outcome, Verdict};

use super::carry_out::{Answer, Count};
use super::plan::{Limited, Planned, Rule, Target};
use super::tally::Of;
use super::{Behaviour, HeaderNames, NearLimitRatio, Tally};
use crate::limits::config::Unit;
use crate::observe::activity::Usage;

/// Returns the statuses of all descriptors, in order.
pub(super) fn statuses(planned: &[Planned], answers: &[Option<Answer>]) -> Vec<DescriptorStatus> {
    let answers = answers.iter().copied().chain(std::iter::repeat(None));
    planned.iter().zip(answers).map(|(planned, answer)| status(planned, answer)).collect()
}

/// Returns the statuses of all descriptors of a request that a store did not decide. A descriptor
/// is over its limit if its limit can refuse hits. A shadow, a refund, hits that have already
/// happened, and hits that a list allows cannot be refused.
pub(super) fn statuses_without_store(planned: &[Planned]) -> Vec<DescriptorStatus> {
    let can_refuse = |planned: &Planned| match &planned.target {
        Target::Limited(limited) => {
            let is_past = matches!(&limited.rule, Rule::Policy(limit) if limit.charges_afterwards);
            let is_admitted = planned.is_refund || limited.is_shadow || limited.is_allowed();
            !is_admitted && (planned.hits == 0 || !is_past)
        }
        Target::None | Target::Unlimited => false,
    };
    let status = |planned| DescriptorStatus {
        code: code(can_refuse(planned)),
        ..DescriptorStatus::default()
    };
    planned.iter().map(status).collect()
}

fn status(planned: &Planned, answer: Option<Answer>) -> DescriptorStatus {
    let ok = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    // If a list denies the descriptor, waiting does not help.
    let is_denied = is_denied(planned);
    match (&planned.target, answer) {
        (Target::None, _) => ok,
        // Another descriptor of the request pays, so Envoy must not announce this limit.
        (Target::Limited(_), Some(Answer::Policy(verdict))) if is_skipped(&verdict) => ok,
        (Target::Unlimited, _) => DescriptorStatus { limit_remaining: u32::MAX, ..ok },
        (Target::Limited(limited), Some(Answer::Counted(count))) => {
            let is_over = is_over(planned.is_refund, limited, Answer::Counted(count));
            DescriptorStatus {
                code: code(is_over && !limited.is_shadow),
                limit_remaining: clamped(limit_of(limited).saturating_sub(count.after)),
                current_limit: Some(current_limit(limited)),
                duration_until_reset: (!is_denied).then(|| whole_seconds(count.reset)),
                quota: None,
            }
        }
        (Target::Limited(limited), Some(Answer::Policy(verdict) | Answer::Used(verdict))) => {
            let is_over = answer.is_some_and(|answer| is_over(planned.is_refund, limited, answer));
            let is_refused = is_over && !limited.is_shadow;
            DescriptorStatus {
                code: code(is_refused),
                limit_remaining: clamped(verdict.remaining()),
                current_limit: Some(current_limit(limited)),
                duration_until_reset: (!is_denied).then(|| wait(&verdict, limited, is_refused)),
                quota: None,
            }
        }
        (Target::Limited(limited), Some(Answer::Slots(verdict))) => {
            let is_over = is_over(planned.is_refund, limited, Answer::Slots(verdict));
            DescriptorStatus {
                code: code(is_over && !limited.is_shadow),
                limit_remaining: clamped(verdict.remaining()),
                current_limit: Some(current_limit(limited)),
                // A slot can become free at any time, so there is no time to wait for.
                duration_until_reset: None,
                quota: None,
            }
        }
        // The descriptor frees slots that are not taken.
        (Target::Limited(_), None) => ok,
    }
}

/// Returns `true` if a list denies the descriptor.
fn is_denied(planned: &Planned) -> bool {
    matches!(&planned.target, Target::Limited(limited) if limited.is_denied(planned.hits))
}

/// Returns `true` if the hits exceed the limit, even if the limit is a shadow. A refund never
/// exceeds a limit.
fn is_over(is_refund: bool, limited: &Limited, answer: Answer) -> bool {
    !is_refund
        && match answer {
            Answer::Counted(Count { after, .. }) => {
                after > limit_of(limited) && !limited.is_allowed()
            }
            Answer::Policy(verdict) | Answer::Slots(verdict) => {
                verdict.outcome() != Outcome::Allowed && !is_skipped(&verdict)
            }
            Answer::Used(_) => false,
        }
}

/// Returns `true` if the charge is an alternative that does not pay.
fn is_skipped(verdict: &Verdict) -> bool {
    verdict.outcome() == Outcome::Skipped
}

/// Returns the time until a retry of a refused request can be admitted, at least one second. If the
/// request is not refused, returns the time until the whole limit is available.
///
/// For a refused request, Envoy copies the returned time into the header `Retry-After`.
fn wait(verdict: &Verdict, limited: &Limited, is_refused: bool) -> DurationMessage {
    if !is_refused {
        return whole_seconds(verdict.reset_after());
    }
    // If the hits alone exceed the limit, waiting does not help. The function then returns the
    // window.
    let wait = verdict.retry_after().unwrap_or_else(|| limited.policy().window());
    whole_seconds(wait.max(Duration::from_secs(1)))
}

fn limit_of(limited: &Limited) -> u64 {
    match &limited.rule {
        Rule::Counted(counted) => counted.requests_per_unit.into(),
        Rule::Policy(_) | Rule::Slots(_) => limited.policy().limit(),
    }
}

/// Returns the limit as a message of the protocol. If the protocol has no unit for the window, such
/// as a window of 15 minutes, the message contains no unit. Slots have no window.
fn current_limit(limited: &Limited) -> RateLimit {
    let unit = match limited.rule {
        Rule::Slots(_) => None,
        _ => Unit::from_policy(limited.policy()),
    };
    RateLimit {
        name: limited.limit.name.to_string(),
        requests_per_unit: clamped(limit_of(limited)),
        unit: unit.map_or(0, Unit::number),
    }
}

fn code(is_over: bool) -> i32 {
    if is_over { Code::OverLimit.into() } else { Code::Ok.into() }
}

fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns a span in whole seconds. The span is rounded up, because a client that waits for less
/// than the span would retry too early.
fn whole_seconds(span: Duration) -> DurationMessage {
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    DurationMessage { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}

/// Returns `true` if the request is refused. This is the case if a list denies a descriptor, if a
/// limit that is not a quota is exceeded, or if all quotas are exceeded.
pub(super) fn is_over_limit(
    planned: &[Planned],
    statuses: &[DescriptorStatus],
    behaviour: &Behaviour,
) -> bool {
    let (mut quotas, mut quotas_over) = (0, 0);
    for (planned, status) in planned.iter().zip(statuses) {
        let is_over = status.code == i32::from(Code::OverLimit);
        match is_quota(planned, behaviour) {
            Some(true) if is_over && is_denied(planned) => return true,
            Some(true) => {
                quotas += 1;
                quotas_over += usize::from(is_over);
            }
            Some(false) if is_over => return true,
            _ => {}
        }
    }
    quotas > 0 && quotas == quotas_over
}

/// Returns `true` if the limit of a descriptor is a quota. Returns `None` if the descriptor is
/// unlimited, because it then cannot refuse the request.
fn is_quota(planned: &Planned, behaviour: &Behaviour) -> Option<bool> {
    match &planned.target {
        Target::Unlimited => None,
        Target::None => Some(behaviour.all_are_quotas),
        // A policy is never a quota. Policies are charged together or not at all, so each exceeded
        // policy refuses the request.
        Target::Limited(Limited { rule: Rule::Policy(_) | Rule::Slots(_), .. }) => Some(false),
        Target::Limited(limited) => Some(behaviour.is_quota(&limited.limit)),
    }
}

/// Returns the response headers. They describe one limit: the last exceeded limit that is not a
/// quota. If no such limit exists, they describe the first limit with the smallest remaining
/// amount. Slots have no header with the seconds until the limit resets.
pub(super) fn headers(
    planned: &[Planned],
    statuses: &[DescriptorStatus],
    behaviour: &Behaviour,
    names: &HeaderNames,
) -> Vec<HeaderValue> {
    let limited = || statuses.iter().filter(|status| status.current_limit.is_some());
    let is_refusing = |(planned, status): &(&Planned, &DescriptorStatus)| {
        status.code == i32::from(Code::OverLimit) && is_quota(planned, behaviour) == Some(false)
    };
    let over = planned.iter().zip(statuses).rfind(is_refusing).map(|(_, status)| status);
    // If several limits have the smallest remaining amount, `min_by_key` returns the first of them.
    let Some(status) = over.or_else(|| limited().min_by_key(|status| status.limit_remaining))
    else {
        return Vec::new();
    };
    let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    let reset = status.duration_until_reset.as_ref().map(|span| span.seconds.to_string());
    let header = |name: &str, value: String| HeaderValue {
        key: name.to_owned(),
        value,
        ..HeaderValue::default()
    };
    let mut headers = vec![
        header(&names.limit, limit.to_string()),
        header(&names.remaining, status.limit_remaining.to_string()),
    ];
    headers.extend(reset.map(|reset| header(&names.reset, reset)));
    headers
}

/// Returns the names of the limits that [warn](tidegate_core::Policy::warn_at), each once. A limit
/// without a name has its key in statistics instead.
pub(super) fn warnings<'p>(planned: &'p [Planned], answers: &[Option<Answer>]) -> Vec<&'p str> {
    let mut names: Vec<&str> = Vec::new();
    for (planned, answer) in planned.iter().zip(answers) {
        let warns = match answer {
            Some(Answer::Policy(it) | Answer::Used(it) | Answer::Slots(it)) => it.warns(),
            Some(Answer::Counted(_)) | None => false,
        };
        if let (true, Target::Limited(limited)) = (warns, &planned.target) {
            let limit = &limited.limit;
            let name = if limit.name.is_empty() { limit.stat_key.name() } else { &*limit.name };
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Returns the header with the names of the limits that warn: a list of structured strings (RFC
/// 9651). Returns `None` if no limit warns. Characters that a string cannot contain become `?`.
pub(super) fn warning_header(warnings: &[&str]) -> Option<HeaderValue> {
    let quoted = |name: &&str| {
        let text: String =
            name.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    };
    let value = warnings.iter().map(quoted).collect::<Vec<_>>().join(", ");
    (!warnings.is_empty()).then(|| HeaderValue {
        key: "RateLimit-Warning".to_owned(),
        value,
        ..HeaderValue::default()
    })
}

/// Returns the statistics of all descriptors with a limit, except for refunds. If `is_refused` is
/// `true`, the hits that a policy would admit were not charged. `cached` contains the indices of
/// the descriptors that the cache of denials refused.
pub(super) fn tallies(
    planned: Vec<Planned>,
    answers: &[Option<Answer>],
    is_refused: bool,
    cached: &[usize],
    ratio: NearLimitRatio,
) -> Vec<Tally> {
    let mut tallies = Vec::new();
    let answers = answers.iter().enumerate();
    for (Planned { target, hits, is_refund }, (index, answer)) in planned.into_iter().zip(answers) {
        let (Target::Limited(limited), Some(answer), false) = (target, answer, is_refund) else {
            continue;
        };
        let (limit, is_shadow) = (limit_of(&limited), limited.is_shadow);
        let is_over = is_over(is_refund, &limited, *answer);
        let is_allowed = limited.is_allowed();
        let usage = match answer {
            Answer::Counted(count) => Some(Usage { used: count.after, limit }),
            Answer::Policy(verdict) | Answer::Used(verdict) | Answer::Slots(verdict) => {
                Usage::new(verdict)
            }
        };
        let context = Of {
            key: limited.stat_key,
            limit_key: Arc::clone(&limited.limit.stat_key),
            subject: limited.subject,
        };
        let (before, after) = match answer {
            // Hits that a list allows are not over the limit.
            Answer::Counted(Count { before, after, .. }) if is_allowed => {
                ((*before).min(limit), (*after).min(limit))
            }
            Answer::Counted(Count { before, after, .. }) => (*before, *after),
            Answer::Policy(verdict) | Answer::Slots(verdict) if is_over => {
                let over_in_cache = if cached.contains(&index) { hits } else { 0 };
                let refusal = Some(*verdict);
                let refused = Tally::refused(context, hits, is_shadow);
                tallies.push(Tally { over_in_cache, refusal, usage, ..refused });
                continue;
            }
            Answer::Policy(verdict) | Answer::Slots(verdict)
                if is_refused || is_skipped(verdict) =>
            {
                tallies.push(Tally { usage, ..Tally::empty(context, hits) });
                continue;
            }
            Answer::Policy(verdict) | Answer::Used(verdict) | Answer::Slots(verdict) => {
                let after = limit.saturating_sub(verdict.remaining());
                (after.saturating_sub(hits), after)
            }
        };
        let tally = Tally::new(context, limit, before..after, hits, is_shadow, ratio);
        let over_in_cache = if cached.contains(&index) { tally.over } else { 0 };
        tallies.push(Tally { over_in_cache, usage, ..tally });
    }
    tallies
}
