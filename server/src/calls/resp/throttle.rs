//! The commands `CL.THROTTLE` of redis-cell and `THROTTLE` of throttlecrab.

use tidegate_core::{Decision, Error, ErrorKind, Operation};

use super::arguments::{integer, number, whole_seconds};
use super::frame::Arguments;
use super::reply::Reply;
use crate::calls::{CallRequest, Calls, ChargeRequest};

/// The program whose command the server imitates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    RedisCell,
    Throttlecrab,
}

/// Parses a command `… key max_burst count period [quantity]` into a call.
pub(super) fn request(
    style: Style,
    arguments: &Arguments,
    calls: &Calls,
) -> Result<CallRequest, Error> {
    let (key, max_burst, count, period, quantity) = match arguments.as_slice() {
        [_, key, max_burst, count, period] => (key, max_burst, count, period, None),
        [_, key, max_burst, count, period, quantity] => {
            (key, max_burst, count, period, Some(quantity))
        }
        _ => return Err(invalid(usage(style))),
    };
    let min_burst = match style {
        Style::RedisCell => 0,
        Style::Throttlecrab => 1,
    };
    let max_burst = number("max_burst", max_burst, min_burst).map_err(invalid)?;
    let count = number("count per period", count, 1).map_err(invalid)?;
    let period = number("period", period, 1).map_err(invalid)?;
    let quantity =
        quantity.map(|quantity| number("quantity", quantity, 0)).transpose().map_err(invalid)?;
    let capacity = match style {
        // In redis-cell, a full bucket admits `max_burst + 1` requests.
        Style::RedisCell => max_burst + 1,
        Style::Throttlecrab => max_burst,
    };
    let policy = calls.policies().bucket(capacity, count, period)?;
    let mut charge = ChargeRequest::new(policy, key.clone());
    charge.cost = quantity.unwrap_or(1);
    Ok(CallRequest::new(Operation::Acquire, [charge]))
}

fn usage(style: Style) -> String {
    let name = match style {
        Style::RedisCell => "cl.throttle",
        Style::Throttlecrab => "throttle",
    };
    format!("Usage: {name} <key> <max_burst> <count per period> <period> [<quantity>]")
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}

pub(super) fn reply(style: Style, decision: &Decision) -> Reply {
    let Some(verdict) = decision.verdicts().first() else {
        return Reply::from_error(&Error::new(
            ErrorKind::Protocol,
            "the store returned no verdict",
        ));
    };
    let is_limited = decision.is_denied();
    let (limit, remaining) = (integer(verdict.limit()), integer(verdict.remaining()));
    let reset = whole_seconds(verdict.reset_after());
    // `-1` means that the quantity exceeds the limit, so that waiting does not help.
    let retry = verdict.retry_after().map_or(-1, |wait| whole_seconds(wait).max(1));
    Reply::Integers(match style {
        Style::RedisCell => {
            let retry = if is_limited { retry } else { -1 };
            [i64::from(is_limited), limit, remaining, retry, reset]
        }
        Style::Throttlecrab => {
            let retry = if is_limited { retry } else { 0 };
            [i64::from(!is_limited), limit, remaining, reset, retry]
        }
    })
}
