//! Sends bytes to the RESP port. Each command must have one reply, regardless of the parts in which
//! the bytes arrive.

use std::sync::Arc;

use tidegate_server::calls::Calls;
use tidegate_server::calls::resp::serve_stream;
use tidegate_server::calls::resp::{
    MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_COMMAND_BYTES, RespSettings,
};

use super::{exchange, in_virtual_time, store};

/// Sends bytes in one part and in several parts, and compares the answers.
pub(crate) fn check(bytes: &[u8], part: usize) {
    let answer = answer_to(bytes, bytes.len(), 1 << 20);
    let replies = replies(&answer);
    let (commands, is_broken) = commands(bytes);
    let expected = commands.len() + usize::from(is_broken);
    if replies != expected {
        let last = replies.checked_sub(1).and_then(|last| commands.get(last));
        let name = last.map(|last| last[0].to_ascii_lowercase());
        let ends = [&b"quit"[..], b"post", b"host:"];
        assert!(
            name.is_some_and(|name| ends.contains(&&*name)),
            "{replies} replies to {expected} commands: {}",
            answer.escape_ascii()
        );
    }
    // Two runs of the same commands can differ: the shard of a policy with shards is random, and
    // `INFO` replies with the time.
    let lower = bytes.to_ascii_lowercase();
    if ["shard", "info"].iter().all(|word| !has(&lower, word.as_bytes())) {
        let in_parts = answer_to(bytes, part, part.max(1));
        assert_eq!(in_parts.escape_ascii().to_string(), answer.escape_ascii().to_string());
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn answer_to(bytes: &[u8], part: usize, buffer: usize) -> Vec<u8> {
    in_virtual_time(async {
        let calls = Arc::new(Calls::new(store()));
        let (client, server) = tokio::io::duplex(buffer);
        let served = tokio::spawn(serve_stream(server, calls, RespSettings::default()));
        let answer = exchange(client, bytes, part, true).await;
        let _ = served.await.unwrap();
        answer
    })
}

/// Returns the number of replies. Panics if `bytes` ends within a reply.
fn replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        bytes = after_reply(bytes);
        count += 1;
    }
    count
}

fn after_reply(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(2).position(|window| window == b"\r\n").unwrap();
    let (line, mut rest) = (&bytes[1..end], &bytes[end + 2..]);
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    let number = || std::str::from_utf8(line).unwrap().parse::<i64>().unwrap();
    let mut elements = 0;
    match bytes[0] {
        b'+' | b'-' => {}
        b':' => {
            number();
        }
        b'_' => assert!(line.is_empty()),
        b'$' if number() == -1 => {}
        b'$' => {
            let (text, end) = rest.split_at(usize::try_from(number()).unwrap());
            rest = end.strip_prefix(b"\r\n").unwrap_or_else(|| panic!("{}", text.escape_ascii()));
        }
        b'*' => elements = number(),
        b'%' => elements = number() * 2,
        other => panic!("a reply begins with {}", other.escape_ascii()),
    }
    assert!(elements >= 0);
    for _ in 0..elements {
        rest = after_reply(rest);
    }
    rest
}

type Words = Vec<Vec<u8>>;

/// Parses all commands of the input with a second, simpler parser. Also returns `true` if the rest
/// of the input cannot begin a command.
fn commands(bytes: &[u8]) -> (Vec<Words>, bool) {
    let mut commands = Vec::new();
    let mut rest = bytes;
    loop {
        let read = match rest.first() {
            None => Read::Missing,
            Some(b'*') => command(rest),
            Some(_) => inline(rest),
        };
        match read {
            Read::Missing => return (commands, false),
            Read::Broken => return (commands, true),
            Read::Command(words, after) => {
                rest = after;
                if !words.is_empty() {
                    commands.push(words);
                }
            }
        }
    }
}

enum Read<'b> {
    Missing,
    Broken,
    Command(Words, &'b [u8]),
}

fn command(bytes: &[u8]) -> Read<'_> {
    let (count, mut rest) = match number(bytes) {
        Ok(Some(read)) => read,
        Ok(None) => return Read::Missing,
        Err(()) => return Read::Broken,
    };
    if count > MAX_ARGUMENTS as i64 {
        return Read::Broken;
    }
    let mut words = Words::new();
    for _ in 0..count {
        match rest.first() {
            None => return Read::Missing,
            Some(b'$') => {}
            Some(_) => return Read::Broken,
        }
        let (length, after) = match number(rest) {
            Ok(Some(read)) => read,
            Ok(None) => return Read::Missing,
            Err(()) => return Read::Broken,
        };
        let Some(length) =
            usize::try_from(length).ok().filter(|length| *length <= MAX_ARGUMENT_BYTES)
        else {
            return Read::Broken;
        };
        if words.iter().map(Vec::len).sum::<usize>() + length > MAX_COMMAND_BYTES {
            return Read::Broken;
        }
        if after.len() < length + 2 {
            return Read::Missing;
        }
        if &after[length..length + 2] != b"\r\n" {
            return Read::Broken;
        }
        words.push(after[..length].to_vec());
        rest = &after[length + 2..];
    }
    Read::Command(words, rest)
}

/// Parses the number in a line such as `$3`, and returns it with the bytes after the line. Returns
/// `None` if the line is not complete.
fn number(bytes: &[u8]) -> Result<Option<(i64, &[u8])>, ()> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > 32 { Err(()) } else { Ok(None) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(())?;
    if end > 32 || line.get(1) == Some(&b'+') {
        return Err(());
    }
    let digits = line.get(1..).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(())?;
    Ok(Some((digits.parse().map_err(|_| ())?, &bytes[end + 1..])))
}

fn inline(bytes: &[u8]) -> Read<'_> {
    const MAX: usize = 64 << 10;
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > MAX { Read::Broken } else { Read::Missing };
    };
    match words(&bytes[..end]) {
        Some(words) if end <= MAX && words.len() <= MAX_ARGUMENTS => {
            Read::Command(words, &bytes[end + 1..])
        }
        _ => Read::Broken,
    }
}

/// Splits a line into words. Returns `None` if a closing quote is missing or no space follows it.
/// Escapes such as `\n` are not decoded, because the check needs only the name of the command.
fn words(line: &[u8]) -> Option<Words> {
    let mut words = Words::new();
    let mut quote = None;
    let mut word: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        at += 1;
        match (quote, byte) {
            (None, byte) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (None, b'"' | b'\'') if word.is_none() => (quote, word) = (Some(byte), Some(vec![])),
            (None, byte) => word.get_or_insert_default().push(byte),
            (Some(b'"'), b'\\') => {
                let hex = line.get(at..at + 3).filter(|escape| {
                    escape[0] == b'x' && escape[1..].iter().all(u8::is_ascii_hexdigit)
                });
                if let Some(hex) = hex {
                    let digits = std::str::from_utf8(&hex[1..]).ok()?;
                    word.as_mut()?.push(u8::from_str_radix(digits, 16).ok()?);
                    at += 3;
                } else if let Some(&escaped) = line.get(at) {
                    word.as_mut()?.push(escaped);
                    at += 1;
                }
            }
            (Some(b'\''), b'\\') if line.get(at) == Some(&b'\'') => {
                word.as_mut()?.push(b'\'');
                at += 1;
            }
            (Some(open), byte) if byte == open => {
                if line.get(at).is_some_and(|byte| !byte.is_ascii_whitespace()) {
                    return None;
                }
                quote = None;
                words.extend(word.take());
            }
            (Some(_), byte) => word.as_mut()?.push(byte),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}
