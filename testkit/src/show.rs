//! Calls and answers as short text, for the messages of failures.

use std::fmt::{self, Write};

use tidegate_core::{Call, Charge, Decision, Operation, Timestamp, Verdict};

/// How many bytes of a subject are shown.
const SHOWN: usize = 24;

/// The maximum number of parts of a scenario that are shown.
const PARTS: usize = 40;

/// The maximum number of bytes of a scenario that are shown.
const SCENARIO: usize = 6_000;

/// How many charges of a call are shown.
const CHARGES: usize = 4;

/// Bytes as text if they are short and printable, else as hexadecimal digits, cut.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(|byte| (b' '..=b'~').contains(byte) && !b"\"\\".contains(byte));
    if is_text && bytes.len() <= SHOWN {
        return format!("\"{}\"", String::from_utf8_lossy(bytes));
    }
    let mut text = format!("{} bytes:", bytes.len());
    for byte in bytes.iter().take(SHOWN) {
        let _ = write!(text, " {byte:02x}");
    }
    text + if bytes.len() > SHOWN { " …" } else { "" }
}

/// `` `p: gcra 5/1s burst 5`, subject "alice", cost 2 ``.
pub(crate) fn charge(charge: &Charge<'_>) -> String {
    let mut text = format!("`{}`, ", charge.policy);
    if !charge.tenant.is_empty() {
        let _ = write!(text, "tenant {}, ", bytes(charge.tenant));
    }
    let _ = write!(text, "subject {}, cost {}", bytes(charge.subject), charge.cost);
    text + if charge.is_check_only { ", check only" } else { "" }
}

/// A call in words: `acquire of …`.
pub(crate) fn call(call: &Call<'_>) -> String {
    let operation = match call.operation {
        Operation::Acquire => "acquire".to_owned(),
        Operation::Peek => "peek".to_owned(),
        Operation::Refund => "refund".to_owned(),
        Operation::Undo { at } => format!("undo of what was taken at {at:?}"),
        Operation::Reserve { max_wait } => format!("reserve within {max_wait:?}"),
        Operation::AcquireUpTo { min } => format!("acquire of up to the cost, at least {min},"),
        Operation::Charge => "charge beyond the limit".to_owned(),
        Operation::Reset => "reset".to_owned(),
        Operation::Block { span } => format!("block for {span:?}"),
        Operation::BlockAtLeast { span } => format!("block for at least {span:?}"),
        other => format!("{other:?}"),
    };
    let mut charges: Vec<_> =
        call.charges.iter().take(CHARGES).map(|of| format!("({})", charge(&of))).collect();
    match call.charges.len() {
        0 => return format!("{operation} without charges"),
        more @ 5.. => charges.push(format!("… {more} charges in all")),
        _ => {}
    }
    if let Some(id) = call.id {
        return format!("{operation} {} once, id {}", charges.join(" and "), bytes(id.id));
    }
    format!("{operation} {}", charges.join(" and "))
}

/// What one policy answers.
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
    text + if verdict.is_shadow() { ", shadow" } else { "" }
}

/// An answer in words.
pub(crate) fn answer(answer: &Result<Decision, impl fmt::Display>) -> String {
    let decision = match answer {
        Ok(decision) => decision,
        Err(error) => return format!("error {error}"),
    };
    let mut verdicts: Vec<_> = decision.verdicts().iter().take(CHARGES).map(verdict).collect();
    if decision.verdicts().len() > CHARGES {
        verdicts.push("…".to_owned());
    }
    let wait = match decision.wait() {
        wait if wait.is_zero() => String::new(),
        wait => format!(" in {wait:?}"),
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

/// A call that was made, with its time and its answer: one line.
pub(crate) fn made(
    now: Timestamp,
    of: &Call<'_>,
    given: &Result<Decision, impl fmt::Display>,
) -> String {
    cut(&format!("at {now:?}: {} -> {}", call(of), answer(given)), 1, 700)
}

/// Prints a list of parts that fits on a screen: on one line, or with `{:#?}` on a line each.
pub(crate) fn list(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    parts: impl Iterator<Item = String>,
) -> fmt::Result {
    let separator = if f.alternate() { "\n    " } else { "; " };
    let mut text = name.to_owned();
    for (place, part) in parts.enumerate() {
        if place == PARTS || text.len() + part.len() > SCENARIO {
            text.push_str(separator);
            text.push('…');
            break;
        }
        text.push_str(if place == 0 && !f.alternate() { ": " } else { separator });
        text.push_str(&part);
    }
    f.write_str(&text)
}

/// At most so many lines and bytes of a text, with a note of what is left out.
pub(crate) fn cut(text: &str, lines: usize, most: usize) -> String {
    let mut end = text.match_indices('\n').nth(lines - 1).map_or(text.len(), |(place, _)| place);
    if end > most {
        end = (0..=most).rev().find(|&place| text.is_char_boundary(place)).unwrap_or(0);
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
