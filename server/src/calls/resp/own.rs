//! Tidegate's own commands.

use std::iter::repeat;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{Decision, Error, ErrorKind, Verdict};

use super::arguments::{
    ArgumentError, integer, milliseconds, number, seconds, shown, text, whole_milliseconds,
};
use super::frame::Arguments;
use super::reply::Reply;
use crate::calls::{CallOptions, CallRequest, Calls, ChargeRequest, OptionError, Verb};

/// A charge of a command. Its cost may be missing.
struct Part {
    charge: ChargeRequest,
    cost: Option<u64>,
    has_tenant: bool,
}

/// Returns the options that a command with this verb accepts.
fn options_of(verb: Verb) -> &'static [&'static str] {
    match verb {
        Verb::Acquire => &["AND", "OR", "TENANT", "COST", "CHECK", "MIN", "ID", "EX", "PX"],
        Verb::Hold => {
            &["AND", "OR", "TENANT", "COST", "CHECK", "MIN", "ID", "EX", "PX", "PLACE", "BOUND"]
        }
        Verb::Peek => &["AND", "OR", "TENANT", "COST", "CHECK"],
        Verb::Charge | Verb::Refund => &["AND", "TENANT", "COST", "ID", "EX", "PX"],
        Verb::Grant => &["AND", "TENANT", "COST", "ID", "EX", "PX", "UNTIL"],
        Verb::Block => &["AND", "TENANT", "EX", "PX", "ATLEAST"],
        Verb::Settle => &["AND", "OR", "TENANT", "COST", "CHECK", "ID", "SOFAR"],
        Verb::Cancel => &["AND", "OR", "TENANT", "COST", "CHECK", "ID"],
        Verb::Extend => &["AND", "OR", "TENANT", "COST", "CHECK", "ID", "EX", "PX"],
        Verb::Ban => &["AND", "TENANT", "EX", "PX", "REASON"],
        Verb::Unban | Verb::Reset => &["AND", "TENANT"],
        Verb::Leave => &["AND", "TENANT", "COST", "CHECK", "PLACE"],
    }
}

/// Parses a command `… key policy [options] [AND | OR key policy [options]]…` into a call.
/// After `OR`, the charge is an alternative to the charge before it.
pub(super) fn request(
    verb: Verb,
    arguments: &Arguments,
    calls: &Calls,
) -> Result<CallRequest, Error> {
    let invalid = |message: ArgumentError| Error::new(ErrorKind::InvalidCall, message);
    let mut rest = arguments.get(1..).unwrap_or_default();
    let mut options = CallOptions::default();
    let mut parts = Vec::new();
    let mut is_alternative = false;
    loop {
        let [key, policy, after @ ..] = rest else {
            return Err(invalid("each charge must have a key and a policy".to_owned()));
        };
        let policy = text("the policy", policy).map_err(|message| {
            calls.unreadable("a policy is not UTF-8");
            invalid(message)
        })?;
        let policy = calls.policies().parse(policy)?;
        let mut charge = ChargeRequest::new(policy, key.clone());
        charge.is_alternative = is_alternative;
        let mut part = Part { charge, cost: None, has_tenant: false };
        rest = read_options(verb, after, &mut part, &mut options).map_err(invalid)?;
        parts.push(part);
        match rest {
            [] => break,
            [word, after @ ..] => {
                is_alternative = word.eq_ignore_ascii_case(b"OR");
                rest = after;
            }
        }
    }
    let charges = parts.into_iter().map(|part| (part.charge, part.cost));
    verb.call(charges, options).map_err(|option| invalid(missing(option)))
}

