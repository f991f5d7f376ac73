//! The table of all commands, and the replies of `COMMAND`.

use super::reply::Reply;
use super::throttle::Style;
use crate::calls::Verb;

/// A command.
#[derive(Debug)]
pub(super) struct Spec {
    /// The name in lower case.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The number of arguments, including the name. A negative number is a minimum: -3 means at
    /// least 3 arguments.
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

    /// Returns `true` if the command is executed immediately even after `MULTI`, instead of being
    /// queued, as in Redis.
    pub(super) fn runs_in_transactions(self) -> bool {
        use Kind::{Discard, Exec, Multi, Quit, Reset, Watch};
        matches!(self, Multi | Exec | Discard | Watch | Quit | Reset)
    }
}

const fn spec(name: &'static str, kind: Kind, arity: i64, summary: &'static str) -> Spec {
    Spec { name, kind, arity, summary }
}

/// The table of commands. Frequent commands are first, because the search is linear.
pub(super) static COMMANDS: [Spec; 32] = [
    spec("cl.throttle", Kind::Throttle(Style::RedisCell), -5, "Limits a key, as redis-cell does"),
    spec("throttle", Kind::Throttle(Style::Throttlecrab), -5, "Limits a key, as throttlecrab does"),
    spec("tg.acquire", Kind::Own(Verb::Acquire), -3, "Charges all policies or none"),
    spec("tg.peek", Kind::Own(Verb::Peek), -3, "Decides as TG.ACQUIRE would, and charges nothing"),
    spec("tg.charge", Kind::Own(Verb::Charge), -3, "Charges an amount that was already used"),
    spec("tg.grant", Kind::Own(Verb::Grant), -5, "Adds to the quota or the credits of a key"),
    spec("tg.refund", Kind::Own(Verb::Refund), -3, "Refunds at most the amount that is charged"),
    spec("tg.block", Kind::Own(Verb::Block), -5, "Refuses a key for a time"),
    spec("tg.ban", Kind::Own(Verb::Ban), -7, "Bans a key for a time, with a reason"),
    spec(
        "tg.unban",
        Kind::Own(Verb::Unban),
        -3,
        "Ends the block of a key, and forgets its offenses",
    ),
    spec("tg.reset", Kind::Own(Verb::Reset), -3, "Deletes the state of a key, including its block"),
    spec("tg.hold", Kind::Own(Verb::Hold), -7, "Charges an estimate, which is settled later"),
    spec("tg.settle", Kind::Own(Verb::Settle), -7, "Settles a hold at the amount that was used"),
    spec("tg.cancel", Kind::Own(Verb::Cancel), -5, "Settles a hold at zero"),
    spec("tg.extend", Kind::Own(Verb::Extend), -7, "Extends the time of a hold"),
    spec("tg.leave", Kind::Own(Verb::Leave), -5, "Gives up a place in the queue for slots"),
    spec("ping", Kind::Ping, -1, "Answers PONG, or its argument"),
    spec("echo", Kind::Echo, 2, "Answers its argument"),
    spec("hello", Kind::Hello, -1, "Chooses the protocol, and logs in"),
    spec("auth", Kind::Auth, -2, "Logs in"),
    spec("client", Kind::Client, -2, "Names the connection"),
    spec("select", Kind::Select, 2, "Chooses database 0, the only one"),
    spec("quit", Kind::Quit, -1, "Ends the connection"),
    spec("reset", Kind::Reset, 1, "Resets the state of the connection"),
    spec("info", Kind::Info, -1, "Returns information about the server"),
    spec("command", Kind::Command, -1, "Lists the commands"),
    spec("config", Kind::Config, -2, "Returns no settings"),
    spec("multi", Kind::Multi, 1, "Begins a transaction: the next commands are queued"),
    spec("exec", Kind::Exec, 1, "Executes the queued commands in order"),
    spec("discard", Kind::Discard, 1, "Discards the queued commands"),
    spec("watch", Kind::Watch, -2, "Is refused, because there are no keys to watch"),
    spec("unwatch", Kind::Unwatch, 1, "Answers OK, because no keys are watched"),
];

pub(super) fn find(name: &[u8]) -> Option<(usize, &'static Spec)> {
    COMMANDS.iter().enumerate().find(|(_, spec)| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Spec {
    pub(super) fn has_arity(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Throttle(_) | Kind::Own(_))
    }

    /// Returns the element of `COMMAND INFO` for this command, in the format of Redis 6.
    fn info(&self) -> Reply {
        let flags: &[&'static str] = match self.kind {
            Kind::Own(Verb::Peek) => &["readonly", "fast"],
            Kind::Throttle(_) | Kind::Own(_) => &["write", "fast"],
            Kind::Hello | Kind::Auth | Kind::Quit | Kind::Reset => &["noscript", "no_auth", "fast"],
            _ => &["loading", "stale", "fast"],
        };
        let key = Reply::Integer(i64::from(self.is_call()));
        let flags = flags.iter().map(|flag| Reply::Status(flag)).collect();
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

/// Returns the reply to `COMMAND [COUNT | LIST | INFO [name…] | DOCS [name…]]`.
pub(super) fn describe(arguments: &[impl AsRef<[u8]>]) -> Option<Reply> {
    let [subcommand, names @ ..] = arguments else {
        return Some(Reply::List(COMMANDS.iter().map(Spec::info).collect()));
    };
    // A client can repeat a name. Without this bound, a short command could have a much longer
    // reply.
    if names.len() > COMMANDS.len() {
        return None;
    }
    let named = || names.iter().map(|name| find(name.as_ref()).map(|(_, spec)| spec));
    let subcommand = subcommand.as_ref().to_ascii_lowercase();
    Some(match (&*subcommand, names) {
        (b"count", []) => Reply::Integer(COMMANDS.iter().map(|_| 1).sum()),
        (b"list", []) => Reply::List(COMMANDS.iter().map(|spec| Reply::text(spec.name)).collect()),
        (b"info", []) => Reply::List(COMMANDS.iter().map(Spec::info).collect()),
        (b"info", _) => {
            Reply::List(named().map(|found| found.map_or(Reply::Null, Spec::info)).collect())
        }
        (b"docs", []) => Reply::Map(COMMANDS.iter().map(Spec::docs).collect()),
        (b"docs", _) => Reply::Map(named().flatten().map(Spec::docs).collect()),
        _ => return None,
    })
}
