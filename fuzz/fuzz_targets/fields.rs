//! Fields of a response with any bytes are parsed within all bounds. The parsed values are written
//! and parsed again.
#![no_main]

#[path = "../../http/tests/fields/bounds.rs"]
mod bounds;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bounds::check(&bounds::headers(data)));
