//! Determines which fields of an input are the time, the subject and the cost.

use crate::trace::bounds::{COST_MAX, LATE_COST_MAX};
use crate::trace::decimal::{Decimal, Whole, digits};
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::address::address_or_all;
use crate::trace::malformed::{Fault, value};
use crate::trace::options::{By, Cost, Options, TimeUnit};

/// The usual names of the time, with the most likely name first.
const TIMES: &[&str] = &[
    // Traefik logs the time at which a request began as `StartUTC`, and the time at which the
    // request was logged as `time`.
    "startutc",
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "datetime",
    "date_time",
    "date",
    "time_iso8601",
    "time_local",
    "edgestarttimestamp",
    "start_time",
    "starttime",
    "start",
    "requesttimeepoch",
    "requesttime",
    "eventtime",
    "event_time",
    // The manual of HAProxy uses `request_date` for logs in JSON (`%{+json}o`).
    "request_date",
    "accept_date",
    "created_at",
    "created",
    "msec",
    "t",
];

/// The usual names of the address of the client, with the most likely name first. Names for an
/// address that a server determined from its proxies precede names for the address of the
/// connection.
const ADDRESSES: &[&str] = &[
    "ip",
    "remote_addr",
    "client_ip",
    "clientip",
    "c-ip",
    "request.client_ip",
    "request.remote_ip",
    "remote_ip",
    "remoteip",
    "source_ip",
    "sourceip",
    "src_ip",
    "ip_address",
    "ipaddress",
    "clienthost",
    "client_addr",
    "clientaddr",
    "client_address",
    "clientaddress",
    "remoteaddr",
    "remote_address",
    "remoteaddress",
    "sourceipaddress",
    "calleripaddress",
    "downstream_remote_address_without_port",
    "downstream_remote_address",
    "client.ip",
    "client.address",
    "source.ip",
    "source.address",
    "http.client_ip",
    "http.request.client.ip",
    "httprequest.remoteip",
    "httprequest.clientip",
    "identity.sourceip",
    "requestcontext.identity.sourceip",
    "requestcontext.http.sourceip",
    "properties.clientip",
    "req.remoteaddress",
    "req.ip",
    "fwd",
    "forwarded",
    "x_forwarded_for",
    "x-forwarded-for",
    "http_x_forwarded_for",
];

/// Names that are used for the address of the client and for other values. The reader uses such a
/// field only if its first values are addresses.
const PERHAPS_ADDRESSES: &[&str] = &["client", "addr", "address", "remote_host", "host"];

/// The usual name of the subject in a file that was prepared for a replay.
const SUBJECT: &str = "subject";

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

/// The name of the subject if all requests together are one subject.
pub(in crate::trace) const ALL: &[u8] = b"all";

/// The names of the fields to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::trace) struct Names {
    pub(in crate::trace) time: String,
    /// The field of the subject, or `None` if all requests together are one subject.
    pub(in crate::trace) subject: Option<String>,
    /// The fields of the cost. If there are none, every request costs 1.
    pub(in crate::trace) cost: Vec<CostField>,
}

/// A field that adds to the cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::trace) struct CostField {
    pub(in crate::trace) name: String,
    pub(in crate::trace) kind: CostKind,
}

/// The meaning of a field that adds to the cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) enum CostKind {
    Known,
    /// The value is known only when the request ends.
    Late,
    /// The value is not a cost, but the duration of the request. It is multiplied by 10 to the
    /// power of `power`, so that it is in milliseconds. If no field is a cost, the request costs
    /// `cost`.
    Duration {
        power: i32,
        cost: u64,
    },
}

/// The cost of a request: the sum of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) struct CostSum {
    pub(in crate::trace) total: u64,
    /// The part of the cost that is known only when the request ends.
    pub(in crate::trace) late: u32,
}

/// The conversion of a field to a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) enum Subject {
    /// The subject is an address without its port. If the field is a list, the subject is its last
    /// address.
    Address,
    /// The subject is the text of the field.
    Text,
}

impl Subject {
    /// Returns the conversion of the field with this name.
    pub(in crate::trace) fn for_field(name: &str) -> Self {
        let is = |known: &&str| known.eq_ignore_ascii_case(name);
        if ADDRESSES.iter().chain(PERHAPS_ADDRESSES).any(is) { Self::Address } else { Self::Text }
    }

    /// Returns the subject in the text of its field.
    #[inline]
    pub(in crate::trace) fn within(self, text: &[u8]) -> &[u8] {
        match self {
            Self::Address => address_or_all(text),
            Self::Text => text,
        }
    }
}

