//! Which of an input's fields are the time, the subject and the cost.

use super::decimal::{Decimal, Whole, digits};
use super::error::{Error, ErrorKind};
use super::faults::{Fault, value};
use super::options::{By, Cost, Options};
use super::record::COST_MAX;

/// The usual names of the time, the likeliest first.
const TIMES: &[&str] = &[
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "datetime",
    "date_time",
    "date",
    "time_iso8601",
    "time_local",
    "start_time",
    "starttime",
    "start",
    "created_at",
    "created",
    "msec",
    "t",
];

/// The usual names of the client's address.
const ADDRESSES: &[&str] = &[
    "ip",
    "remote_addr",
    "client_ip",
    "clientip",
    "remote_ip",
    "source_ip",
    "src_ip",
    "addr",
    "address",
    "ip_address",
    "remote_host",
    "client",
    "host",
    "c-ip",
    "client.ip",
    "source.ip",
    "source.address",
    "request.remote_ip",
    "request.client_ip",
];

/// The usual names of the user.
const USERS: &[&str] = &[
    "user",
    "username",
    "user_name",
    "user_id",
    "userid",
    "uid",
    "remote_user",
    "account",
    "account_id",
    "login",
    "user.name",
    "user.id",
];

/// What the subject is called where all requests together are one.
pub(super) const ALL: &[u8] = b"all";

/// The names of the fields to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) time: String,
    /// None: all requests together are one subject.
    pub(super) subject: Option<String>,
    /// None: every request costs 1.
    pub(super) cost: Vec<String>,
}

impl Names {
    /// Settles which fields to read, given how a field of that name is found.
    ///
    /// `find` answers with the field's name as the input writes it; `known` are the fields there
    /// are, for the message.
    pub(super) fn settle(
        options: &Options,
        find: impl Fn(&str) -> Option<String>,
        known: impl Fn() -> Vec<String>,
    ) -> Result<Self, Error> {
        let named = |name: &str, option: &str| {
            find(name).ok_or_else(|| unknown(&format!("`{name}` for {option}"), &known()))
        };
        let usual = |names: &[&str]| names.iter().find_map(|name| find(name));
        let time = match &options.time {
            Some(name) => named(name, "the time")?,
            None => usual(TIMES)
                .ok_or_else(|| unknown("with a usual name for the time (see --time)", &known()))?,
        };
        let subject = match &options.by {
            By::All => None,
            By::Auto => usual(ADDRESSES),
            By::Ip => Some(usual(ADDRESSES).ok_or_else(|| {
                unknown("with a usual name for the address (see --by and --subject)", &known())
            })?),
            By::User => Some(usual(USERS).ok_or_else(|| {
                unknown("with a usual name for the user (see --by and --subject)", &known())
            })?),
            By::Field(name) => Some(named(name, "the subject")?),
        };
        let cost = match &options.cost {
            Cost::One => Vec::new(),
            Cost::Fields(names) => {
                names.iter().map(|name| named(name, "the cost")).collect::<Result<_, _>>()?
            }
        };
        Ok(Self { time, subject, cost })
    }
}

fn unknown(what: &str, known: &[String]) -> Error {
    const SHOWN: usize = 40;
    let mut fields: Vec<String> =
        known.iter().take(SHOWN).map(|name| value(name.as_bytes())).collect();
    if known.len() > SHOWN {
        fields.push("…".to_owned());
    }
    let message = format!("there is no field {what}; the fields are {}", fields.join(", "));
    Error::new(ErrorKind::UnknownField, message)
}

/// Adds the cost that one field says to the sum of those before it.
#[inline]
pub(super) fn add_cost(sum: u64, text: &[u8], name: &str) -> Result<u64, Fault> {
    let cost = match digits(text) {
        Some(cost) => cost,
        None => unusual_cost(text.trim_ascii(), name)?,
    };
    match sum.checked_add(cost) {
        Some(sum) if sum <= COST_MAX => Ok(sum),
        _ => Err(Fault::malformed(format!(
            "the cost {} of `{name}` brings the sum above {COST_MAX}",
            value(text)
        ))),
    }
}

#[cold]
fn unusual_cost(text: &[u8], name: &str) -> Result<u64, Fault> {
    let wrong =
        |what: &str| Fault::malformed(format!("the cost {} of `{name}` {what}", value(text)));
    match Decimal::parse(text).map(|number| number.whole(0)) {
        Some(Whole::Number { floor, exact: true }) => Ok(floor),
        Some(Whole::Number { exact: false, .. }) => Err(wrong("is not whole")),
        Some(Whole::Negative) => Err(wrong("is below 0")),
        Some(Whole::TooLarge) => Err(wrong(&format!("is above {COST_MAX}"))),
        None => Err(wrong("is no number")),
    }
}