/// Reads the options of one charge. Returns the arguments after the options: none, or a list that
/// begins with `AND` or `OR`.
fn read_options<'a>(
    verb: Verb,
    mut rest: &'a [Bytes],
    part: &mut Part,
    options: &mut CallOptions,
) -> Result<&'a [Bytes], ArgumentError> {
    while let [name, after @ ..] = rest {
        let known =
            options_of(verb).iter().find(|option| option.as_bytes().eq_ignore_ascii_case(name));
        let Some(option) = known else {
            let known = options_of(verb).join(", ");
            return Err(format!(
                "there is no option '{}'; the known options are {known}",
                shown(name)
            ));
        };
        let (is_new, is_flag) = match *option {
            "AND" | "OR" => return Ok(rest),
            "CHECK" => (!std::mem::replace(&mut part.charge.is_check_only, true), true),
            "ATLEAST" => (!std::mem::replace(&mut options.is_at_least, true), true),
            "SOFAR" => (!std::mem::replace(&mut options.is_so_far, true), true),
            "BOUND" => (!std::mem::replace(&mut options.is_bound, true), true),
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
            "UNTIL" => {
                let is_new = options.ends_at.is_none();
                options.set_ends_at_millis(number(option, value, 0)?);
                is_new
            }
            "MIN" => options.min.replace(number(option, value, 1)?).is_none(),
            "PLACE" => options.place.replace(number(option, value, 0)?).is_none(),
            "REASON" => options.reason.replace(text("REASON", value)?.to_owned()).is_none(),
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

fn missing(option: OptionError) -> ArgumentError {
    let what = match option {
        OptionError::PlaceWithMinimum => return "PLACE cannot be combined with MIN".to_owned(),
        OptionError::Place => "PLACE, the place to give up,",
        OptionError::BlockSpan => "EX or PX, the time of the block,",
        OptionError::BanSpan => "EX or PX, the time of the ban,",
        OptionError::Reason => "REASON, the reason of the ban,",
        OptionError::Cost => "COST, the actual usage of each charge without CHECK,",
        OptionError::Id => "ID",
        OptionError::IdOfTimeToLive => "ID, to which EX or PX applies,",
        OptionError::TimeToLive => "EX or PX, the time to live of ID,",
    };
    format!("{what} is missing")
}

/// Returns the reply to a call: 1 if the call was admitted and 0 if not, the milliseconds until a
/// retry can succeed, a list for each charge, and a list for the place of a call that waits.
pub(super) fn reply(request: &CallRequest, decision: &Decision) -> Reply {
    let is_admitted = request.is_admitted(decision);
    let retry = if is_admitted { 0 } else { wait(decision.retry_after()) };
    let mut replies = vec![Reply::Integer(i64::from(is_admitted)), Reply::Integer(retry)];
    let charges = decision.verdicts().iter().zip(request.amounts(decision));
    let unspent = decision.unspent().iter().copied().chain(repeat(None));
    let fences = decision.fences().iter().copied().chain(repeat(None));
    let charges = charges.zip(unspent.zip(fences)).enumerate();
    replies.extend(charges.map(|(index, ((verdict, amount), (unspent, fence)))| {
        let out_of_reach = decision.is_out_of_reach(index).then_some(1);
        let number = unspent.or(fence).or(out_of_reach).map(integer);
        let lapse = verdict.earliest_lapse().map(|lapse| whole_milliseconds(lapse.after()));
        charge(verdict, amount, number.or(lapse))
    }));
    replies.extend(decision.place().map(|place| {
        let numbers =
            [place.number, place.ahead.into()].map(|number| Reply::Integer(integer(number)));
        Reply::List([Reply::text("place")].into_iter().chain(numbers).collect())
    }));
    Reply::List(replies)
}

/// Returns the list for one charge. `last` is an additional element: the unspent amount after a
/// peek, the fence of a hold with slots, the milliseconds until the earliest lapse of slots that
/// deny the charge, or 1 if a settlement did not find its hold in a log. If the subject has
/// offenses, the level of the block follows, and `last` is 0 if it has no other value. If the
/// policy warns, the last element is the text `warns`.
fn charge(verdict: &Verdict, amount: u64, last: Option<i64>) -> Reply {
    let mut elements = vec![
        Reply::text(verdict.outcome().as_str()),
        Reply::Integer(integer(verdict.limit())),
        Reply::Integer(integer(verdict.remaining())),
        Reply::Integer(wait(verdict.retry_after())),
        Reply::Integer(whole_milliseconds(verdict.reset_after())),
        Reply::Integer(integer(amount)),
    ];
    let level = i64::from(verdict.block_level());
    elements.extend(last.or((level > 0).then_some(0)).map(Reply::Integer));
    elements.extend((level > 0).then_some(Reply::Integer(level)));
    elements.extend(verdict.warns().then_some(Reply::text("warns")));
    Reply::List(elements)
}

/// Returns a wait in milliseconds, or -1 if waiting does not help.
fn wait(span: Option<Duration>) -> i64 {
    span.map_or(-1, whole_milliseconds)
}
