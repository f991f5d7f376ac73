//! For any bytes in the protocol of Redis, each command has one reply, regardless of how the bytes
//! are split.
#![no_main]

#[expect(dead_code, reason = "other targets use the rest")]
#[path = "../../server/tests/checks/mod.rs"]
mod checks;
mod fed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fed::count(bytes);
    checks::resp::check(bytes, 1 + bytes.len() / 500);
});
