//! From what Redis and the connection say to what the caller can do.
//!
//! A message names the server, and what happened in words of this crate. What the server, the system or
//! the client said is the error's source, and no part of the message: so a report that prints an error with
//! its causes prints no text twice.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ErrorKind as RedisKind, RedisError, ServerErrorKind};
use tidegate_core::{Error, ErrorKind};

/// The error of a call that was sent to this server, or may have been.
#[must_use]
pub fn of_call(server: &str, error: RedisError) -> Error {
    let kind = kind_of(&error);
    let what = match kind {
        ErrorKind::Unavailable if error.is_io_error() => {
            return Error::new(kind, format!("the connection to Redis at {server} was lost"))
                .with_source(Cause(error));
        }
        ErrorKind::Protocol if error.kind() == RedisKind::Parse => {
            "gave an answer that makes no sense"
        }
        kind => refusal(kind),
    };
    let is_refused = is_refused_as_a_whole(&error);
    let failed = Error::new(kind, format!("Redis at {server} {what}")).with_source(Cause(error));
    if is_refused { failed.definitely_not_charged() } else { failed }
}

/// Whether the server has refused the command before it did any of it. A permission that a script turns out
/// to lack is reported with the line of the script, and something may have been written before it.
fn is_refused_as_a_whole(error: &RedisError) -> bool {
    let is_single = error.detail().is_some_and(|detail| !detail.contains("script"));
    is_single && matches!(error.code(), Some("NOAUTH" | "NOPERM"))
}

/// The error of a call whose answer has not come.
#[must_use]
pub(super) fn no_answer(server: &str, within: Duration) -> Error {
    let message = format!("Redis at {server} has not answered within {within:?}");
    Error::new(ErrorKind::Timeout, message)
}

/// What a server does that answers with an error of this kind.
fn refusal(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ReadOnly => "takes no writes",
        ErrorKind::Busy => "is busy, or loads its data",
        ErrorKind::OutOfMemory => "has no memory left",
        ErrorKind::ForeignValue => "holds a value under the key that Tidegate did not write",
        ErrorKind::UnsupportedServer => "cannot run what the store needs",
        ErrorKind::Unavailable => "does not serve",
        ErrorKind::Misconfigured => "refuses the user, or the user lacks a permission",
        _ => "answered with an error",
    }
}

/// A server, as errors name it.
#[derive(Debug)]
pub(super) struct Peer {
    role: &'static str,
    pub(super) address: String,
}

impl Peer {
    pub(super) fn new(role: &'static str, address: &ConnectionAddr) -> Self {
        Self { role, address: server_name(address) }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.role, self.address)
    }
}

/// Where a server is: `host:port`, or the path of its socket. Never a user or a password.
#[must_use]
pub fn server_name(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.contains(':') =>
        {
            format!("[{host}]:{port}")
        }
        address => address.to_string(),
    }
}

/// Why there is no connection: one attempt's outcome is that of all calls that waited for it.
#[derive(Debug, Clone)]
pub(super) struct ConnectError {
    kind: ErrorKind,
    message: String,
    cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl ConnectError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None }
    }

    /// The system could not connect to this server, or not go on.
    pub(super) fn of_io(peer: &Peer, what: &str, error: &io::Error) -> Self {
        let message = format!("cannot connect to {peer}: {what}");
        Self::new(ErrorKind::Unavailable, message).because(printable(error))
    }

    /// What the server, the system or the client said.
    pub(super) fn because(self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into().into()), ..self }
    }

    /// The same error, with what it was needed for before it.
    pub(super) fn within(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// The error of a call that waited for the connection, and was not sent.
    pub(super) fn of_call(&self) -> Error {
        let error = Error::new(self.kind, self.message.clone()).definitely_not_charged();
        match &self.cause {
            Some(cause) => error.with_source(Arc::clone(cause)),
            None => error,
        }
    }
}

/// What the system says of an address that cannot be connected to, in words.
pub(super) fn unreachable(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing accepts connections there",
        io::ErrorKind::NotFound => "there is no such socket",
        io::ErrorKind::PermissionDenied => "this user may not connect to it",
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => "the host cannot be reached",
        _ => "the connection could not be made",
    }
}

/// Why a server on which a connection was opened did not let this client in.
///
/// `head` is what it said first. The client keeps no more of a refused login than that it was refused, and
/// a server that refuses all connections says so in the place of the first answer. `encryption` is the error if
/// the encryption was what failed.
pub(super) fn of_login(
    peer: &Peer,
    head: &[u8],
    error: &RedisError,
    encryption: Option<ConnectError>,
) -> ConnectError {
    if let Some(line) = refused_login(head) {
        return of_refusal(peer, &line);
    }
    if let Some(said) = foreign(head) {
        let message = format!("{} does not answer as a Redis server: {said}", peer.address);
        return ConnectError::new(ErrorKind::Unavailable, message);
    }
    if let Some(refused) = encryption {
        return refused;
    }
    let cause = Cause(error.clone());
    if error.is_io_error() {
        let what = if head.is_empty() {
            "it closed the connection without an answer; does it require TLS (`rediss://`)?"
        } else {
            "it closed the connection"
        };
        let message = format!("cannot connect to {peer}: {what}");
        return ConnectError::new(ErrorKind::Unavailable, message).because(cause);
    }
    of_question(peer, error)
}

