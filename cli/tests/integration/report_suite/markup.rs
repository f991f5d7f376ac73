//! A strict parser of HTML, which checks that a page is well formed and returns its tags.

/// The start tags of a page in order, with their names and attributes.
pub(crate) type Tags = Vec<(String, Vec<(String, String)>)>;

const VOID: [&str; 2] = ["meta", "br"];

/// Parses a page, or returns its first error.
pub(crate) fn read(page: &str) -> Result<Tags, String> {
    let mut rest = page.strip_prefix("<!doctype html>").ok_or("no doctype")?;
    let (mut open, mut tags): (Vec<String>, Tags) = (Vec::new(), Vec::new());
    loop {
        let at = rest.find('<').unwrap_or(rest.len());
        check_text(&rest[..at], open.last())?;
        rest = &rest[at..];
        if rest.is_empty() {
            break;
        }
        if let Some(after) = rest.strip_prefix("</") {
            let (name, after) = after.split_once('>').ok_or("an end tag without an end")?;
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            rest = after;
            continue;
        }
        let (tag, empty, after) = start_tag(&rest[1..])?;
        if !empty && !VOID.contains(&tag.0.as_str()) {
            open.push(tag.0.clone());
        }
        tags.push(tag);
        rest = after;
    }
    if open.is_empty() { Ok(tags) } else { Err(format!("still open: {open:?}")) }
}

type Tag = (String, Vec<(String, String)>);

/// Parses the text after a `<`. Returns the tag, whether it is empty (`/>`), and the rest of the
/// text.
fn start_tag(text: &str) -> Result<(Tag, bool, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).ok_or("a tag without an end")?;
    let (name, mut rest) = text.split_at(end);
    if name.is_empty() {
        return Err(format!("a bare < before {:?}", text.chars().take(20).collect::<String>()));
    }
    let mut attributes = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix("/>") {
            return Ok(((name.to_owned(), attributes), true, after));
        }
        if let Some(after) = rest.strip_prefix('>') {
            return Ok(((name.to_owned(), attributes), false, after));
        }
        let (key, after) = rest.split_once("=\"").ok_or("an attribute without a value")?;
        let key = key.strip_prefix(' ').ok_or(format!("no space before {key:?}"))?;
        if !key.chars().all(|c| c.is_ascii_alphabetic() || c == '-') {
            return Err(format!("a strange attribute {key:?}"));
        }
        let (value, after) = after.split_once('"').ok_or("a value without an end")?;
        check_text(value, None)?;
        attributes.push((key.to_owned(), value.to_owned()));
        rest = after;
    }
}

/// Checks that every `&` begins an allowed reference, and that the text has no invisible
/// characters.
fn check_text(text: &str, element: Option<&String>) -> Result<(), String> {
    if element.is_some_and(|name| name == "style") {
        return Ok(());
    }
    for piece in text.split('&').skip(1) {
        if !["amp;", "lt;", "gt;", "quot;", "#x27;"].iter().any(|known| piece.starts_with(known)) {
            return Err(format!("a bare & before {piece:?}"));
        }
    }
    match text.chars().find(|c| (c.is_control() && *c != '\n') || is_invisible(*c)) {
        Some(c) => Err(format!("{c:?} is left as it is")),
        None => Ok(()),
    }
}

pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
