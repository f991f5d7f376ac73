//! Formats calls and answers as short text, for failure messages.

use std::fmt::{self, Write};

use tidegate_core::{Call, Charge, Decision, Operation, Timestamp, Verdict};

const MAX_SUBJECT: usize = 24;

/// The maximum number of parts (such as steps) of a scenario that a message shows.
const MAX_PARTS: usize = 40;

/// The maximum number of bytes that a message shows of a scenario.
const MAX_SCENARIO: usize = 6_000;

const MAX_CHARGES: usize = 4;

/// Formats bytes as text if they are short and printable. Otherwise formats the first bytes as
/// hexadecimal digits.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(|byte| (b' '..=b'~').contains(byte) && !b"\"\\".contains(byte));
    if is_text && bytes.len() <= MAX_SUBJECT {
        return format!("\"{}\"", String::from_utf8_lossy(bytes));
    }
    let unit = if bytes.len() == 1 { "byte" } else { "bytes" };
    let mut text = format!("{} {unit}:", bytes.len());
    for byte in bytes.iter().take(MAX_SUBJECT) {
        let _ = write!(text, " {byte:02x}");
    }
    text + if bytes.len() > MAX_SUBJECT { " …" } else { "" }
}

/// Formats a charge, for example as `` `p: gcra 5/1s burst 5`, subject "alice", cost 2 ``.
pub(crate) fn charge(charge: &Charge<'_>) -> String {
    let mut text = format!("`{}`, ", charge.policy);
    if !charge.tenant.is_empty() {
        let _ = write!(text, "tenant {}, ", bytes(charge.tenant));
    }
    let _ = write!(text, "subject {}, cost {}", bytes(charge.subject), charge.cost);
    let text = if charge.list > 0 { format!("{text}, list {}", charge.list) } else { text };
    text + if charge.is_check_only { ", check only" } else { "" }
}

/// Formats a call, for example as `acquire (…) and (…)`, with a charge in each pair of brackets.
pub(crate) fn call(call: &Call<'_>) -> String {
    let operation = match call.operation {
        Operation::Acquire => "acquire".to_owned(),
        Operation::Peek => "peek".to_owned(),
        Operation::Refund => "refund".to_owned(),
        Operation::Undo { at } => format!("undo of the charge of {at:?}"),
        Operation::Reserve { max_wait } => format!("reserve within {max_wait:?}"),
        Operation::AcquireUpTo { min } => format!("acquire up to the cost, at least {min},"),
        Operation::Charge => "charge beyond the limit".to_owned(),
        Operation::Reset => "reset".to_owned(),
        Operation::Block { span } => format!("block for {span:?}"),
        Operation::BlockAtLeast { span } => format!("block for at least {span:?}"),
        Operation::Hold => "hold".to_owned(),
        Operation::HoldUpTo { min } => format!("hold up to the cost, at least {min},"),
        Operation::HoldInTurn { place } => format!("hold in turn, with the place {place},"),
        Operation::Leave { place } => format!("leave the place {place} of"),
        Operation::Settle => "settle".to_owned(),
        Operation::SettleSoFar => "settle so far".to_owned(),
        Operation::Extend => "extend".to_owned(),
        other => format!("{other:?}"),
    };
    let mut charges: Vec<_> = call
        .charges
        .iter()
        .take(MAX_CHARGES)
        .map(|shown| format!("({})", charge(&shown)))
        .collect();
    match call.charges.len() {
        0 => return format!("{operation} without charges"),
        more @ 5.. => charges.push(format!("… {more} charges in total")),
        _ => {}
    }
    if let Some(id) = call.id {
        return format!("{operation} {} with id {}", charges.join(" and "), bytes(id.id));
    }
    format!("{operation} {}", charges.join(" and "))
}