/// Why a server did not answer what it was asked before the connection could be used.
pub(super) fn of_question(peer: &Peer, error: &RedisError) -> ConnectError {
    let kind = kind_when_connecting(kind_of(error));
    let message = format!("cannot connect to {peer}: {}", refused_because(kind));
    ConnectError::new(kind, message).because(Cause(error.clone()))
}

/// Why a connection cannot be used on which the server answers that a login is needed.
pub(super) fn login_that_is_missing(peer: &Peer, head: &[u8]) -> Option<ConnectError> {
    let line = refused_login(head).filter(|line| line.starts_with("NOAUTH"))?;
    Some(of_refusal(peer, &line))
}

/// What a server's error in the place of an answer to the login means.
fn of_refusal(peer: &Peer, line: &str) -> ConnectError {
    let (code, detail) = line.split_once(' ').unwrap_or((line, ""));
    let kind = kind_when_connecting(kind_of_code(code, detail));
    let message = format!("cannot connect to {peer}: {}", refused_because(kind));
    ConnectError::new(kind, message).because(printable(&line))
}

/// What an error means where nothing was sent yet that could be charged.
fn kind_when_connecting(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::Busy | ErrorKind::UnsupportedServer | ErrorKind::Misconfigured => kind,
        _ => ErrorKind::Unavailable,
    }
}

fn refused_because(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Misconfigured => "it refuses the user, the password or the database",
        ErrorKind::Busy => "it is busy, or loads its data",
        _ => "it refuses the connection",
    }
}

/// The error with which a server has refused the login, or the connection, if it has. It may lack the
/// command by which clients state their name, which is not needed.
fn refused_login(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let mut errors = text.lines().filter_map(|line| line.strip_prefix('-'));
    let is_needed = |line: &&str| {
        let is_of_name = ["unknown subcommand", "SETINFO", "setinfo", "'client"];
        !is_of_name.iter().any(|text| line.contains(text))
    };
    errors.find(is_needed).map(str::to_owned)
}

/// What an answer that Redis could not have given begins with, if it is such.
fn foreign(head: &[u8]) -> Option<String> {
    const SHOWN: usize = 60;
    match head {
        [] => None,
        // A record of TLS: an alert, or a part of the handshake.
        [0x15 | 0x16, 3, ..] => {
            Some("it speaks TLS, for which a URL begins with `rediss://`".into())
        }
        [b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b'#' | b',' | b'(', ..] => None,
        [b'!' | b'=' | b'%' | b'~' | b'|' | b'>', ..] => None,
        _ => {
            let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or(head);
            let line = &line[..line.len().min(SHOWN)];
            Some(format!("its answer begins with `{}`", printable(&String::from_utf8_lossy(line))))
        }
    }
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

/// What the server or the client of Redis said, which is printed like all text of servers.
struct Cause(RedisError);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.0.code(), self.0.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            _ => self.0.to_string(),
        };
        f.write_str(&printable(&text))
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
        RedisKind::Io => ErrorKind::Unavailable,
        RedisKind::AuthenticationFailed => ErrorKind::Misconfigured,
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
        "CLUSTERDOWN" => ErrorKind::Unavailable,
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => ErrorKind::Misconfigured,
        "MOVED" | "ASK" | "CROSSSLOT" => ErrorKind::UnsupportedServer,
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
        "cluster support disabled",
    ];
    if lacks.iter().any(|text| detail.contains(text)) {
        return ErrorKind::UnsupportedServer;
    }
    let refusals = [
        // Of a script, on servers before 7.2 and since.
        "user executing the script can't",
        "ACL failure in script",
        "DB index is out of range",
        "SELECT is not allowed in cluster mode",
        "without any password configured",
        "invalid password",
    ];
    if refusals.iter().any(|text| detail.contains(text)) {
        return ErrorKind::Misconfigured;
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
            ("WRONGPASS", "invalid username-password pair", ErrorKind::Misconfigured),
            ("DENIED", "Redis is running in protected mode", ErrorKind::Misconfigured),
            ("ERR", "DB index is out of range", ErrorKind::Misconfigured),
            (
                "ERR",
                "ACL failure in script: User limiter has no permissions to run the 'set' command",
                ErrorKind::Misconfigured,
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: The user executing the script \
                 can't run this command or subcommand",
                ErrorKind::Misconfigured,
            ),
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
        let long = RedisError::from((RedisKind::Io, "long", text.clone()));
        let head = format!("-ERR {text}\r\n");
        let peer = Peer::new("Redis", &ConnectionAddr::Tcp("a".to_owned(), 1));
        let foreign = of_login(&peer, "\x1b[31mred".as_bytes(), &long, None).of_call();
        assert!(foreign.to_string().contains("\\u{1b}[31mred"), "{foreign}");
        for error in [answered.unwrap_err(), long] {
            let refused = of_login(&peer, head.as_bytes(), &error, None).of_call();
            let failed = of_login(&peer, b"+OK\r\n", &error, None).of_call();
            for error in [refused, failed, of_call("a:1", error)] {
                let source = error.source().unwrap();
                for text in [format!("{error:#}"), source.to_string(), format!("{source:?}")] {
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
