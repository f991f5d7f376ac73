//! A test that pins every assembled script by a hash of its tokens, without comments and white
//! space.
//!
//! While the hashes stay the same, a change of the Lua files or of the assembly has no effect on a
//! server: the server executes the same code at the same cost.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::{Script, all};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts/tokens.txt");
/// The environment variable that lets the test write `tokens.txt` instead of comparing the hashes
/// of the scripts with that file.
const UPDATE: &str = "TIDEGATE_UPDATE_TOKENS";

fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = vec![];
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]).trim_start();
            continue;
        }
        let end = match first {
            '\'' | '"' => rest[1..].find(first).map(|end| end + 2),
            _ if is_of_word(first) => rest.find(|c| !is_of_word(c)),
            _ => Some(first.len_utf8()),
        };
        let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn title(script: &Script) -> String {
    format!("{} {}", script.name(), script.variant()).trim_end().to_owned()
}

fn hash(code: &str) -> String {
    redis::Script::new(&tokens(code).join("\n")).get_hash().to_owned()
}

#[test]
fn tokens_of_the_scripts_are_those_of_tokens_txt() {
    let hashes: BTreeMap<_, _> =
        all().into_iter().map(|script| (title(script), hash(script.code()))).collect();
    let mut lines = String::new();
    for (title, hash) in &hashes {
        writeln!(lines, "{title:<24} {hash}").unwrap();
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(FILE, &lines).unwrap();
    }
    let pinned = std::fs::read_to_string(Path::new(FILE)).unwrap();
    let changed: Vec<_> = lines.lines().filter(|line| !pinned.contains(line)).collect();
    assert!(
        pinned == lines,
        "the tokens of these scripts differ from src/scripts/tokens.txt: {changed:#?}\n\
         Comments and white space do not count. If the change is intended, run\n\
         {UPDATE}=1 cargo test -p tidegate-redis --all-features --lib tokens\n\
         and commit the file."
    );
}

#[test]
fn comments_and_white_space_are_not_tokens() {
    let code = "-- a -- b\nlocal x =  '-- c'..y -- d\nreturn x[1] - 2.5";
    let expected = ["local", "x", "=", "'-- c'", ".", ".", "y", "return", "x", "[", "1", "]", "-"];
    assert_eq!(tokens(code)[..13], expected);
    assert_eq!(hash(code), hash("local x='-- c' .. y\n\nreturn x[1]-2.5 --"));
    assert_ne!(hash(code), hash("local x='-- c' .. y\n\nreturn x[1]-2.6 --"));
}
