//! Any text is read as a file of limits, or rejected with a position in the text.
#![no_main]

#[expect(dead_code, reason = "other targets use the rest")]
#[path = "../../server/tests/checks/mod.rs"]
mod checks;
mod fed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    fed::count(text.as_bytes());
    checks::config::check(text);
});
