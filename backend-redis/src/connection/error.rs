//! From what Redis and the connection say to what the caller can do.

use std::error::Error as StdError;
use std::fmt;

use redis::{ErrorKind as RedisKind, RedisError, ServerErrorKind};
use tidegate_core::{Error, ErrorKind};

/// The error of a call.
#[must_use]
pub fn of_call(error: RedisError) -> Error {
    Error::new(kind_of(&error), format!("Redis: {}", printable(&error))).with_source(Cause(error))
}

/// The error of an attempt to connect: nothing has been sent.
#[must_use]
pub fn of_connecting(error: &RedisError) -> Error {
    let kind = match kind_of(error) {
        kind @ (ErrorKind::Busy | ErrorKind::UnsupportedServer) => kind,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("cannot connect to Redis: {}", printable(error)))
        .with_source(Cause(error.clone()))
}

/// Whether the server does not know the script: then nothing has been done.
#[must_use]
pub fn is_unknown_script(error: &Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<Cause>());
    cause.is_some_and(|Cause(error)| error.kind() == ServerErrorKind::NoScript.into())
}

/// The number of characters of a server's text that are shown.
const MAX_TEXT: usize = 300;

/// A text that a server has written, or that holds such text, for logs and terminals: one line of what
/// can be printed, not too long.
#[must_use]
pub fn printable(text: &impl fmt::Display) -> String {
    let text = text.to_string();
    let mut printable = String::new();
    for (place, c) in text.chars().enumerate() {
        if place == MAX_TEXT {
            printable.push('…');
            break;
        }
        match c {
            '"' | '\'' | '\\' => printable.push(c),
            c => printable.extend(c.escape_debug()),
        }
    }
    printable
}

/// What the client of Redis said, which is printed like all text of servers.
struct Cause(RedisError);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cause({self})")
    }
}

impl StdError for Cause {}

fn kind_of(error: &RedisError) -> ErrorKind {
    if error.is_timeout() {
        return ErrorKind::Timeout;
    }
    match error.kind() {
        RedisKind::Io
        | RedisKind::AuthenticationFailed
        | RedisKind::MasterNameNotFoundBySentinel
        | RedisKind::NoValidReplicasFoundBySentinel => ErrorKind::Unavailable,
        RedisKind::InvalidClientConfig | RedisKind::RESP3NotSupported => {
            ErrorKind::UnsupportedServer
        }
        _ => match (error.code(), error.clone().into_server_errors()) {
            (Some(code), _) => kind_of_code(code, error.detail().unwrap_or_default()),
            // Of several commands, the first that failed.
            (None, Some(errors)) => errors.first().map_or(ErrorKind::Protocol, |(_, error)| {
                kind_of_code(error.code(), error.details().unwrap_or_default())
            }),
            (None, None) => ErrorKind::Protocol,
        },
    }
}

/// By the word that the server's errors begin with.
fn kind_of_code(code: &str, detail: &str) -> ErrorKind {
    match code {
        "READONLY" | "MISCONF" | "NOREPLICAS" | "MASTERDOWN" => ErrorKind::ReadOnly,
        "BUSY" | "LOADING" | "TRYAGAIN" => ErrorKind::Busy,
        "OOM" => ErrorKind::OutOfMemory,
        "WRONGTYPE" => ErrorKind::ForeignValue,
        "NOAUTH" | "WRONGPASS" | "CLUSTERDOWN" => ErrorKind::Unavailable,
        "NOPERM" | "MOVED" | "ASK" | "CROSSSLOT" => ErrorKind::UnsupportedServer,
        "ERR" => kind_of_text(detail),
        _ => ErrorKind::Protocol,
    }
}

fn kind_of_text(detail: &str) -> ErrorKind {
    // Before version 7, what goes wrong within a script is told within another error.
    if let Some((_, within)) = detail.split_once(": -") {
        let (code, rest) = within.split_once(' ').unwrap_or((within, ""));
        if code != "ERR" && code.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return kind_of_code(code, rest);
        }
    }
    let lacks = [
        "unknown command",
        "non deterministic",
        "nonexistent global variable",
        "user executing the script can't",
        "cluster support disabled",
    ];
    if lacks.iter().any(|text| detail.contains(text)) {
        return ErrorKind::UnsupportedServer;
    }
    if detail.contains("max number of clients") {
        return ErrorKind::Unavailable;
    }
    ErrorKind::Protocol
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_tells_what_to_do() {
        for (code, detail, kind) in [
            ("READONLY", "You can't write against a read only replica.", ErrorKind::ReadOnly),
            ("LOADING", "Redis is loading the dataset in memory", ErrorKind::Busy),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", ErrorKind::OutOfMemory),
            ("ERR", "unknown command 'EVALSHA'", ErrorKind::UnsupportedServer),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:7: @user_script: 7: -OOM command \
                 not allowed when used memory > 'maxmemory'.",
                ErrorKind::OutOfMemory,
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:7: -READONLY You can't write",
                ErrorKind::ReadOnly,
            ),
            ("ERR", "max number of clients reached", ErrorKind::Unavailable),
            ("ERR", "Error running script: something else", ErrorKind::Protocol),
            ("NOVEL", "", ErrorKind::Protocol),
        ] {
            assert_eq!(kind_of_code(code, detail), kind, "{code} {detail}");
        }
    }

    #[test]
    fn what_a_server_writes_cannot_steer_a_terminal_nor_fill_a_log() {
        let text = "\x1b[31mred\nanother line \u{202e}\u{7f}".to_owned() + &"é".repeat(1_000_000);
        let answer = redis::parse_redis_value(b"-ERR \x1b[31mred\r\n").unwrap();
        let answered = redis::from_redis_value::<Vec<u8>>(answer).map_err(RedisError::from);
        let long = RedisError::from((RedisKind::Io, "long", text));
        for error in [answered.unwrap_err(), long] {
            for error in [of_connecting(&error), of_call(error)] {
                let source = error.source().unwrap();
                for text in [error.to_string(), source.to_string(), format!("{source:?}")] {
                    assert!(text.contains("\\u{1b}[31mred"), "{text}");
                    assert!(text.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{text}");
                    assert!(text.chars().count() < 500, "{} characters", text.len());
                }
            }
        }
    }

    #[test]
    fn quotes_stay_as_they_are() {
        assert_eq!(
            printable(&r#"unknown command 'A\B', with "c""#),
            r#"unknown command 'A\B', with "c""#
        );
    }
}
