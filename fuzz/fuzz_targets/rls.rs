//! Any request of Envoy is decided, or refused with a reason. If the request is written as JSON and
//! parsed again, it stays the same.
#![no_main]

#[expect(dead_code, reason = "other targets use the rest")]
#[path = "../../server/tests/checks/mod.rs"]
mod checks;
mod fed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fed::count(bytes);
    checks::request::check(bytes);
});
