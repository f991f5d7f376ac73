//! A client cannot forge its address, regardless of the bytes that it sends as `X-Forwarded-For`,
//! `Forwarded` or `X-Real-IP`.
#![no_main]

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../../http/tests/subject/forged_checks.rs"]
mod forged_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|forged: &[u8]| forged_checks::check(forged));
