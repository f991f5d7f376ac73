//! The state of a connection, such as its login and its open transaction. The effect of each
//! command depends on this state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tidegate_core::{Decision, Error};

use super::arguments::shown;
use super::bound::Guards;
use super::frame::{Arguments, Bounds};
use super::info::Info;
use super::reply::{Protocol, Reply};
use super::stats::RespStats;
use super::table::{Kind, Spec, describe, find};
use super::transaction::Transaction;
use super::{RespSettings, own, throttle};
use crate::calls::{CallRequest, Calls};
use crate::net::login::DEFAULT_USER;

/// The number of failed logins after which the server closes the connection.
const MAX_FAILED_LOGINS: usize = 10;

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) calls: Arc<Calls>,
    pub(super) settings: RespSettings,
    pub(super) stats: RespStats,
    /// The guards of the holds that are bound to connections.
    pub(super) guards: Arc<Guards>,
    /// The number of sessions.
    pub(super) clients: AtomicUsize,
    next_id: AtomicU64,
    started: Instant,
}

impl Shared {
    pub(super) fn new(calls: Arc<Calls>, settings: RespSettings) -> Self {
        Self {
            guards: Arc::new(Guards::new(calls.store())),
            calls,
            settings,
            stats: RespStats::new(),
            clients: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            started: Instant::now(),
        }
    }
}

/// A parsed command, and the step that the server takes for it.
#[derive(Debug)]
pub(super) struct Planned {
    /// The index of the command in `COMMANDS`, or `None` if the command is unknown.
    pub(super) command: Option<usize>,
    /// The protocol of the reply.
    pub(super) protocol: Protocol,
    pub(super) step: Step,
}

/// The step that the server takes for a command.
#[derive(Debug)]
pub(super) enum Step {
    Reply(Reply),
    /// The command was queued in a transaction. `EXEC` determines a new step for it.
    Queued,
    /// The server sends the reply and closes the connection.
    End(Reply),
    Call(CallRequest, Form),
}

