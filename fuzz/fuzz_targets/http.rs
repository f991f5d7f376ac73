//! For any bytes, the HTTP port sends well-formed responses with documented statuses.
#![no_main]

#[expect(dead_code, reason = "other targets use the rest")]
#[path = "../../server/tests/checks/mod.rs"]
mod checks;
mod fed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fed::count(bytes);
    checks::http::check_bytes(bytes, 1 + bytes.len() / 2);
});
