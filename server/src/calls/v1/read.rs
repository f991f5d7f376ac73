use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tidegate_core::{Error, ErrorKind, MAX_CHARGES};

use super::fields::{self, Field};
use crate::calls::{CallOptions, CallRequest, Calls, ChargeRequest, OptionError, Verb};
use crate::net::text::shown;
use crate::net::tree::Tree;

/// The maximum of a number in a request. Many JSON parsers store numbers as floating-point numbers,
/// which are not exact above this maximum.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A call, and the form of its answer.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) call: CallRequest,
    /// Whether the request contains its charges in the list `charges`. If so, the answer has a list
    /// `charges` too.
    pub(super) has_list: bool,
}

/// The fields of a charge that have been read so far.
#[derive(Default)]
struct Part {
    policy: Option<String>,
    subject: Option<Bytes>,
    tenant: Option<Bytes>,
    cost: Option<u64>,
    is_check_only: bool,
    is_alternative: bool,
}

/// The reason why a body is not a call.
#[derive(Debug)]
pub(super) enum NotRead {
    /// The body is not JSON.
    Json(String),
    /// The body is JSON, but not a valid call.
    Call(Error),
}

impl From<Error> for NotRead {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl NotRead {
    /// Returns the error that the client receives.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Json(why) => invalid(format!("the body is not JSON: {why}")),
            Self::Call(error) => error,
        }
    }
}

/// Reads the body of a request.
pub(super) fn read(verb: Verb, body: &[u8], calls: &Calls) -> Result<Request, NotRead> {
    let tree = Tree::read(body).map_err(NotRead::Json)?;
    let Tree::Object(given) = tree else {
        return Err(invalid(format!("the body is {tree}; it must be an object")).into());
    };
    let (mut options, mut single) = (CallOptions::default(), Part::default());
    let (mut list, mut first_of_charge) = (None, None);
    // A single charge has no alternatives.
    let charge_fields = fields::charge_fields(verb).filter(|field| *field != Field::Or);
    let known = [Field::Charges].into_iter().chain(charge_fields);
    let known: Vec<Field> = known.chain(fields::call_fields(verb)).collect();
    for field in once_each("", given, &known)? {
        let (field, name, value) = field;
        match field {
            Field::Charges => list = Some(value),
            Field::Min => options.min = Some(number(&name, value, 1)?),
            Field::Id => options.id = Some(text(&name, value)?.into()),
            Field::TtlMs | Field::BlockMs | Field::BanMs => {
                options.span = Some(Duration::from_millis(number(&name, value, 0)?));
            }
            Field::Reason => options.reason = Some(text(&name, value)?),
            Field::AtLeast => options.is_at_least = boolean(&name, value)?,
            Field::SoFar => options.is_so_far = boolean(&name, value)?,
            Field::Place => options.place = Some(number(&name, value, 0)?),
            Field::EndsAtMs => options.set_ends_at_millis(number(&name, value, 0)?),
            _ => {
                single.set(field, &name, value)?;
                first_of_charge.get_or_insert(name);
            }
        }
    }
    let has_list = list.is_some();
    let charges = match (list, first_of_charge) {
        (Some(list), None) => read_list(verb, list, calls)?,
        (Some(_), Some(name)) => {
            let message = format!(
                "{name} cannot be combined with `charges`; move it into an entry of `charges`"
            );
            return Err(invalid(message).into());
        }
        (None, _) => vec![single.charge("", calls)?],
    };
    if charges.first().is_some_and(|(first, _)| first.is_alternative) {
        let message = "charges[0].or is true; no charge is before it, so it must be false";
        return Err(invalid(message.to_owned()).into());
    }
    let call = verb.call(charges, options).map_err(|option| match option {
        OptionError::PlaceWithMinimum => invalid("place cannot be combined with min".to_owned()),
        option => missing(&name_of(option)),
    })?;
    Ok(Request { call, has_list })
}

fn read_list(
    verb: Verb,
    value: Tree,
    calls: &Calls,
) -> Result<Vec<(ChargeRequest, Option<u64>)>, Error> {
    let Tree::List(list) = value else {
        return Err(wrong("charges", &value, "a list"));
    };
    let len = list.len();
    if !(1..=MAX_CHARGES).contains(&len) {
        let message = format!("charges has {len} elements; it must have 1 to {MAX_CHARGES}");
        return Err(invalid(message));
    }
    let known: Vec<Field> = fields::charge_fields(verb).collect();
    let charge = |(index, value)| {
        let place = format!("charges[{index}]");
        let Tree::Object(given) = value else {
            return Err(wrong(&place, &value, "an object"));
        };
        let place = place + ".";
        let mut part = Part::default();
        for (field, name, value) in once_each(&place, given, &known)? {
            part.set(field, &name, value)?;
        }
        part.charge(&place, calls)
    };
    list.into_iter().enumerate().map(charge).collect()
}

