//! Any bytes to the HTTP port: well-formed responses with statuses that are documented.
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
