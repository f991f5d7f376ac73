//! Any fields of a response are read within all bounds, and what was read is written and read
//! again.
#![no_main]

#[path = "../../http/tests/fields/bounds.rs"]
mod bounds;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bounds::check(&bounds::headers(data)));
