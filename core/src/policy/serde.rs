//! Serializes policies and shares as text, for configuration files.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use ::serde::de::Visitor;
use ::serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Policy;
use super::error::PolicyError;
use super::share::Share;
use crate::error::ErrorKind;

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Policy {
    /// Reads the text of a policy. The message of an error is one line, which contains the problem
    /// and the text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text::new("the text of a policy, such as `api: gcra 10/1s`"))
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text::new("a share, such as `1/3`"))
    }
}

impl Serialize for ErrorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A visitor that parses a value from its text.
struct Text<T>(&'static str, PhantomData<T>);

impl<T> Text<T> {
    fn new(expected: &'static str) -> Self {
        Self(expected, PhantomData)
    }
}

impl<T: FromStr<Err = PolicyError>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|error: PolicyError| E::custom(error.in_one_line()))
    }
}
