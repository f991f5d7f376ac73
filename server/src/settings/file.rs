//! The settings file: TOML with one table for each section.

use std::fs;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Mistake;
use super::values::{Origin, Values};

/// The maximum size of a settings file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A setting or a section in a file.
pub(super) struct Item {
    /// The section and the name, such as `grpc.address`. For a section, it is the section alone.
    /// For a setting outside of a section, it is the name alone.
    pub(super) key: String,
    /// The value as text; empty if the value is not a text, a number or a boolean.
    pub(super) text: String,
    /// The type of the value; `section` for a section.
    kind: &'static str,
    key_place: String,
    value_place: String,
}

/// Parses a settings file. `text` is the content of the file, and `file` is its name. Returns the
/// sections and the settings in the order of the file.
///
/// # Errors
///
/// Returns an error with the position if `text` is not TOML.
pub(super) fn items(text: &str, file: &str) -> Result<Vec<Item>, Mistake> {
    let place = |offset: usize| {
        let before = text.get(..offset).unwrap_or(text);
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("{file}:{}:{column}", before.matches('\n').count() + 1)
    };
    let table = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        Mistake::value(format!("{}: {}", place(start), error.message()))
    })?;
    let mut items = Vec::new();
    let mut add = |key: String, start: usize, value: &Spanned<DeValue<'_>>, kind| {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Boolean(is_on) => is_on.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_) => String::new(),
        };
        let (key_place, value_place) = (place(start), place(value.span().start));
        items.push((start, Item { key, text, kind, key_place, value_place }));
    };
    for (section, content) in table.get_ref() {
        let (name, start) = (section.get_ref(), section.span().start);
        let DeValue::Table(settings) = content.get_ref() else {
            add(name.to_string(), start, content, content.get_ref().type_str());
            continue;
        };
        add(name.to_string(), start, content, SECTION);
        for (key, value) in settings {
            let full = format!("{name}.{}", key.get_ref());
            add(full, key.span().start, value, value.get_ref().type_str());
        }
    }
    items.sort_by_key(|(start, _)| *start);
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

const SECTION: &str = "section";

/// Reads the settings file at `path`, and sets its values in `values`.
///
/// # Errors
///
/// Returns an error with the position if the file is not valid or has an unknown setting.
pub(super) fn apply(values: &mut Values, path: &Path) -> Result<(), Mistake> {
    let shown = path.display();
    let unreadable = |error| Mistake::value(format!("{shown}: the file cannot be read: {error}"));
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MAX_BYTES {
        let message = format!("{shown} has {bytes} bytes; it must have at most {MAX_BYTES}");
        return Err(Mistake::value(message));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    for Item { key, text, kind, key_place, value_place } in items(&text, &shown.to_string())? {
        let section = |setting: &str| setting.split('.').next().unwrap_or("").to_owned();
        let is_section = values.keys().map(section).any(|section| section == key);
        let why = match (kind, is_section) {
            (SECTION, true) => continue,
            (SECTION, false) => unknown(SECTION, &key, values.keys().map(section)),
            (_, true) => format!("`{key}` is a section; it must be written [{key}]"),
            (_, false) if values.set(&key, text, Origin::File(value_place.clone())) => {
                let is_possible = match values.is_quoted(&key) {
                    true => kind == "string",
                    false => !["array", "table", "datetime"].contains(&kind),
                };
                if is_possible {
                    continue;
                }
                let bound = match values.is_quoted(&key) {
                    true => "a text in quotation marks",
                    false => "a number, true or false",
                };
                let message = format!("{key} is of the type {kind}; it must be {bound}");
                return Err(Mistake::value(format!("{value_place}: {message}")));
            }
            (_, false) => unknown("setting", &key, values.keys().map(str::to_owned)),
        };
        return Err(Mistake::value(format!("{key_place}: {why}")));
    }
    Ok(())
}

fn unknown(kind: &str, name: &str, known: impl Iterator<Item = String>) -> String {
    let name: String = name.chars().take(100).collect();
    let shown = name.escape_debug();
    match nearest(&name, known) {
        Some(nearest) => format!("unknown {kind} `{shown}`; did you mean `{nearest}`?"),
        None => format!("unknown {kind} `{shown}`"),
    }
}

/// Returns the known name that is most similar to `name`, if one is similar.
pub(super) fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let part = name.split_once('.').map_or(name, |(_, part)| part);
    let similarity = |known: &String| {
        let own = known.split_once('.').map_or(&**known, |(_, own)| own);
        // Two names that differ only in their sections have a similarity of at least 0.9.
        let names = strsim::normalized_damerau_levenshtein(part, own).min(0.9);
        strsim::normalized_damerau_levenshtein(name, known).max(names)
    };
    let known = known.map(|known| (similarity(&known), known));
    let best = known.filter(|(similarity, _)| *similarity > 0.6);
    best.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}