impl Names {
    /// Determines the fields to read.
    ///
    /// `find` returns the name of a field as the input writes it. `says_address` returns `true` if
    /// one of the first values of a field is an address. `known` returns all fields of the input,
    /// for the error message.
    pub(in crate::trace) fn settle(
        options: &Options,
        find: impl Fn(&str) -> Option<String>,
        says_address: impl Fn(&str) -> bool,
        known: impl Fn() -> Vec<String>,
    ) -> Result<Self, Error> {
        let named = |name: &str, option: &str| {
            find(name).ok_or_else(|| unknown(&format!("`{}` for {option}", shown(name)), &known()))
        };
        let usual = |names: &[&str]| names.iter().find_map(|name| find(name));
        let address = || {
            let perhaps = || PERHAPS_ADDRESSES.iter().filter_map(|name| find(name));
            usual(ADDRESSES).or_else(|| perhaps().find(|name| says_address(name)))
        };
        let time = match &options.time {
            Some(name) => named(name, "the time")?,
            None => usual(TIMES)
                .ok_or_else(|| unknown("with a usual name for the time (see --time)", &known()))?,
        };
        let subject = match &options.by {
            By::All => None,
            By::Auto => {
                let found = address().or_else(|| find(SUBJECT));
                Some(found.ok_or_else(|| no_subject("an address", &known()))?)
            }
            By::Ip => Some(address().ok_or_else(|| no_subject("an address", &known()))?),
            By::User => Some(usual(USERS).ok_or_else(|| no_subject("a user", &known()))?),
            By::Field(name) => Some(named(name, "the subject")?),
        };
        let field = |name: &String, option: &str, kind: CostKind| {
            Ok::<_, Error>(CostField { name: named(name, option)?, kind })
        };
        let known_costs = match &options.cost {
            Cost::One => &[],
            Cost::Fields(names) => names.as_slice(),
        };
        let known_costs = known_costs.iter().map(|name| field(name, "the cost", CostKind::Known));
        let late_costs = &options.late_cost;
        let late_costs = late_costs.iter().map(|name| field(name, "the late cost", CostKind::Late));
        let duration = options.duration.iter().map(|duration| {
            let power = match duration.unit {
                TimeUnit::Seconds => 3,
                TimeUnit::Milliseconds => 0,
                TimeUnit::Microseconds => -3,
                TimeUnit::Nanoseconds => -6,
            };
            let has_costs = options.cost != Cost::One || !options.late_cost.is_empty();
            let kind = CostKind::Duration { power, cost: u64::from(!has_costs) };
            field(&duration.field, "the duration", kind)
        });
        let cost = known_costs.chain(late_costs).chain(duration).collect::<Result<_, _>>()?;
        Ok(Self { time, subject, cost })
    }
}

/// Returns the error for an input in which no field is known to be the subject. The reader does not
/// guess a field, because a wrong subject would give a wrong result.
pub(in crate::trace) fn no_subject(what: &str, known: &[String]) -> Error {
    let message = format!(
        "no field is known to hold {what}; the fields are {}; choose one with --by, or limit all \
         requests together with --by all",
        list(known)
    );
    Error::new(ErrorKind::UnknownSubject, message)
}

fn unknown(what: &str, known: &[String]) -> Error {
    let message = format!("there is no field {what}; the fields are {}", list(known));
    Error::new(ErrorKind::UnknownField, message)
}

fn shown(name: &str) -> String {
    crate::trace::malformed::shown(name.as_bytes(), 40)
}

fn list(known: &[String]) -> String {
    const SHOWN: usize = 40;
    let mut fields: Vec<String> =
        known.iter().take(SHOWN).map(|name| value(name.as_bytes())).collect();
    if known.len() > SHOWN {
        fields.push("…".to_owned());
    }
    fields.join(", ")
}

impl CostSum {
    /// Creates the sum to which the fields of a cost are added. If the cost has no fields, the sum
    /// is 1.
    #[inline]
    pub(in crate::trace) fn new(has_fields: bool) -> Self {
        Self { total: u64::from(!has_fields), late: 0 }
    }

    /// Adds the value of a field.
    #[inline]
    pub(in crate::trace) fn add(self, text: &[u8], field: &CostField) -> Result<Self, Fault> {
        let name = &field.name;
        if let CostKind::Duration { power, cost } = field.kind {
            let late = duration(text.trim_ascii(), power, name)?;
            return Ok(Self { total: self.total + cost, late });
        }
        let cost = match digits(text) {
            Some(cost) => cost,
            None => unusual_cost(text.trim_ascii(), name)?,
        };
        let total = match self.total.checked_add(cost) {
            Some(total) if total <= COST_MAX => total,
            _ => return Err(too_much(text, name, COST_MAX)),
        };
        if field.kind == CostKind::Known {
            return Ok(Self { total, ..self });
        }
        let late = u32::try_from(cost).ok().and_then(|cost| self.late.checked_add(cost));
        let late = late.ok_or_else(|| too_much(text, name, u64::from(LATE_COST_MAX)))?;
        Ok(Self { total, late })
    }
}

/// Returns a duration in milliseconds.
fn duration(text: &[u8], power: i32, name: &str) -> Result<u32, Fault> {
    let wrong =
        |what: &str| Fault::malformed(format!("the duration {} of `{name}` {what}", value(text)));
    let too_long = || wrong("is above 49 days");
    match Decimal::parse(text).map(|number| number.whole(power)) {
        Some(Whole::Number { floor, .. }) => u32::try_from(floor).map_err(|_| too_long()),
        Some(Whole::Negative) => Err(wrong("is below 0")),
        Some(Whole::TooLarge) => Err(too_long()),
        None => Err(wrong("is not a number")),
    }
}

#[cold]
fn too_much(text: &[u8], name: &str, max: u64) -> Fault {
    Fault::malformed(format!("the cost {} of `{name}` brings the sum above {max}", value(text)))
}

#[cold]
fn unusual_cost(text: &[u8], name: &str) -> Result<u64, Fault> {
    let wrong =
        |what: &str| Fault::malformed(format!("the cost {} of `{name}` {what}", value(text)));
    // Servers write `-` as the number of bytes of a response without a body.
    if text == b"-" && name.as_bytes().windows(5).any(|part| part.eq_ignore_ascii_case(b"bytes")) {
        return Ok(0);
    }
    match Decimal::parse(text).map(|number| number.whole(0)) {
        Some(Whole::Number { floor, exact: true }) => Ok(floor),
        Some(Whole::Number { exact: false, .. }) => Err(wrong("is not whole")),
        Some(Whole::Negative) => Err(wrong("is below 0")),
        Some(Whole::TooLarge) => Err(wrong(&format!("is above {COST_MAX}"))),
        None => Err(wrong("is not a number")),
    }
}