/// The format of the reply to a call.
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

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<Shared>,
    protocol: Protocol,
    is_logged_in: bool,
    failed_logins: usize,
    name: Bytes,
    id: u64,
    /// The transaction that `MULTI` has opened.
    transaction: Option<Transaction>,
    /// The queued commands of a transaction that `EXEC` has started. They run in order.
    running: VecDeque<Arguments>,
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
        Self {
            shared,
            protocol: Protocol::default(),
            is_logged_in,
            failed_logins: 0,
            name: Bytes::new(),
            id,
            transaction: None,
            running: VecDeque::new(),
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(super) fn bounds(&self) -> Bounds {
        if self.is_logged_in { Bounds::FULL } else { Bounds::BEFORE_LOGIN }
    }

    /// Removes and returns the next queued command of a transaction that `EXEC` has started. The
    /// caller must pass this command to [`plan`](Self::plan) before the client's next command.
    pub(super) fn next_queued(&mut self) -> Option<Arguments> {
        let next = self.running.pop_front()?;
        if self.running.is_empty() {
            // The empty deque is replaced, which frees the memory of a long transaction.
            self.running = VecDeque::new();
        }
        Some(next)
    }

    /// Returns the step for a command. If the command changes the state of the connection, such as
    /// the login, the next command is planned with the new state.
    pub(super) fn plan(&mut self, arguments: &Arguments) -> Planned {
        let found = find(name_of(arguments));
        let step = match self.acceptable(found.map(|(_, spec)| spec), arguments) {
            Err(rejection) => self.rejected(found.map(|(_, spec)| spec.kind), rejection),
            Ok(spec) if self.transaction.is_some() && !spec.kind.runs_in_transactions() => {
                self.queue(spec.kind, arguments)
            }
            Ok(spec) => match self.step(spec.kind, arguments) {
                Step::Reply(reply) if self.failed_logins >= MAX_FAILED_LOGINS => Step::End(reply),
                step => step,
            },
        };
        Planned { command: found.map(|(index, _)| index), protocol: self.protocol, step }
    }

    /// Checks that the command exists, that it has an allowed number of arguments, and that the
    /// client has logged in if the command requires a login.
    fn acceptable(
        &self,
        spec: Option<&'static Spec>,
        arguments: &Arguments,
    ) -> Result<&'static Spec, Rejection> {
        let rejection = |reply| Rejection { reply, is_end: false };
        let name = name_of(arguments);
        match spec {
            Some(spec) if !spec.has_arity(arguments.len()) => {
                Err(rejection(wrong_number(spec.name)))
            }
            Some(spec) if !self.is_logged_in && !spec.kind.is_open() => Err(rejection(no_login())),
            Some(spec) => Ok(spec),
            // `POST` and `Host:` begin lines of an HTTP request. A web page can make a browser send
            // such a request to this port, so the connection ends.
            None if [&b"post"[..], b"host:"].iter().any(|word| word.eq_ignore_ascii_case(name)) => {
                let reply = Reply::error("this is not an HTTP server");
                Err(Rejection { reply, is_end: true })
            }
            None if !self.is_logged_in => Err(rejection(no_login())),
            None => {
                let message = format!("unknown command '{}'", shown(name));
                Err(rejection(Reply::error(message)))
            }
        }
    }

    /// Aborts the open transaction because one of its commands was rejected. If `EXEC` itself was
    /// rejected, the transaction ends, as in Redis.
    fn rejected(&mut self, kind: Option<Kind>, Rejection { reply, is_end }: Rejection) -> Step {
        let reply = match (kind, reply) {
            (Some(Kind::Exec), Reply::Error(why)) => {
                self.transaction = None;
                let why = why.strip_prefix("ERR ").unwrap_or(&why);
                Reply::Error(format!("EXECABORT Transaction discarded because of: {why}"))
            }
            (_, reply) => {
                if let Some(transaction) = &mut self.transaction {
                    transaction.abort();
                }
                reply
            }
        };
        if is_end { Step::End(reply) } else { Step::Reply(reply) }
    }

    /// Queues a command. If the command cannot succeed, the transaction is aborted, so that `EXEC`
    /// executes none of its commands.
    fn queue(&mut self, kind: Kind, arguments: &Arguments) -> Step {
        let checked = self.check_queued(kind, arguments);
        let transaction = self.transaction.get_or_insert_default();
        match checked.and_then(|()| transaction.push(arguments)) {
            Ok(()) => Step::Queued,
            Err(reply) => {
                transaction.abort();
                Step::Reply(reply)
            }
        }
    }

    /// Checks a command before it is queued: its subcommand, or the call that it requests.
    fn check_queued(&self, kind: Kind, arguments: &Arguments) -> Result<(), Reply> {
        let rest = arguments.get(1..).unwrap_or_default();
        let calls = &self.shared.calls;
        let request = match kind {
            Kind::Throttle(style) => throttle::request(style, arguments, calls),
            Kind::Own(verb) => own::request(verb, arguments, calls),
            Kind::Client if ClientCommand::read(rest).is_none() => {
                return Err(unknown_subcommand("CLIENT", rest));
            }
            Kind::Command if describe(rest).is_none() => {
                return Err(unknown_subcommand("COMMAND", rest));
            }
            Kind::Config if !is_config_get(rest) => return Err(unknown_subcommand("CONFIG", rest)),
            _ => return Ok(()),
        };
        request.and_then(|request| request.validate()).map_err(|error| Reply::from_error(&error))
    }

    fn step(&mut self, kind: Kind, arguments: &Arguments) -> Step {
        let rest = arguments.get(1..).unwrap_or_default();
        let call = |request: Result<CallRequest, Error>, form| match request {
            Ok(request) => Step::Call(request, form),
            Err(error) => Step::Reply(Reply::from_error(&error)),
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
            Kind::Echo => rest.first().map_or(Reply::Null, |text| Reply::Bytes(text.clone())),
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
                self.transaction = None;
                Reply::Status("RESET")
            }
            Kind::Multi if self.transaction.is_some() => {
                Reply::error("MULTI calls can not be nested")
            }
            Kind::Multi => {
                self.transaction = Some(Transaction::default());
                Reply::OK
            }
            Kind::Exec => match self.transaction.take().map(Transaction::into_commands) {
                None => Reply::error("EXEC without MULTI"),
                Some(None) => {
                    let message = "EXECABORT Transaction discarded because of previous errors.";
                    Reply::Error(message.to_owned())
                }
                Some(Some(commands)) => {
                    self.running = commands;
                    Reply::ListHeader(self.running.len())
                }
            },
            Kind::Discard => match self.transaction.take() {
                Some(_) => Reply::OK,
                None => Reply::error("DISCARD without MULTI"),
            },
            Kind::Watch if self.transaction.is_some() => {
                Reply::error("WATCH inside MULTI is not allowed")
            }
            // `WATCH` fails, because after `OK` a client would expect that `EXEC` fails if the key
            // has changed.
            Kind::Watch => Reply::error(
                "WATCH is not supported, because this server has no keys to read; to charge several policies together or \
                 not at all, send one TG.ACQUIRE with AND",
            ),
            Kind::Unwatch => Reply::OK,
            Kind::Info => {
                let info = Info {
                    uptime: self.shared.started.elapsed(),
                    clients: self.shared.clients.load(Ordering::Relaxed),
                    max_clients: self.shared.settings.max_connections,
                };
                Reply::text(info.text(rest))
            }
            Kind::Command => describe(rest).unwrap_or_else(|| unknown_subcommand("COMMAND", rest)),
            Kind::Config if is_config_get(rest) => Reply::Map(Vec::new()),
            Kind::Config => unknown_subcommand("CONFIG", rest),
        })
    }

    /// Executes `HELLO [version [AUTH user password] [SETNAME name]]`.
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
        match ClientCommand::read(arguments) {
            Some(ClientCommand::Ignored) => Reply::OK,
            Some(ClientCommand::SetName(name)) => self.set_name(name),
            Some(ClientCommand::GetName) if self.name.is_empty() => Reply::Null,
            Some(ClientCommand::GetName) => Reply::Bytes(self.name.clone()),
            Some(ClientCommand::Id) => self.client_id(),
            None => unknown_subcommand("CLIENT", arguments),
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
        // The name is copied, so that it does not keep the read buffer in memory.
        self.name = Bytes::copy_from_slice(name);
        Reply::OK
    }
}

