//! The rate-limit fields of a response can contain any bytes. The values that are parsed from the
//! fields are within their bounds. If these values are written and parsed again, they stay the
//! same.
#![no_main]

#[path = "../../http/tests/fields/bounds.rs"]
mod bounds;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bounds::check(&bounds::headers(data)));