pub(crate) fn verdict(verdict: &Verdict) -> String {
    let mut text = format!("{:?}", verdict.outcome()).to_lowercase();
    let _ = write!(text, ", remaining {} of {}", verdict.remaining(), verdict.limit());
    let _ = match verdict.retry_after() {
        Some(wait) => write!(text, ", retry after {wait:?}"),
        None => write!(text, ", retry never"),
    };
    let _ = write!(text, ", reset after {:?}", verdict.reset_after());
    if !verdict.blocked_for().is_zero() {
        let _ = write!(text, ", blocked for {:?}", verdict.blocked_for());
    }
    if verdict.block_level() > 0 {
        let _ = write!(text, ", level {}", verdict.block_level());
    }
    text += if verdict.warns() { ", warns" } else { "" };
    text + if verdict.is_shadow() { ", shadow" } else { "" }
}

pub(crate) fn answer(answer: &Result<Decision, impl fmt::Display>) -> String {
    let decision = match answer {
        Ok(decision) => decision,
        Err(error) => return format!("error: {error}"),
    };
    let mut verdicts: Vec<_> = decision.verdicts().iter().take(MAX_CHARGES).map(verdict).collect();
    if decision.verdicts().len() > MAX_CHARGES {
        verdicts.push("…".to_owned());
    }
    let wait = match decision.wait() {
        wait if wait.is_zero() => String::new(),
        wait => format!(" after a wait of {wait:?}"),
    };
    let outcome = if decision.is_allowed() { "allowed" } else { "refused" };
    let amounts = match decision.amounts() {
        [] => String::new(),
        amounts => format!(", amounts {amounts:?}"),
    };
    let unspent = match decision.unspent() {
        [] => String::new(),
        unspent => format!(", unspent {unspent:?}"),
    };
    format!("{outcome}{wait} ({}){amounts}{unspent}", verdicts.join("; "))
}

/// Formats a call as one line, with the time and the answer of the call.
pub(crate) fn answered_call(
    now: Timestamp,
    call: &Call<'_>,
    answer: &Result<Decision, impl fmt::Display>,
) -> String {
    cut(&format!("at {now:?}: {} -> {}", self::call(call), self::answer(answer)), 1, 700)
}

/// Formats a list of parts so that it fits on a screen: as one line, or with `{:#?}` as one line
/// per part.
pub(crate) fn list(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    parts: impl Iterator<Item = String>,
) -> fmt::Result {
    let separator = if f.alternate() { "\n    " } else { "; " };
    let mut text = name.to_owned();
    for (place, part) in parts.enumerate() {
        if place == MAX_PARTS || text.len() + part.len() > MAX_SCENARIO {
            text.push_str(separator);
            text.push('…');
            break;
        }
        text.push_str(if place == 0 && !f.alternate() { ": " } else { separator });
        text.push_str(&part);
    }
    f.write_str(&text)
}

/// Shortens a text to at most `max_lines` lines and `max_bytes` bytes, and adds the number of
/// omitted bytes.
pub(crate) fn cut(text: &str, max_lines: usize, max_bytes: usize) -> String {
    let mut end =
        text.match_indices('\n').nth(max_lines - 1).map_or(text.len(), |(place, _)| place);
    if end > max_bytes {
        end = (0..=max_bytes).rev().find(|&place| text.is_char_boundary(place)).unwrap_or(0);
    }
    match text.len() - end {
        0 => text.to_owned(),
        rest => format!("{} … ({rest} bytes more)", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_or_digits_and_never_long() {
        assert_eq!(bytes(b"alice"), "\"alice\"");
        assert_eq!(bytes(b""), "\"\"");
        assert_eq!(bytes(b"\0\xff"), "2 bytes: 00 ff");
        let long = bytes(&vec![b'a'; 1 << 20]);
        assert!(long.starts_with("1048576 bytes: 61 61 ") && long.ends_with('…'), "{long}");
        assert!(long.len() < 120, "{long}");
    }

    #[test]
    fn texts_are_cut_by_lines_and_by_bytes() {
        assert_eq!(cut("a\nb", 2, 10), "a\nb");
        assert_eq!(cut("a\nb\nc", 2, 10), "a\nb … (2 bytes more)");
        assert_eq!(cut("ééé", 1, 3), "é … (4 bytes more)");
    }
}
