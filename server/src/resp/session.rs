//! What a connection has chosen, and what its commands mean then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tidegate_core::{Decision, Error};

use super::arguments::shown;
use super::frame::{Arguments, Bounds};
use super::info::Info;
use super::reply::{Protocol, Reply};
use super::stats::RespStats;
use super::table::{Kind, describe, find};
use super::{RespSettings, own, throttle};
use crate::calls::{CallRequest, Calls};
use crate::login::DEFAULT_USER;

/// How many failed logins end a connection.
const MAX_FAILED_LOGINS: usize = 10;

/// What all connections have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) calls: Arc<Calls>,
    pub(super) settings: RespSettings,
    pub(super) stats: RespStats,
    /// The number of sessions.
    pub(super) clients: AtomicUsize,
    next_id: AtomicU64,
    started: Instant,
}

impl Shared {
    pub(super) fn new(calls: Arc<Calls>, settings: RespSettings) -> Self {
        Self {
            calls,
            settings,
            stats: RespStats::new(),
            clients: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            started: Instant::now(),
        }
    }
}

/// A command that was read.
#[derive(Debug)]
pub(super) struct Planned {
    /// Its place in the table.
    pub(super) command: Option<usize>,
    /// The protocol of the reply.
    pub(super) protocol: Protocol,
    pub(super) step: Step,
}

/// What is to be done for a command.
#[derive(Debug)]
pub(super) enum Step {
    Reply(Reply),
    /// To reply, and to end the connection.
    End(Reply),
    Call(CallRequest, Form),
}

/// The form of the reply to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Throttle(throttle::Style),
    Own,
}

impl Form {
    pub(super) fn reply(self, request: &CallRequest, decision: &Decision) -> Reply {
        match self {
            Self::Throttle(style) => throttle::reply(style, decision),
            Self::Own => own::reply(request, decision),
        }
    }
}

