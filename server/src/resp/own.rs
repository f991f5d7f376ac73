//! Tidegate's own commands.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{Decision, Error, ErrorKind, Operation, Verdict};

use super::arguments::{
    ArgumentError, integer, milliseconds, number, seconds, shown, text, whole_milliseconds,
};
use super::frame::Arguments;
use super::reply::Reply;
use crate::calls::{CallRequest, Calls, ChargeRequest};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire,
    Peek,
    Charge,
    Refund,
    Block,
    Reset,
    Hold,
    Settle,
    Cancel,
    Extend,
}

/// The options of a command that hold for all its charges.
#[derive(Debug, Default)]
struct Options {
    min: Option<u64>,
    id: Option<Bytes>,
    span: Option<Duration>,
    is_at_least: bool,
    is_so_far: bool,
}

/// A charge, of which the cost may be missing.
struct Part {
    charge: ChargeRequest,
    cost: Option<u64>,
    has_tenant: bool,
}

impl Verb {
    /// The options that the command has.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Acquire => &["AND", "TENANT", "COST", "CHECK", "MIN", "ID", "EX", "PX"],
            Self::Hold => &["AND", "TENANT", "COST", "CHECK", "MIN", "ID", "EX", "PX"],
            Self::Peek => &["AND", "TENANT", "COST", "CHECK"],
            Self::Charge | Self::Refund => &["AND", "TENANT", "COST", "ID", "EX", "PX"],
            Self::Block => &["AND", "TENANT", "EX", "PX", "ATLEAST"],
            Self::Reset => &["AND", "TENANT"],
            Self::Settle => &["AND", "TENANT", "COST", "CHECK", "ID", "SOFAR"],
            Self::Cancel => &["AND", "TENANT", "CHECK", "ID"],
            Self::Extend => &["AND", "TENANT", "CHECK", "ID", "EX", "PX"],
        }
    }
}

/// The call of `… key policy [options] [AND key policy [options]]…`.
pub(super) fn request(
    verb: Verb,
    arguments: &Arguments,
    calls: &Calls,
) -> Result<CallRequest, Error> {
    let invalid = |message: ArgumentError| Error::new(ErrorKind::InvalidCall, message);
    let mut rest = arguments.get(1..).unwrap_or_default();
    let mut options = Options::default();
    let mut parts = Vec::new();
    loop {
        let [key, policy, after @ ..] = rest else {
            return Err(invalid("each charge has a key and a policy".to_owned()));
        };
        let policy = calls.policies().parse(text("the policy", policy).map_err(invalid)?)?;
        let charge = ChargeRequest::new(policy, key.clone());
        let mut part = Part { charge, cost: None, has_tenant: false };
        rest = read_options(verb, after, &mut part, &mut options).map_err(invalid)?;
        parts.push(part);
        match rest {
            [] => break,
            [_, after @ ..] => rest = after,
        }
    }
    build(verb, parts, options).map_err(invalid)
}

/// Reads the options of a charge, and returns what follows: nothing, or `AND`.
fn read_options<'a>(
    verb: Verb,
    mut rest: &'a [Bytes],
    part: &mut Part,
    options: &mut Options,
) -> Result<&'a [Bytes], ArgumentError> {
    while let [name, after @ ..] = rest {
        let known = verb.options().iter().find(|it| it.as_bytes().eq_ignore_ascii_case(name));
        let Some(option) = known else {
            let known = verb.options().join(", ");
            return Err(format!("there is no option '{}', but {known}", shown(name)));
        };
        let (is_new, is_flag) = match *option {
            "AND" => return Ok(rest),
            "CHECK" => (!std::mem::replace(&mut part.charge.is_check_only, true), true),
            "ATLEAST" => (!std::mem::replace(&mut options.is_at_least, true), true),
            "SOFAR" => (!std::mem::replace(&mut options.is_so_far, true), true),
            _ => (true, false),
        };
        let twice = || format!("{option} is given twice");
        if is_flag {
            rest = after;
            if !is_new {
                return Err(twice());
            }
            continue;
        }
        let [value, after @ ..] = after else {
            return Err(format!("{option} has no value"));
        };
        let is_new = match *option {
            "COST" => part.cost.replace(number(option, value, 0)?).is_none(),
            "TENANT" => {
                part.charge.tenant = value.clone();
                !std::mem::replace(&mut part.has_tenant, true)
            }
            "MIN" => options.min.replace(number(option, value, 1)?).is_none(),
            "ID" => options.id.replace(value.clone()).is_none(),
            "EX" => options.span.replace(seconds(option, value)?).is_none(),
            _ => options.span.replace(milliseconds(option, value)?).is_none(),
        };
        if !is_new {
            return Err(twice());
        }
        rest = after;
    }
    Ok(rest)
}

