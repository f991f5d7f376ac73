use std::error::Error;
use std::fmt;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;

use crate::envoy::request::{Entry, RateLimitDescriptor, RateLimitRequest};
use crate::net::text::shown;
use crate::net::tree::Tree;

/// The reason why a text is not a request in proto3 JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError(String);

impl JsonError {
    /// The text that the server logs if a body is JSON, but not a request. It contains no values of
    /// the request.
    pub(super) const NOT_A_REQUEST: &str = "the body is JSON, but not a request of the protocol";
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for JsonError {}

/// Reads a request in proto3 JSON. Field names can be in camelCase or snake_case, numbers can also
/// be texts, and `null` means absent.
///
/// ```
/// use tidegate_server::envoy::json::read_request;
///
/// let request = read_request(br#"{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}"#)?;
/// assert_eq!((&*request.domain, &*request.descriptors[0].entries[0].key), (&b"d"[..], &b"k"[..]));
/// assert!(read_request(br#"{"domian": "d"}"#).is_err());
/// # Ok::<(), tidegate_server::envoy::json::JsonError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the text is not JSON, if a field is unknown or occurs twice, or if a value
/// has a wrong type.
pub fn read_request(bytes: &[u8]) -> Result<RateLimitRequest, JsonError> {
    let value = Tree::read(bytes).map_err(JsonError)?;
    let mut request = RateLimitRequest::default();
    for (name, value) in object("the request", value)? {
        set(&mut request, &name, value)?;
    }
    Ok(request)
}

fn set(request: &mut RateLimitRequest, name: &str, value: Tree) -> Result<(), JsonError> {
    match name {
        "domain" => request.domain = text(name, value)?.into(),
        "descriptors" => request.descriptors = list(name, value, descriptor)?,
        "hitsAddend" | "hits_addend" => request.hits_addend = small_number(name, &value)?,
        _ => return Err(unknown(name)),
    }
    Ok(())
}

/// A call of an operator for the subject of each limit that applies to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperatorVerb {
    Reset,
    Block,
    Ban,
    Unban,
}

impl OperatorVerb {
    /// The message if no verb has the name.
    pub(super) const NAMES: &str = "the calls are /json/reset, block, ban and unban";

    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "reset" => Some(Self::Reset),
            "block" => Some(Self::Block),
            "ban" => Some(Self::Ban),
            "unban" => Some(Self::Unban),
            _ => None,
        }
    }
}

/// The options of an operator's call.
#[derive(Debug, Default)]
pub(super) struct OperatorOptions {
    /// The time of a block or a ban.
    pub(super) span: Option<Duration>,
    /// The reason of a ban.
    pub(super) reason: Option<String>,
    /// Whether an existing block that ends later stays unchanged.
    pub(super) is_at_least: bool,
}

/// Reads an operator's call, which has the fields of a request and the options of its verb.
pub(super) fn read_operator_call(
    verb: OperatorVerb,
    bytes: &[u8],
) -> Result<(RateLimitRequest, OperatorOptions), JsonError> {
    let value = Tree::read(bytes).map_err(JsonError)?;
    let (mut request, mut options) = (RateLimitRequest::default(), OperatorOptions::default());
    for (name, value) in object("the request", value)? {
        match (verb, &*name) {
            (OperatorVerb::Block, "block_ms") | (OperatorVerb::Ban, "ban_ms") => {
                options.span = Some(Duration::from_millis(number(&name, &value)?));
            }
            (OperatorVerb::Block, "at_least") => options.is_at_least = boolean(&name, &value)?,
            (OperatorVerb::Ban, "reason") => options.reason = Some(text(&name, value)?),
            _ => set(&mut request, &name, value)?,
        }
    }
    Ok((request, options))
}

fn descriptor(value: Tree) -> Result<RateLimitDescriptor, JsonError> {
    let mut descriptor = RateLimitDescriptor::default();
    for (name, value) in object("a descriptor", value)? {
        match &*name {
            "entries" => descriptor.entries = list(&name, value, entry)?,
            "limit" => descriptor.limit = Some(limit(value)?),
            "hitsAddend" | "hits_addend" => {
                descriptor.hits_addend = Some(UInt64Value { value: number(&name, &value)? });
            }
            "isNegativeHits" | "is_negative_hits" => {
                descriptor.is_negative_hits = boolean(&name, &value)?;
            }
            _ => return Err(unknown(&name)),
        }
    }
    Ok(descriptor)
}