/// Returns each field with its full name, such as `charges[0].cost`. Returns an error if a field is
/// unknown or occurs twice.
fn once_each(
    place: &str,
    given: Vec<(String, Tree)>,
    known: &[Field],
) -> Result<Vec<(Field, String, Tree)>, Error> {
    let mut fields: Vec<(Field, String, Tree)> = Vec::new();
    for (name, value) in given {
        let Some(field) = known.iter().copied().find(|field| field.name() == name) else {
            let known: Vec<&str> = known.iter().map(|field| field.name()).collect();
            let (name, known) = (shown(&name), known.join(", "));
            return Err(invalid(format!(
                "there is no field {place}{name}; the known fields are {known}"
            )));
        };
        let name = if place.is_empty() { name } else { format!("{place}{name}") };
        if fields.iter().any(|(other, ..)| *other == field) {
            return Err(invalid(format!("{name} is given twice")));
        }
        fields.push((field, name, value));
    }
    Ok(fields)
}

impl Part {
    fn set(&mut self, field: Field, name: &str, value: Tree) -> Result<(), Error> {
        let is_new = match field {
            Field::Policy => self.policy.replace(text(name, value)?).is_none(),
            Field::Subject => self.subject.replace(text(name, value)?.into()).is_none(),
            Field::SubjectBase64 => self.subject.replace(base64(name, &value)?).is_none(),
            Field::Tenant => self.tenant.replace(text(name, value)?.into()).is_none(),
            Field::TenantBase64 => self.tenant.replace(base64(name, &value)?).is_none(),
            Field::Cost => self.cost.replace(number(name, value, 0)?).is_none(),
            Field::Or => {
                self.is_alternative = boolean(name, value)?;
                true
            }
            _ => {
                self.is_check_only = boolean(name, value)?;
                true
            }
        };
        match is_new {
            true => Ok(()),
            false => Err(invalid(format!("{name} is given as a text and in Base64"))),
        }
    }

    fn charge(self, place: &str, calls: &Calls) -> Result<(ChargeRequest, Option<u64>), Error> {
        let needed = |field: Field| missing(&format!("{place}{}", field.name()));
        let policy = self.policy.ok_or_else(|| needed(Field::Policy))?;
        let subject = self.subject.ok_or_else(|| needed(Field::Subject))?;
        let in_field = |error: Error| error.with_context(format!("{place}policy"));
        let policy = calls.policies().parse(&policy).map_err(in_field)?;
        let mut charge = ChargeRequest::new(policy, subject);
        charge.tenant = self.tenant.unwrap_or_default();
        charge.is_check_only = self.is_check_only;
        charge.is_alternative = self.is_alternative;
        Ok((charge, self.cost))
    }
}

fn text(name: &str, value: Tree) -> Result<String, Error> {
    match value {
        Tree::Text(text) => Ok(text),
        other => Err(wrong(name, &other, "a text")),
    }
}

fn base64(name: &str, value: &Tree) -> Result<Bytes, Error> {
    let decoded = match value {
        Tree::Text(text) => STANDARD.decode(text).ok(),
        _ => None,
    };
    let expected = "a text in Base64, such as \"/w==\"";
    decoded.map(Bytes::from).ok_or_else(|| wrong(name, value, expected))
}

fn boolean(name: &str, value: Tree) -> Result<bool, Error> {
    match value {
        Tree::Bool(boolean) => Ok(boolean),
        other => Err(wrong(name, &other, "true or false")),
    }
}

fn number(name: &str, value: Tree, min: u64) -> Result<u64, Error> {
    match value {
        Tree::Number(number) if (min..=MAX_NUMBER).contains(&number) => Ok(number),
        other => Err(wrong(name, &other, &format!("a whole number from {min} to {MAX_NUMBER}"))),
    }
}

fn name_of(option: OptionError) -> String {
    match option {
        OptionError::BlockSpan => "block_ms",
        OptionError::BanSpan => "ban_ms",
        OptionError::Reason => "reason",
        OptionError::Cost => "cost, the actual usage of each charge without `check`,",
        OptionError::Id => "id",
        OptionError::IdOfTimeToLive => "id, to which ttl_ms applies,",
        OptionError::TimeToLive => "ttl_ms, the time to live of id,",
        OptionError::Place | OptionError::PlaceWithMinimum => "place",
    }
    .to_owned()
}

fn missing(what: &str) -> Error {
    invalid(format!("{what} is missing"))
}

fn wrong(name: &str, value: &Tree, expected: &str) -> Error {
    invalid(format!("{name} is {value}; it must be {expected}"))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCall, message)
}
