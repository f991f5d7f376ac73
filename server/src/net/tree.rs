use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::net::text::shown;

/// A JSON value. An object keeps all fields in their order, so that duplicate fields are detected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(u64),
    /// A number that is negative, fractional or larger than 64 bits.
    OtherNumber(f64),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// Parses a JSON text. Lists and objects can be nested at most 128 levels deep.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| why_not_json(bytes, &error))
    }
}

/// Returns the reason why bytes are not JSON. The reason contains none of the bytes, because the
/// server also logs the reason.
fn why_not_json(bytes: &[u8], error: &serde_json::Error) -> String {
    if let Err(invalid) = std::str::from_utf8(bytes) {
        return format!("the byte at {} is not UTF-8, which JSON requires", invalid.valid_up_to());
    }
    let reason = error.to_string();
    // An error with one of these two texts means that the JSON has a lone surrogate such as
    // `"\ud800"`, which is not a character.
    match ["surrogate", "end of hex escape"].iter().any(|part| reason.contains(part)) {
        true => format!("{reason}; a surrogate, \\ud800 to \\udfff, must be one of a pair"),
        false => reason,
    }
}

/// Formats a value for a message. A text is escaped and cut. A list is shown as `a list`, and an
/// object as `an object`.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(boolean) => boolean.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::OtherNumber(number) => number.fmt(f),
            Self::Text(text) => write!(f, "\"{}\"", shown(text)),
            Self::List(_) => f.write_str("a list"),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(u64::try_from(value).map_or(Tree::OtherNumber(value as f64), Tree::Number))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::OtherNumber(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = values.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Object(fields))
    }
}