/// The reply to a command that is rejected before it is executed or queued.
struct Rejection {
    reply: Reply,
    /// Whether the connection ends.
    is_end: bool,
}

/// A subcommand of `CLIENT`.
enum ClientCommand<'a> {
    /// A subcommand that has no effect. The reply is `OK`.
    Ignored,
    SetName(&'a Bytes),
    GetName,
    Id,
}

impl<'a> ClientCommand<'a> {
    /// Parses the arguments of `CLIENT`. Returns `None` if the subcommand does not exist.
    fn read(arguments: &'a [Bytes]) -> Option<Self> {
        let (subcommand, rest) = arguments.split_first()?;
        match (&*subcommand.to_ascii_lowercase(), rest) {
            (b"setinfo", [_, _]) | (b"no-evict" | b"no-touch", [_]) => Some(Self::Ignored),
            (b"setname", [name]) => Some(Self::SetName(name)),
            (b"getname", []) => Some(Self::GetName),
            (b"id", []) => Some(Self::Id),
            _ => None,
        }
    }
}

fn name_of(arguments: &Arguments) -> &[u8] {
    arguments.first().map(|name| &**name).unwrap_or_default()
}

fn is_config_get(arguments: &[Bytes]) -> bool {
    matches!(arguments, [get, _, ..] if get.eq_ignore_ascii_case(b"get"))
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
    let subcommand = arguments.first().map(|subcommand| shown(subcommand)).unwrap_or_default();
    Reply::error(format!(
        "unknown subcommand or wrong number of arguments for '{subcommand}' of {command}"
    ))
}
