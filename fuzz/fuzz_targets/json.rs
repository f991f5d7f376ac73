//! For any body, `/json` and `/v1` send one response in JSON, or a short reason.
#![no_main]

#[expect(dead_code, reason = "other targets use the rest")]
#[path = "../../server/tests/checks/mod.rs"]
mod checks;
mod fed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fed::count(bytes);
    if let Some((route, body)) = bytes.split_first() {
        checks::http::check_body(body, usize::from(*route));
    }
});