fn entry(value: Tree) -> Result<Entry, JsonError> {
    let mut entry = Entry::default();
    for (name, value) in object("an entry", value)? {
        match &*name {
            "key" => entry.key = text(&name, value)?.into(),
            "value" => entry.value = text(&name, value)?.into(),
            _ => return Err(unknown(&name)),
        }
    }
    Ok(entry)
}

fn limit(value: Tree) -> Result<RateLimitOverride, JsonError> {
    let mut limit = RateLimitOverride::default();
    for (name, value) in object("a limit", value)? {
        match &*name {
            "requestsPerUnit" | "requests_per_unit" => {
                limit.requests_per_unit = small_number(&name, &value)?;
            }
            "unit" => limit.unit = unit(&name, &value)?,
            _ => return Err(unknown(&name)),
        }
    }
    Ok(limit)
}

fn unit(name: &str, value: &Tree) -> Result<i32, JsonError> {
    let unit = match value {
        Tree::Text(text) => RateLimitUnit::from_str_name(text).map(i32::from),
        Tree::Number(number) => i32::try_from(*number).ok(),
        _ => None,
    };
    unit.ok_or_else(|| wrong(name, value, "a unit, such as MINUTE"))
}

/// The maximum number of fields of an object that are not null. No object of the protocol has more
/// than 5 fields.
const MAX_FIELDS: usize = 16;

/// Returns the fields that are not null. Returns an error if a field occurs twice.
fn object(what: &str, value: Tree) -> Result<Vec<(String, Tree)>, JsonError> {
    let Tree::Object(mut fields) = value else {
        return Err(wrong(what, &value, "an object"));
    };
    fields.retain(|(_, value)| *value != Tree::Null);
    // The code below compares every name with all previous names, so the number of fields must be
    // small.
    if fields.len() > MAX_FIELDS {
        let count = fields.len();
        return Err(JsonError(format!("{what} has {count} fields; it has at most {MAX_FIELDS}")));
    }
    let is_repeated = |(place, (name, _)): &(usize, &(String, Tree))| {
        fields.iter().take(*place).any(|(earlier, _)| is_same_field(earlier, name))
    };
    match fields.iter().enumerate().find(is_repeated) {
        Some((_, (name, _))) => {
            Err(JsonError(format!("the field \"{}\" is given twice", shown(name))))
        }
        None => Ok(fields),
    }
}

/// Returns `true` if two names mean the same field, such as `hitsAddend` and `hits_addend`. The
/// comparison ignores underscores and upper case.
fn is_same_field(one: &str, other: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        let bytes = name.bytes().filter(|byte| *byte != b'_');
        bytes.map(|byte| byte.to_ascii_lowercase())
    }
    letters(one).eq(letters(other))
}

fn list<T>(
    name: &str,
    value: Tree,
    read: impl Fn(Tree) -> Result<T, JsonError>,
) -> Result<Vec<T>, JsonError> {
    let Tree::List(values) = value else { return Err(wrong(name, &value, "a list")) };
    values.into_iter().map(read).collect()
}

fn text(name: &str, value: Tree) -> Result<String, JsonError> {
    let Tree::Text(text) = value else { return Err(wrong(name, &value, "a text")) };
    Ok(text)
}

fn boolean(name: &str, value: &Tree) -> Result<bool, JsonError> {
    let Tree::Bool(value) = value else { return Err(wrong(name, value, "true or false")) };
    Ok(*value)
}

fn number(name: &str, value: &Tree) -> Result<u64, JsonError> {
    let number = match value {
        Tree::Text(text) => text.parse().ok(),
        Tree::Number(number) => Some(*number),
        _ => None,
    };
    number.ok_or_else(|| wrong(name, value, "a whole number of at least 0"))
}

fn small_number(name: &str, value: &Tree) -> Result<u32, JsonError> {
    let number = number(name, value)?;
    u32::try_from(number).map_err(|_| wrong(name, value, "at most 4294967295"))
}

fn wrong(name: &str, value: &Tree, expected: &str) -> JsonError {
    JsonError(format!("{name} is {value}; it must be {expected}"))
}

fn unknown(name: &str) -> JsonError {
    JsonError(format!("unknown field \"{}\"", shown(name)))
}