fn build(verb: Verb, parts: Vec<Part>, options: Options) -> Result<CallRequest, ArgumentError> {
    let Options { min, id, span, is_at_least, is_so_far } = options;
    let needed = |what: &str| format!("{what} is missing");
    let operation = match verb {
        Verb::Acquire => min.map_or(Operation::Acquire, |min| Operation::AcquireUpTo { min }),
        Verb::Hold => min.map_or(Operation::Hold, |min| Operation::HoldUpTo { min }),
        Verb::Peek => Operation::Peek,
        Verb::Charge => Operation::Charge,
        Verb::Refund => Operation::Refund,
        Verb::Reset => Operation::Reset,
        Verb::Block => {
            let span = span.ok_or_else(|| needed("EX or PX, the time of the block,"))?;
            if is_at_least { Operation::BlockAtLeast { span } } else { Operation::Block { span } }
        }
        Verb::Settle if is_so_far => Operation::SettleSoFar,
        Verb::Settle | Verb::Cancel => Operation::Settle,
        Verb::Extend => Operation::Extend,
    };
    if verb == Verb::Settle && parts.iter().any(|it| it.cost.is_none()) {
        return Err(needed("COST, what was used,"));
    }
    let default_cost = if verb == Verb::Cancel { 0 } else { 1 };
    let charges = parts.into_iter().map(|it| {
        let mut charge = it.charge;
        charge.cost = it.cost.unwrap_or(default_cost);
        charge
    });
    let request = CallRequest::new(operation, charges);
    match (verb, id, span) {
        (Verb::Block, ..) | (_, None, None) if !operation.is_of_hold() => Ok(request),
        (_, None, None) => Err(needed("ID")),
        (_, None, Some(_)) => Err(needed("ID, which EX or PX is the time to live of,")),
        // No use is made of the time to live.
        (Verb::Settle | Verb::Cancel, Some(id), _) => {
            Ok(request.with_id(id, Duration::from_secs(1)))
        }
        (_, Some(_), None) => Err(needed("EX or PX, the time to live of ID,")),
        (_, Some(id), Some(span)) => Ok(request.with_id(id, span)),
    }
}

/// Whether the call was carried out; the milliseconds until it is admitted; and a list for each charge.
pub(super) fn reply(request: &CallRequest, decision: &Decision) -> Reply {
    let is_admitted = request.is_admitted(decision);
    let retry = if is_admitted { 0 } else { wait(decision.retry_after()) };
    let mut replies = vec![Reply::Integer(i64::from(is_admitted)), Reply::Integer(retry)];
    let charges = decision.verdicts().iter().zip(request.amounts(decision));
    replies.extend(charges.map(|(verdict, amount)| charge(verdict, amount)));
    Reply::List(replies)
}

fn charge(verdict: &Verdict, amount: u64) -> Reply {
    Reply::List(vec![
        Reply::text(verdict.outcome().as_str()),
        Reply::Integer(integer(verdict.limit())),
        Reply::Integer(integer(verdict.remaining())),
        Reply::Integer(wait(verdict.retry_after())),
        Reply::Integer(whole_milliseconds(verdict.reset_after())),
        Reply::Integer(integer(amount)),
    ])
}

/// -1 for never.
fn wait(span: Option<Duration>) -> i64 {
    span.map_or(-1, whole_milliseconds)
}
