//! Parses a line of an access log.

use memchr::{memchr, memchr2};

use crate::trace::formats::address::{address, forwarded, is_host_name};

use crate::trace::malformed::Fault;
use crate::trace::time::Clock;

/// The fields of a line, each with the name that selects it in the options.
pub(super) const FIELDS: &[(&str, Field)] = &[
    ("time", Field::Time),
    ("ip", Field::Ip),
    ("ident", Field::Ident),
    ("user", Field::User),
    ("vhost", Field::Vhost),
    ("request", Field::Request),
    ("method", Field::Method),
    ("path", Field::Path),
    ("status", Field::Status),
    ("bytes", Field::Bytes),
    ("referer", Field::Referer),
    ("agent", Field::Agent),
    ("forwarded", Field::Forwarded),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Time,
    Ip,
    Ident,
    User,
    Vhost,
    Request,
    Method,
    Path,
    Status,
    Bytes,
    Referer,
    Agent,
    /// The last quoted field that follows the user agent and contains an address. In nginx's format
    /// `main`, it is the `X-Forwarded-For`.
    Forwarded,
}

/// The fields of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    vhost: &'a [u8],
    /// The address, or an empty text if there is none.
    pub(super) ip: &'a [u8],
    ident: &'a [u8],
    user: &'a [u8],
    time: &'a [u8],
    pub(super) micros: u64,
    request: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    rest: &'a [u8],
}

/// Returns the field with this name.
pub(super) fn field(name: &str) -> Option<Field> {
    FIELDS.iter().find_map(|&(known, field)| (known == name).then_some(field))
}

/// Parses the required fields of a line.
#[inline]
pub(super) fn take_apart<'a>(line: &'a [u8], clock: &mut Clock) -> Result<Line<'a>, Fault> {
    let Timed { leading, time, micros, request } = find_time(line, clock)?;
    let Request { request, status, bytes, rest } = request;
    let Some(Leading { vhost, ip, ident, user }) = split_leading(leading) else {
        return Err(Fault::malformed("there are not three fields before the time"));
    };
    Ok(Line { vhost, ip, ident, user, time, micros, request, status, bytes, rest })
}

/// A line that is split at its time.
struct Timed<'a> {
    leading: &'a [u8],
    time: &'a [u8],
    micros: u64,
    request: Request<'a>,
}

/// Finds the time of a line: ` [`, a time that begins with a digit, `]`, and the quoted request.
/// Each `[` is tried, because the name of the user before the time can also contain brackets, even
/// with a time in them. A server escapes the quotes in this name, so no request follows there.
#[inline]
fn find_time<'a>(line: &'a [u8], clock: &mut Clock) -> Result<Timed<'a>, Fault> {
    let mut from = 0;
    let mut first_fault = None;
    while let Some(found) = line.get(from..).and_then(|rest| memchr(b'[', rest)) {
        let at = from + found;
        from = at + 1;
        let (Some(leading), Some(inside)) = (line.get(..at), line.get(from..)) else {
            break;
        };
        let (Some(leading), Some(b'0'..=b'9')) = (leading.strip_suffix(b" "), inside.first())
        else {
            continue;
        };
        let Some(close) = memchr(b']', inside) else {
            break;
        };
        let (Some(time), Some(after)) = (inside.get(..close), inside.get(close + 1..)) else {
            break;
        };
        let request = match find_request(after) {
            Ok(request) => request,
            Err(fault) => {
                first_fault.get_or_insert(fault);
                continue;
            }
        };
        match clock.read_log(time) {
            Ok(micros) => {
                return Ok(Timed { leading, time, micros, request });
            }
            // The brackets can contain anything, such as the number of a process.
            Err(Fault::Fatal(error)) => {
                first_fault.get_or_insert(Fault::Malformed(error.to_string()));
            }
            Err(fault) => {
                first_fault.get_or_insert(fault);
            }
        }
    }
    Err(first_fault.unwrap_or_else(|| Fault::malformed("there is no time in brackets")))
}

/// The fields after the time.
struct Request<'a> {
    request: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    rest: &'a [u8],
}

/// Finds the quoted request in the text after the time. The request ends at the first quote that is
/// followed by status and bytes, because some servers do not escape quotes inside the request.
#[inline]
fn find_request(after: &[u8]) -> Result<Request<'_>, Fault> {
    let Some(inside) = after.strip_prefix(b" \"") else {
        return Err(Fault::malformed("there is no quoted request after the time"));
    };
    let mut from = 0;
    let mut closed = false;
    while let Some(found) = inside.get(from..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        let at = from + found;
        if inside.get(at) == Some(&b'\\') {
            from = at + 2;
            continue;
        }
        from = at + 1;
        closed = true;
        if let Some((status, bytes, rest)) = inside.get(from..).and_then(status_and_bytes) {
            let request = inside.get(..at).unwrap_or_default();
            return Ok(Request { request, status, bytes, rest });
        }
    }
    Err(Fault::malformed(if closed {
        "there is no status and number of bytes after the request"
    } else {
        "the quote around the request is never closed"
    }))
}

