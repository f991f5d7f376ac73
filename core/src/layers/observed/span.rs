//! A tracing span for each call. The fields of the span contain data of the configuration and of
//! the answer, and never a subject or a tenant. Only the kind of an error is reported, because its
//! message possibly quotes a key.

use std::fmt;

use tracing::field::{Empty, debug};
use tracing::{Span, debug_span};

use super::calls::Calls;
use crate::{Call, Decision, Error};

/// Creates the span of a call or a batch. The span costs nothing unless a subscriber records it.
pub(super) fn new(calls: Calls<'_>) -> Span {
    match calls {
        Calls::One(call) => debug_span!(
            target: "tidegate",
            "tidegate.decide",
            operation = call.operation.name(),
            policies = %Names(call),
            outcome = Empty,
            retry_after = Empty,
            wait = Empty,
            degraded = Empty,
            reason = Empty,
            error = Empty,
        ),
        Calls::Batch(calls) => debug_span!(
            target: "tidegate",
            "tidegate.decide_many",
            calls = calls.len(),
            allowed = Empty,
            denied = Empty,
            failed = Empty,
            degraded = Empty,
        ),
    }
}

pub(super) fn record(span: &Span, calls: Calls<'_>, answers: &[Result<Decision, Error>]) {
    if span.is_disabled() {
        return;
    }
    match (calls, answers) {
        (Calls::One(_), [answer]) => record_one(span, answer),
        _ => record_many(span, answers),
    }
}

fn record_one(span: &Span, answer: &Result<Decision, Error>) {
    let decision = match answer {
        Ok(decision) => decision,
        Err(error) => {
            span.record("outcome", "failed");
            span.record("error", error.kind().as_str());
            return;
        }
    };
    span.record("outcome", if decision.is_allowed() { "allowed" } else { "denied" });
    if decision.is_denied() {
        match decision.retry_after() {
            Some(wait) => span.record("retry_after", debug(wait)),
            None => span.record("retry_after", "never"),
        };
    }
    if !decision.wait().is_zero() {
        span.record("wait", debug(decision.wait()));
    }
    if let Some(degraded) = decision.degraded() {
        span.record("degraded", degraded.answer.as_str());
        span.record("reason", degraded.reason.as_str());
    }
}

fn record_many(span: &Span, answers: &[Result<Decision, Error>]) {
    let count = |is: fn(&Decision) -> bool| {
        answers.iter().filter(|answer| answer.as_ref().is_ok_and(is)).count()
    };
    span.record("allowed", count(Decision::is_allowed));
    span.record("denied", count(Decision::is_denied));
    span.record("failed", answers.iter().filter(|answer| answer.is_err()).count());
    span.record("degraded", count(|decision| decision.degraded().is_some()));
}

struct Names<'a>(Call<'a>);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, charge) in self.0.charges.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}", charge.policy.name())?;
        }
        Ok(())
    }
}