/// A connection's choices.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<Shared>,
    protocol: Protocol,
    is_logged_in: bool,
    failed_logins: usize,
    name: Bytes,
    id: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let is_logged_in = shared.settings.login.is_none();
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        shared.clients.fetch_add(1, Ordering::Relaxed);
        let protocol = Protocol::default();
        Self { shared, protocol, is_logged_in, failed_logins: 0, name: Bytes::new(), id }
    }

    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(super) fn bounds(&self) -> Bounds {
        if self.is_logged_in { Bounds::FULL } else { Bounds::BEFORE_LOGIN }
    }

    /// What to do for a command. What it chooses holds for the next one.
    pub(super) fn plan(&mut self, arguments: &Arguments) -> Planned {
        let name: &[u8] = arguments.first().map(|it| &**it).unwrap_or_default();
        let (command, step) = match find(name) {
            Some((index, spec)) => {
                let step = if spec.has_arity(arguments.len()) {
                    match self.step(spec.kind, arguments) {
                        Step::Reply(reply) if self.failed_logins >= MAX_FAILED_LOGINS => {
                            Step::End(reply)
                        }
                        step => step,
                    }
                } else {
                    Step::Reply(wrong_number(spec.name))
                };
                (Some(index), step)
            }
            // The lines of an HTTP request that a page in a browser has sent here.
            None if [&b"post"[..], b"host:"].iter().any(|it| it.eq_ignore_ascii_case(name)) => {
                (None, Step::End(Reply::error("this is not an HTTP server")))
            }
            None if !self.is_logged_in => (None, Step::Reply(no_login())),
            None => {
                let name = shown(name);
                (None, Step::Reply(Reply::error(format!("unknown command '{name}'"))))
            }
        };
        Planned { command, protocol: self.protocol, step }
    }

    fn step(&mut self, kind: Kind, arguments: &Arguments) -> Step {
        let rest = arguments.get(1..).unwrap_or_default();
        let is_open = matches!(kind, Kind::Hello | Kind::Auth | Kind::Quit | Kind::Reset);
        if !self.is_logged_in && !is_open {
            return Step::Reply(no_login());
        }
        let call = |request: Result<CallRequest, Error>, form| match request {
            Ok(request) => Step::Call(request, form),
            Err(error) => Step::Reply(Reply::of_error(&error)),
        };
        Step::Reply(match kind {
            Kind::Throttle(style) => {
                let request = throttle::request(style, arguments, &self.shared.calls);
                return call(request, Form::Throttle(style));
            }
            Kind::Own(verb) => {
                return call(own::request(verb, arguments, &self.shared.calls), Form::Own);
            }
            Kind::Quit => return Step::End(Reply::OK),
            Kind::Ping => match rest {
                [] => Reply::Status("PONG"),
                [text] => Reply::Bytes(text.clone()),
                _ => wrong_number("ping"),
            },
            Kind::Echo => rest.first().map_or(Reply::Null, |it| Reply::Bytes(it.clone())),
            Kind::Hello => self.hello(rest),
            Kind::Auth => match rest {
                [password] => self.log_in(None, password),
                [user, password] => self.log_in(Some(user), password),
                _ => Reply::error("syntax error"),
            },
            Kind::Client => self.client(rest),
            Kind::Select => match rest {
                [database] if **database == *b"0" => Reply::OK,
                _ => Reply::error("DB index is out of range"),
            },
            Kind::Reset => {
                (self.protocol, self.name) = (Protocol::default(), Bytes::new());
                self.is_logged_in = self.shared.settings.login.is_none();
                Reply::Status("RESET")
            }
            Kind::Info => {
                let info = Info {
                    uptime: self.shared.started.elapsed(),
                    clients: self.shared.clients.load(Ordering::Relaxed),
                    max_clients: self.shared.settings.max_connections,
                };
                Reply::text(info.text(rest))
            }
            Kind::Command => describe(rest).unwrap_or_else(|| unknown_subcommand("COMMAND", rest)),
            Kind::Config => match rest {
                [get, _, ..] if get.eq_ignore_ascii_case(b"get") => Reply::Map(Vec::new()),
                _ => unknown_subcommand("CONFIG", rest),
            },
        })
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    fn hello(&mut self, arguments: &[Bytes]) -> Reply {
        let (mut protocol, mut name) = (self.protocol, None);
        if let [version, ..] = arguments {
            protocol = match &**version {
                b"2" => Protocol::Resp2,
                b"3" => Protocol::Resp3,
                _ => return Reply::Error("NOPROTO unsupported protocol version".to_owned()),
            };
        }
        let mut rest = arguments.get(1..).unwrap_or_default();
        let mut login = None;
        loop {
            rest = match rest {
                [] => break,
                [option, user, password, after @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    login = Some((user, password));
                    after
                }
                [option, value, after @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    name = Some(value);
                    after
                }
                [option, ..] => {
                    let option = shown(option);
                    return Reply::error(format!("syntax error in HELLO option '{option}'"));
                }
            };
        }
        if let Some((user, password)) = login {
            let reply = self.log_in(Some(user), password);
            if reply.is_error() {
                return reply;
            }
        }
        if !self.is_logged_in {
            let message = "NOAUTH HELLO must be called with the client already authenticated, or as \
                           HELLO <version> AUTH <user> <password>";
            return Reply::Error(message.to_owned());
        }
        if let Some(name) = name {
            let reply = self.set_name(name);
            if reply.is_error() {
                return reply;
            }
        }
        self.protocol = protocol;
        Reply::Map(vec![
            ("server", Reply::text("tidegate")),
            ("version", Reply::text(env!("CARGO_PKG_VERSION"))),
            ("proto", Reply::Integer(protocol.number())),
            ("id", self.client_id()),
            ("mode", Reply::text("standalone")),
            ("role", Reply::text("master")),
            ("modules", Reply::List(Vec::new())),
        ])
    }

    fn log_in(&mut self, user: Option<&Bytes>, password: &Bytes) -> Reply {
        let Some(login) = &self.shared.settings.login else {
            return Reply::error("AUTH is called, and no password is set for this server");
        };
        let user = user.map_or(DEFAULT_USER.as_bytes(), |user| user);
        if login.is(user, password) {
            (self.is_logged_in, self.failed_logins) = (true, 0);
            return Reply::OK;
        }
        self.failed_logins += 1;
        let message = "WRONGPASS invalid username-password pair or user is disabled.";
        Reply::Error(message.to_owned())
    }

    fn client(&mut self, arguments: &[Bytes]) -> Reply {
        let subcommand = arguments.first().map(|it| it.to_ascii_lowercase()).unwrap_or_default();
        match (&*subcommand, arguments.get(1..).unwrap_or_default()) {
            (b"setinfo", [_, _]) | (b"no-evict" | b"no-touch", [_]) => Reply::OK,
            (b"setname", [name]) => self.set_name(name),
            (b"getname", []) if self.name.is_empty() => Reply::Null,
            (b"getname", []) => Reply::Bytes(self.name.clone()),
            (b"id", []) => self.client_id(),
            _ => unknown_subcommand("CLIENT", arguments),
        }
    }

    fn client_id(&self) -> Reply {
        Reply::Integer(i64::try_from(self.id).unwrap_or(i64::MAX))
    }

    fn set_name(&mut self, name: &Bytes) -> Reply {
        const MAX_NAME_BYTES: usize = 256;
        if name.len() > MAX_NAME_BYTES {
            let len = name.len();
            return Reply::error(format!(
                "the client's name has {len} bytes; at most {MAX_NAME_BYTES} are possible"
            ));
        }
        if !name.iter().all(u8::is_ascii_graphic) {
            return Reply::error(
                "Client names cannot contain spaces, newlines or special characters.",
            );
        }
        // A copy, so that the buffer that it came in can be used again.
        self.name = Bytes::copy_from_slice(name);
        Reply::OK
    }
}

fn no_login() -> Reply {
    Reply::Error("NOAUTH Authentication required.".to_owned())
}

fn wrong_number(name: &str) -> Reply {
    if name.ends_with("throttle") {
        let message =
            format!("Usage: {name} <key> <max_burst> <count per period> <period> [<quantity>]");
        return Reply::error(message);
    }
    Reply::error(format!("wrong number of arguments for '{name}' command"))
}

fn unknown_subcommand(command: &str, arguments: &[Bytes]) -> Reply {
    let subcommand = arguments.first().map(|it| shown(it)).unwrap_or_default();
    Reply::error(format!(
        "unknown subcommand or wrong number of arguments for '{subcommand}' of {command}"
    ))
}
