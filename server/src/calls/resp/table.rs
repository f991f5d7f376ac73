//! All commands, with what `COMMAND` tells of each.

use super::reply::Reply;
use super::throttle::Style;
use crate::calls::Verb;

/// A command.
#[derive(Debug)]
pub(super) struct Spec {
    /// In lower case.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The number of arguments with the name, or if it is negative the minimum of it.
    arity: i64,
    summary: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Throttle(Style),
    Own(Verb),
    Ping,
    Echo,
    Hello,
    Auth,
    Client,
    Select,
    Quit,
    Reset,
    Info,
    Command,
    Config,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

impl Kind {
    /// Returns `true` if a client may send the command before it logs in.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Hello | Self::Auth | Self::Quit | Self::Reset)
    }

    /// Returns `true` if the command is executed immediately after `MULTI`, as in Redis.
    pub(super) fn runs_in_transactions(self) -> bool {
        use Kind::{Discard, Exec, Multi, Quit, Reset, Watch};
        matches!(self, Multi | Exec | Discard | Watch | Quit | Reset)
    }
}

const fn spec(name: &'static str, kind: Kind, arity: i64, summary: &'static str) -> Spec {
    Spec { name, kind, arity, summary }
}

/// A linear search finds the frequent ones first.
pub(super) static COMMANDS: [Spec; 28] = [
    spec("cl.throttle", Kind::Throttle(Style::RedisCell), -5, "Limits a key, as redis-cell"),
    spec("throttle", Kind::Throttle(Style::Throttlecrab), -5, "Limits a key, as throttlecrab"),
    spec("tg.acquire", Kind::Own(Verb::Acquire), -3, "Charges policies, all or none"),
    spec("tg.peek", Kind::Own(Verb::Peek), -3, "Says what TG.ACQUIRE would, and takes nothing"),
    spec("tg.charge", Kind::Own(Verb::Charge), -3, "Charges what has happened already"),
    spec("tg.refund", Kind::Own(Verb::Refund), -3, "Gives back, at most what is taken"),
    spec("tg.block", Kind::Own(Verb::Block), -5, "Refuses a key for a time"),
    spec("tg.reset", Kind::Own(Verb::Reset), -3, "Forgets what a key has taken, and its block"),
    spec("tg.hold", Kind::Own(Verb::Hold), -7, "Charges an estimate, which is settled later"),
    spec("tg.settle", Kind::Own(Verb::Settle), -7, "Settles a hold at what was used"),
    spec("tg.cancel", Kind::Own(Verb::Cancel), -5, "Settles a hold at nothing"),
    spec("tg.extend", Kind::Own(Verb::Extend), -7, "Lets a hold be needed for longer"),
    spec("ping", Kind::Ping, -1, "Answers PONG, or its argument"),
    spec("echo", Kind::Echo, 2, "Answers its argument"),
    spec("hello", Kind::Hello, -1, "Chooses the protocol, and logs in"),
    spec("auth", Kind::Auth, -2, "Logs in"),
    spec("client", Kind::Client, -2, "Names the connection"),
    spec("select", Kind::Select, 2, "Chooses database 0, the only one"),
    spec("quit", Kind::Quit, -1, "Ends the connection"),
    spec("reset", Kind::Reset, 1, "Sets the connection back to its beginning"),
    spec("info", Kind::Info, -1, "Says what the server is and does"),
    spec("command", Kind::Command, -1, "Lists the commands"),
    spec("config", Kind::Config, -2, "Has no settings to show"),
    spec("multi", Kind::Multi, 1, "Begins a transaction: the next commands are queued"),
    spec("exec", Kind::Exec, 1, "Executes the queued commands in order"),
    spec("discard", Kind::Discard, 1, "Discards the queued commands"),
    spec("watch", Kind::Watch, -2, "Is refused, because there are no keys to watch"),
    spec("unwatch", Kind::Unwatch, 1, "Answers OK, because no keys are watched"),
];

pub(super) fn find(name: &[u8]) -> Option<(usize, &'static Spec)> {
    COMMANDS.iter().enumerate().find(|(_, it)| it.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Spec {
    pub(super) fn has_arity(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Throttle(_) | Kind::Own(_))
    }

    /// What `COMMAND INFO` says, as of Redis 6.
    fn info(&self) -> Reply {
        let flags: &[&'static str] = match self.kind {
            Kind::Own(Verb::Peek) => &["readonly", "fast"],
            Kind::Throttle(_) | Kind::Own(_) => &["write", "fast"],
            Kind::Hello | Kind::Auth | Kind::Quit | Kind::Reset => &["noscript", "no_auth", "fast"],
            _ => &["loading", "stale", "fast"],
        };
        let key = Reply::Integer(i64::from(self.is_call()));
        let flags = flags.iter().map(|it| Reply::Status(it)).collect();
        Reply::List(vec![
            Reply::text(self.name),
            Reply::Integer(self.arity),
            Reply::List(flags),
            key.clone(),
            key.clone(),
            key,
        ])
    }

    fn docs(&self) -> (&'static str, Reply) {
        let group = match self.kind {
            Kind::Throttle(_) | Kind::Own(_) => "module",
            Kind::Multi | Kind::Exec | Kind::Discard | Kind::Watch | Kind::Unwatch => {
                "transactions"
            }
            _ => "connection",
        };
        let docs = vec![
            ("summary", Reply::text(self.summary)),
            ("since", Reply::text("0.1.0")),
            ("group", Reply::text(group)),
        ];
        (self.name, Reply::Map(docs))
    }
}

/// The reply to `COMMAND [COUNT | LIST | INFO [name…] | DOCS [name…]]`.
pub(super) fn describe(arguments: &[impl AsRef<[u8]>]) -> Option<Reply> {
    let [subcommand, names @ ..] = arguments else {
        return Some(Reply::List(COMMANDS.iter().map(Spec::info).collect()));
    };
    // So that a short command has no reply that is much larger.
    if names.len() > COMMANDS.len() {
        return None;
    }
    let named = || names.iter().map(|name| find(name.as_ref()).map(|(_, it)| it));
    let subcommand = subcommand.as_ref().to_ascii_lowercase();
    Some(match (&*subcommand, names) {
        (b"count", []) => Reply::Integer(COMMANDS.iter().map(|_| 1).sum()),
        (b"list", []) => Reply::List(COMMANDS.iter().map(|it| Reply::text(it.name)).collect()),
        (b"info", []) => Reply::List(COMMANDS.iter().map(Spec::info).collect()),
        (b"info", _) => Reply::List(named().map(|it| it.map_or(Reply::Null, Spec::info)).collect()),
        (b"docs", []) => Reply::Map(COMMANDS.iter().map(Spec::docs).collect()),
        (b"docs", _) => Reply::Map(named().flatten().map(Spec::docs).collect()),
        _ => return None,
    })
}
