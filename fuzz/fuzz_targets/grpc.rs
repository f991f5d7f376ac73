//! Any bytes that a client sends to the gRPC port end no connection except the connection of this
//! client.
#![no_main]

#[expect(dead_code, reason = "other targets use the rest")]
#[path = "../../server/tests/checks/mod.rs"]
mod checks;
mod fed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fed::count(bytes);
    match bytes.split_first() {
        Some((0, bytes)) => checks::grpc::check_bytes(bytes),
        Some((1..128, bytes)) => checks::grpc::check_frames(bytes),
        Some((128.., bytes)) => checks::grpc::check_body(bytes),
        None => checks::grpc::check_serving(),
    }
    if bytes.len().is_multiple_of(64) {
        checks::grpc::check_serving();
    }
});
