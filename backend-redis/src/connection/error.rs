//! Converts errors of the Redis client and of connections into errors of this crate. The kind of an
//! error tells the caller how to react.
//!
//! The message of an error names the server and describes the failure in the words of this crate.
//! The text of the server, the system or the client is the source of the error and not a part of
//! the message. So a report of an error with all its sources contains no text twice.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ErrorKind as RedisKind, RedisError, ServerErrorKind};
use tidegate_core::{Error, ErrorKind};

/// Returns the error of a call that was possibly sent to the server `server`.
#[must_use]
pub fn call_error(server: &str, error: RedisError) -> Error {
    let kind = kind_of(&error);
    let what = match kind {
        ErrorKind::Unavailable if error.is_io_error() => {
            return Error::new(kind, format!("the connection to Redis at {server} was lost"))
                .with_source(Cause(error));
        }
        ErrorKind::Protocol if error.kind() == RedisKind::Parse => "sent a reply that is not valid",
        kind => refusal(kind),
    };
    let is_refused = is_refused_as_a_whole(&error);
    let failed = Error::new(kind, format!("Redis at {server} {what}")).with_source(Cause(error));
    if is_refused { failed.definitely_not_charged() } else { failed }
}

/// Returns `true` if the server refused the command and executed no part of it. If a script lacked
/// a permission, returns `false`, because the script possibly wrote something before. The text of
/// this error contains the word "script".
fn is_refused_as_a_whole(error: &RedisError) -> bool {
    let is_single = error.detail().is_some_and(|detail| !detail.contains("script"));
    is_single && matches!(error.code(), Some("NOAUTH" | "NOPERM"))
}

/// Returns the error of a call that was sent and got no reply in time.
#[must_use]
pub(super) fn no_answer(server: &str, within: Duration) -> Error {
    let message = format!("Redis at {server} has not answered within {within:?}");
    Error::new(ErrorKind::Timeout, message)
}

/// Returns the words after `Redis at {server}` in the message of an error of kind `kind`.
fn refusal(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ReadOnly => "refuses writes",
        ErrorKind::Busy => "is busy or loads its data",
        ErrorKind::OutOfMemory => "has no memory left",
        ErrorKind::ForeignValue => "holds a value under the key that Tidegate did not write",
        ErrorKind::UnsupportedServer => "does not support a command that the store needs",
        ErrorKind::Unavailable => "is not available",
        ErrorKind::Misconfigured => "refuses the user, or the user lacks a permission",
        _ => "replied with an error",
    }
}

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

/// Returns the address of a server for messages, without user and password: `host:port`, or the
/// path of its socket.
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

/// The reason why an attempt to connect failed. Every call that waited for the attempt gets an
/// error with this reason.
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

    /// Creates the error for an attempt to connect that failed with an I/O error.
    pub(super) fn from_io(peer: &Peer, what: &str, error: &io::Error) -> Self {
        let message = format!("cannot connect to {peer}: {what}");
        Self::new(ErrorKind::Unavailable, message).because(printable(error))
    }

    pub(super) fn because(self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into().into()), ..self }
    }

    pub(super) fn with_context(self, context: &str) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }

    /// Returns the error of a call that waited for a connection and was not sent.
    pub(super) fn call_error(&self) -> Error {
        let error = Error::new(self.kind, self.message.clone()).definitely_not_charged();
        match &self.cause {
            Some(cause) => error.with_source(Arc::clone(cause)),
            None => error,
        }
    }
}

/// Describes the error that the system returned for an attempt to connect to an address.
pub(super) fn unreachable(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing accepts connections there",
        io::ErrorKind::NotFound => "there is no such socket",
        io::ErrorKind::PermissionDenied => "the user of this process may not connect to it",
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => "the host cannot be reached",
        _ => "the connection could not be made",
    }
}

/// Returns the error of a login that failed on an open connection.
///
/// `head` contains the first bytes that the server sent. This function reads the server's error
/// line from `head`, because `error` says only that the server refused the login. A server that
/// refuses all connections also sends an error line, instead of its first reply. `encryption` is
/// the error of TLS, or `None` if the login failed for another reason than TLS.
pub(super) fn login_error(
    peer: &Peer,
    head: &[u8],
    error: &RedisError,
    encryption: Option<ConnectError>,
) -> ConnectError {
    if let Some(line) = refused_login(head) {
        return refusal_error(peer, &line);
    }
    if let Some(reason) = foreign_protocol(head) {
        let message = format!("{} does not answer as a Redis server: {reason}", peer.address);
        return ConnectError::new(ErrorKind::Unavailable, message);
    }
    if let Some(refused) = encryption {
        return refused;
    }
    let cause = Cause(error.clone());
    if error.is_io_error() {
        let what = if head.is_empty() {
            "it closed the connection without a reply; does it require TLS (`rediss://`)?"
        } else {
            "it closed the connection"
        };
        let message = format!("cannot connect to {peer}: {what}");
        return ConnectError::new(ErrorKind::Unavailable, message).because(cause);
    }
    setup_error(peer, error)
}

/// Returns the error of a command that failed while the store set up a connection.
pub(super) fn setup_error(peer: &Peer, error: &RedisError) -> ConnectError {
    let kind = kind_when_connecting(kind_of(error));
    let message = format!("cannot connect to {peer}: {}", refused_because(kind));
    ConnectError::new(kind, message).because(Cause(error.clone()))
}

/// Returns an error if `head`, the first bytes that the server sent, says that a login is required.
pub(super) fn missing_login(peer: &Peer, head: &[u8]) -> Option<ConnectError> {
    let line = refused_login(head).filter(|line| line.starts_with("NOAUTH"))?;
    Some(refusal_error(peer, &line))
}

