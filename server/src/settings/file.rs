//! The settings file: TOML with one table for each section.

use std::fs;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::Mistake;
use super::values::{Origin, Values};

/// The maximum size of a settings file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The sections with their descriptions.
pub(super) const SECTIONS: [(&str, &str); 9] = [
    ("store", "The store of the counts."),
    ("grpc", "gRPC, which Envoy calls."),
    ("http", "JSON, health and metrics over HTTP."),
    ("resp", "RESP, the protocol of Redis."),
    ("page", "The page that shows what the server does now."),
    ("limits", "The limits."),
    ("answers", "Decisions about descriptors, and their responses."),
    ("xds", "The management server, which sends the limits with limits.source = \"xds\"."),
    ("log", "The log on standard error."),
];

/// The first lines of the file that `tidegate-server init` writes.
pub(super) const TITLE: &str = "\
# Settings of tidegate-server --settings FILE. All values are the defaults.
# An environment variable takes precedence over this file, and a flag over both.
";

/// Sets the values of the file at `path`.
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
    let place = |offset: usize| {
        let before = text.get(..offset).unwrap_or(&text);
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("{shown}:{}:{column}", before.matches('\n').count() + 1)
    };
    let table = DeTable::parse(&text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        Mistake::value(format!("{}: {}", place(start), error.message()))
    })?;
    for (section, content) in table.get_ref() {
        let name = section.get_ref();
        let at = |offset: usize, message: String| {
            Mistake::value(format!("{}: {message}", place(offset)))
        };
        let known = SECTIONS.iter().any(|(known, _)| known == name);
        let DeValue::Table(content) = content.get_ref() else {
            let names = SECTIONS.map(|(name, _)| name.to_owned());
            let keys = values.keys().map(str::to_owned);
            let message = if known {
                format!("`{name}` is not a section; it must be written [{name}]")
            } else {
                unknown("setting", name, keys.chain(names))
            };
            return Err(at(section.span().start, message));
        };
        if !known {
            let names = SECTIONS.iter().map(|(name, _)| (*name).to_owned());
            return Err(at(section.span().start, unknown("section", name, names)));
        }
        for (key, value) in content {
            let full = format!("{name}.{}", key.get_ref());
            let start = value.span().start;
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Boolean(is_on) => is_on.to_string(),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Float(number) => number.to_string(),
                _ => String::new(),
            };
            let is_text = value.get_ref().is_str();
            if !values.set(&full, text, Origin::File(place(start))) {
                let keys = values.keys().map(str::to_owned);
                return Err(at(key.span().start, unknown("setting", &full, keys)));
            }
            let is_list = matches!(
                value.get_ref(),
                DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_)
            );
            if is_list || (values.is_quoted(&full) && !is_text) {
                let kind = value.get_ref().type_str();
                let bound = match values.is_quoted(&full) {
                    true => "a text in quotation marks",
                    false => "a number, true or false",
                };
                return Err(at(start, format!("{full} is of the type {kind}; it must be {bound}")));
            }
        }
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
        // A setting of another section, or one without its section, is less similar.
        let names = strsim::normalized_damerau_levenshtein(part, own).min(0.9);
        strsim::normalized_damerau_levenshtein(name, known).max(names)
    };
    let known = known.map(|known| (similarity(&known), known));
    let best = known.filter(|(similarity, _)| *similarity > 0.6);
    best.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}