/// Parses a status and a number of bytes, such as ` 200 5120`, before a space or the end of the
/// line.
#[inline]
fn status_and_bytes(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let text = text.strip_prefix(b" ")?;
    let (status, text) = word(text);
    let (bytes, rest) = word(text);
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let status_is_whole = status == b"-" || (status.len() == 3 && digits(status));
    let bytes_are_whole = bytes == b"-" || (!bytes.is_empty() && digits(bytes));
    (status_is_whole && bytes_are_whole).then_some((status, bytes, rest))
}

/// Returns the text before the next space, and the text after it.
#[inline]
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| byte == b' ') {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default()),
        None => (text, &[]),
    }
}

/// The fields before the time.
#[derive(Clone, Copy)]
struct Leading<'a> {
    vhost: &'a [u8],
    ip: &'a [u8],
    ident: &'a [u8],
    user: &'a [u8],
}

/// Splits `203.0.113.9 - alice` into its fields. Returns `None` if there are not three fields.
#[inline]
fn split_leading(leading: &[u8]) -> Option<Leading<'_>> {
    let (first, rest) = word(leading);
    let (ident, user) = word(rest);
    if let Some(ip) = address(first)
        && ident == b"-"
        && !user.is_empty()
    {
        return Some(Leading { vhost: b"", ip, ident, user });
    }
    find_address(leading)
}

/// The likelihood that a word is the address of the client, from low to high. It depends on the
/// form of the word, and on whether the next word is `-`, which usually follows the address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// The name of a host at the usual position of the address.
    FirstHost,
    HostBeforeDash,
    Address,
    AddressBeforeDash,
}

/// Finds the address among the words before the time. At least two words must follow the address:
/// the ident and the user. Other words can precede it: a virtual host, a time, a level, an id.
/// Among equally likely words, the last word is the address, because earlier words belong to the
/// server. An address before `-` is different: the text after it is the name of the user, which the
/// client chooses.
#[cold]
fn find_address(leading: &[u8]) -> Option<Leading<'_>> {
    let (mut best, mut before, mut rest) = (None, &b""[..], leading.trim_ascii());
    loop {
        let (first, behind) = word(rest);
        let behind = behind.trim_ascii_start();
        let (ident, user) = word(behind);
        let user = user.trim_ascii_start();
        if ident.is_empty() || user.is_empty() {
            break;
        }
        let is_host = || is_host_name(first);
        let likeness = match (address(first), ident == b"-") {
            (Some(_), true) => Some(Likeness::AddressBeforeDash),
            (Some(_), false) => Some(Likeness::Address),
            (None, true) if is_host() => Some(Likeness::HostBeforeDash),
            (None, false) if before.is_empty() && is_host() => Some(Likeness::FirstHost),
            _ => None,
        };
        if likeness.is_some() && likeness >= best.map(|(likeness, _)| likeness) {
            let ip = address(first).unwrap_or(first);
            best = likeness.map(|likeness| (likeness, Leading { vhost: before, ip, ident, user }));
        }
        if likeness == Some(Likeness::AddressBeforeDash) {
            break;
        }
        (before, rest) = (first, behind);
    }
    let (ident, user) = word(word(leading).1);
    let without = (!user.is_empty()).then_some(Leading { vhost: b"", ip: b"", ident, user });
    best.map(|(_, leading)| leading).or(without)
}

impl<'a> Line<'a> {
    pub(super) fn field(&self, field: Field) -> &'a [u8] {
        match field {
            Field::Time => self.time,
            Field::Ip => self.ip,
            Field::Ident => self.ident,
            Field::User => self.user,
            Field::Vhost => or_dash(self.vhost),
            Field::Request => self.request,
            Field::Method => word(self.request).0,
            Field::Path => or_dash(word(word(self.request).1).0),
            Field::Status => self.status,
            Field::Bytes => self.bytes,
            Field::Referer => or_dash(quoted(self.rest).0),
            Field::Agent => or_dash(quoted(quoted(self.rest).1).0),
            Field::Forwarded => or_dash(last_addresses(quoted(quoted(self.rest).1).1)),
        }
    }
}

/// Returns the address in the last quoted field that contains an address.
fn last_addresses(text: &[u8]) -> &[u8] {
    let (mut rest, mut found) = (text, &b""[..]);
    while let Some(quote) = memchr(b'"', rest) {
        let (inside, behind) = quoted(rest.get(quote..).unwrap_or_default());
        let last = forwarded(inside);
        if address(last).is_some() {
            found = last;
        }
        rest = behind;
    }
    found
}

fn or_dash(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

/// Returns the text within the quotes at the beginning of `text`, and the rest after the closing
/// quote and a space. If the quote is never closed, the text within extends to the end.
fn quoted(text: &[u8]) -> (&[u8], &[u8]) {
    let Some(inside) = text.strip_prefix(b"\"") else {
        return (&[], text);
    };
    let mut from = 0;
    while let Some(found) = inside.get(from..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        let at = from + found;
        if inside.get(at) == Some(&b'"') {
            let rest = inside.get(at + 1..).unwrap_or_default();
            return (inside.get(..at).unwrap_or_default(), rest.strip_prefix(b" ").unwrap_or(rest));
        }
        from = at + 2;
    }
    (inside, &[])
}
