//! Finds a few values in a JSON object, and skips all other values.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

/// The maximum depth of objects in which names of fields are collected.
const DEPTH: usize = 8;

/// The maximum number of collected names. Without it, an input with new names in each line would
/// fill the memory.
const NAMES: usize = 10_000;

/// The values of the wanted names, each as it is written in the object.
pub(super) type Values<'a> = SmallVec<[Option<&'a str>; 4]>;

/// Finds the values of the wanted names. A name is a key or a path `object.key`.
pub(super) fn values<'a>(
    line: &'a [u8],
    wanted: &[String],
    found: &mut Values<'a>,
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(line);
    (&mut json).deserialize_map(Pick { wanted, path: "", found })?;
    json.end()
}

/// Adds the names of the fields of a JSON object to `known`. If the JSON is invalid, it adds the
/// names before the error.
pub(super) fn keys(line: &[u8], known: &mut BTreeSet<String>) {
    let mut json = serde_json::Deserializer::from_slice(line);
    // The error is ignored, because a truncated or invalid line still has keys before the error.
    let _ = json.deserialize_map(Keys { known, path: "", depth: DEPTH });
}

/// A visitor that finds values in one object. `path` is the path of this object within the line,
/// such as `request.`. It is empty for the outermost object.
struct Pick<'w, 'f, 'a> {
    wanted: &'w [String],
    path: &'w str,
    found: &'f mut Values<'a>,
}

/// The result of comparing a key with the wanted names. The key is the key of a wanted value, of an
/// object that contains a wanted value, or of neither. The number is the index of a wanted name.
enum Leads {
    To(usize),
    Into(usize),
    Nowhere,
}

impl<'a> Visitor<'a> for Pick<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let Self { wanted, path, found } = self;
        while let Some((leads, length)) = map.next_key_seed(Key { wanted, path })? {
            let (Leads::To(first) | Leads::Into(first)) = leads else {
                map.next_value::<serde::de::IgnoredAny>()?;
                continue;
            };
            let value: &'a RawValue = map.next_value()?;
            let Some(name) = wanted.get(first) else {
                continue;
            };
            if matches!(leads, Leads::To(_)) {
                for (other, place) in wanted.iter().zip(found.iter_mut()) {
                    if other == name {
                        *place = Some(value.get());
                    }
                }
            } else if value.get().starts_with('{') {
                let path = name.get(..path.len() + length + 1).unwrap_or_default();
                serde_json::Deserializer::from_str(value.get())
                    .deserialize_map(Pick { wanted, path, found })
                    .map_err(serde::de::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// A seed that compares a key with the wanted names, without copying the key.
struct Key<'w> {
    wanted: &'w [String],
    path: &'w str,
}

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = (Leads, usize);

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = (Leads, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        let mut leads = Leads::Nowhere;
        for (place, name) in self.wanted.iter().enumerate() {
            match name.strip_prefix(self.path).and_then(|rest| rest.strip_prefix(key)) {
                Some("") => {
                    leads = Leads::To(place);
                    break;
                }
                Some(rest) if rest.starts_with('.') => leads = Leads::Into(place),
                _ => {}
            }
        }
        Ok((leads, key.len()))
    }
}

/// A visitor that collects the keys of an object and of the objects inside it.
struct Keys<'k, 'p> {
    known: &'k mut BTreeSet<String>,
    path: &'p str,
    depth: usize,
}

impl<'a> Visitor<'a> for Keys<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let name = format!("{}{key}", self.path);
            let value: &'a RawValue = map.next_value()?;
            if value.get().starts_with('{') && self.depth > 1 {
                let (known, path) = (&mut *self.known, &format!("{name}.")[..]);
                let _ = serde_json::Deserializer::from_str(value.get()).deserialize_map(Keys {
                    known,
                    path,
                    depth: self.depth - 1,
                });
            } else if self.known.len() < NAMES {
                self.known.insert(name);
            }
        }
        Ok(())
    }
}