/// Returns the error for an error line that a server sent in reply to a new connection or a login.
fn refusal_error(peer: &Peer, line: &str) -> ConnectError {
    let (code, detail) = line.split_once(' ').unwrap_or((line, ""));
    let kind = kind_when_connecting(kind_of_code(code, detail));
    let message = format!("cannot connect to {peer}: {}", refused_because(kind));
    ConnectError::new(kind, message).because(printable(&line))
}

/// Returns the kind for an attempt to connect that failed with an error of kind `kind`. Most kinds
/// become [`ErrorKind::Unavailable`].
fn kind_when_connecting(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::Busy | ErrorKind::UnsupportedServer | ErrorKind::Misconfigured => kind,
        _ => ErrorKind::Unavailable,
    }
}

fn refused_because(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Misconfigured => "it refuses the user, the password or the database",
        ErrorKind::Busy => "it is busy or loads its data",
        _ => "it refuses the connection",
    }
}

/// Returns the error line with which a server refused the login or the connection. Returns `None`
/// if `head` contains no such line. The function ignores errors of the command that sets the
/// client's name, because the store does not need this command.
fn refused_login(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let mut errors = text.lines().filter_map(|line| line.strip_prefix('-'));
    let is_needed = |line: &&str| {
        let name_errors = ["unknown subcommand", "SETINFO", "setinfo", "'client"];
        !name_errors.iter().any(|text| line.contains(text))
    };
    errors.find(is_needed).map(str::to_owned)
}

/// Describes, for an error message, a reply that is not in the protocol of Redis. Returns `None` if
/// the reply is possibly from Redis.
fn foreign_protocol(head: &[u8]) -> Option<String> {
    const SHOWN: usize = 60;
    match head {
        [] => None,
        // A reply that begins with these bytes is a TLS record: an alert, or a part of the
        // handshake.
        [0x15 | 0x16, 3, ..] => Some("it uses TLS; its URL must begin with `rediss://`".into()),
        [b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b'#' | b',' | b'(', ..] => None,
        [b'!' | b'=' | b'%' | b'~' | b'|' | b'>', ..] => None,
        _ => {
            let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or(head);
            let line = &line[..line.len().min(SHOWN)];
            Some(format!("its reply begins with `{}`", printable(&String::from_utf8_lossy(line))))
        }
    }
}

/// Returns `true` if the server does not know the script. Such a server has executed nothing.
#[must_use]
pub fn is_unknown_script(error: &Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<Cause>());
    cause.is_some_and(|Cause(error)| error.kind() == ServerErrorKind::NoScript.into())
}

/// The maximum number of characters of a server's text in an error message.
const MAX_TEXT: usize = 300;

/// Returns the text of a server as one line of printable characters with a bounded length, for logs
/// and terminals.
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

/// The text of a server or of the Redis client, which is displayed as [`printable`] text.
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
        _ => first_server_error(error)
            .map_or(ErrorKind::Protocol, |(code, detail)| kind_of_code(&code, &detail)),
    }
}

/// Returns the code and the text of the first error of the server. For a transaction that the
/// server aborted, this is the error of its first failed command.
pub(super) fn first_server_error(error: &RedisError) -> Option<(String, String)> {
    match error.clone().into_server_errors() {
        Some(errors) => errors.first().map(|(_, error)| {
            (error.code().to_owned(), error.details().unwrap_or_default().to_owned())
        }),
        None => {
            let detail = error.detail().unwrap_or_default();
            error.code().map(|code| (code.to_owned(), detail.to_owned()))
        }
    }
}

/// Returns the kind of a server's error. `code` is the first word of the error, such as `READONLY`.
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
    // Before version 7, Redis wraps an error of a script in another error.
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
        // If a script lacks a permission, the error contains one of the next two texts. Redis 7.2
        // changed the text.
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
    let unavailable = [
        "max number of clients",
        // A node of a cluster runs a script, but refuses its commands.
        "while the cluster is down",
        "a slot not served",
    ];
    if unavailable.iter().any(|text| detail.contains(text)) {
        return ErrorKind::Unavailable;
    }
    ErrorKind::Protocol
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_error_determines_its_kind() {
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
            (
                "ERR",
                "Script attempted to execute a write command while the cluster is down and readonly",
                ErrorKind::Unavailable,
            ),
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
    fn the_text_of_a_server_cannot_control_a_terminal_nor_fill_a_log() {
        let text = "\x1b[31mred\nanother line \u{202e}\u{7f}".to_owned() + &"é".repeat(1_000_000);
        let answer = redis::parse_redis_value(b"-ERR \x1b[31mred\r\n").unwrap();
        let answered = redis::from_redis_value::<Vec<u8>>(answer).map_err(RedisError::from);
        let long = RedisError::from((RedisKind::Io, "long", text.clone()));
        let head = format!("-ERR {text}\r\n");
        let peer = Peer::new("Redis", &ConnectionAddr::Tcp("a".to_owned(), 1));
        let foreign = login_error(&peer, "\x1b[31mred".as_bytes(), &long, None).call_error();
        assert!(foreign.to_string().contains("\\u{1b}[31mred"), "{foreign}");
        for error in [answered.unwrap_err(), long] {
            let refused = login_error(&peer, head.as_bytes(), &error, None).call_error();
            let failed = login_error(&peer, b"+OK\r\n", &error, None).call_error();
            for error in [refused, failed, call_error("a:1", error)] {
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
