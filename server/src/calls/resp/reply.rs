//! Formats replies.

use std::borrow::Cow;
use std::io::Write as _;

use bytes::Bytes;
use tidegate_core::{Error, ErrorKind};

use crate::net::text::without_kind;

/// The version of the protocol that a client selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// A reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A status such as `OK`.
    Status(&'static str),
    /// An error. Its text begins with a code, such as `ERR`.
    Error(String),
    Integer(i64),
    Bytes(Bytes),
    Text(Cow<'static, str>),
    Null,
    List(Vec<Reply>),
    /// The header of a list with this length. The elements follow as separate replies.
    ListHeader(usize),
    /// A map. RESP2 has no maps, so it is sent as a list of alternating keys and values.
    Map(Vec<(&'static str, Reply)>),
    Integers([i64; 5]),
}

impl Reply {
    pub(super) const OK: Self = Self::Status("OK");

    /// Creates an error with the code `ERR`.
    pub(super) fn error(message: impl AsRef<str>) -> Self {
        Self::Error(format!("ERR {}", message.as_ref()))
    }

    pub(super) fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(text.into())
    }

    /// Creates the reply to a call that failed.
    pub(super) fn from_error(error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::IdReused => "IDREUSED",
            ErrorKind::UnknownHold => "UNKNOWNHOLD",
            ErrorKind::AlreadySettled => "ALREADYSETTLED",
            ErrorKind::HoldLapsed => "HOLDLAPSED",
            ErrorKind::TooManyHolds => "TOOMANYHOLDS",
            ErrorKind::TooManyGrants => "TOOMANYGRANTS",
            ErrorKind::InvalidCall | ErrorKind::Unsupported => {
                return Self::Error(format!("ERR {error:#}"));
            }
            _ => return Self::Error(format!("STORE {error:#}")),
        };
        // The message does not name the kind of the error, because `code` names it.
        Self::Error(format!("{code} {}", without_kind(error)))
    }

    pub(super) fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    pub(super) fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, '+', text),
            Self::Error(text) => {
                // The message can quote an argument of the client. A line break in this argument
                // would end the reply early.
                let text: String = text
                    .chars()
                    .map(|character| if character.is_control() { ' ' } else { character })
                    .collect();
                line(out, '-', &text);
            }
            Self::Integer(number) => header(out, b':', *number),
            Self::Bytes(bytes) => bulk(out, bytes),
            Self::Text(text) => bulk(out, text.as_bytes()),
            Self::Null => match protocol {
                Protocol::Resp2 => out.extend_from_slice(b"$-1\r\n"),
                Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
            },
            Self::List(replies) => {
                header(out, b'*', replies.len());
                replies.iter().for_each(|reply| reply.write(protocol, out));
            }
            Self::ListHeader(length) => header(out, b'*', *length),
            Self::Map(entries) => {
                match protocol {
                    Protocol::Resp2 => header(out, b'*', entries.len() * 2),
                    Protocol::Resp3 => header(out, b'%', entries.len()),
                }
                for (key, value) in entries {
                    bulk(out, key.as_bytes());
                    value.write(protocol, out);
                }
            }
            Self::Integers(numbers) => {
                header(out, b'*', numbers.len());
                numbers.iter().for_each(|number| header(out, b':', *number));
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: char, text: &str) {
    // Writing to a `Vec` never fails.
    let _ = write!(out, "{kind}{text}\r\n");
}

fn header(out: &mut Vec<u8>, kind: u8, number: impl itoa::Integer) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_it_quotes() {
        let mut out = Vec::new();
        Reply::error("there is no 'a\r\n+OK\r\n\0\u{1b}[31m\u{7f}\u{85}'")
            .write(Protocol::Resp2, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "-ERR there is no 'a  +OK    [31m  '\r\n");
    }
}
