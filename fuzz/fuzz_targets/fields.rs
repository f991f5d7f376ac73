//! Any fields of a response are read within all bounds, and what was read is written and read again.
#![no_main]

#[path = "../../http/tests/bodies/fields.rs"]
mod body;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| body::check(&body::headers(data)));
