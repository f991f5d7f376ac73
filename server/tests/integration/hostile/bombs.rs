//! Tests small files of limits that expand to large trees.

use std::time::Duration;

use allocation_counter::measure;
use bytes::BytesMut;
use tidegate_server::calls::resp::{Bounds, Frames};
use tidegate_server::limits::config::MAX_FILE_BYTES;

use crate::scene::read;

/// The maximum memory for reading a file of limits, in bytes. A valid file of 4 MiB needs less.
const MAX_BYTES: u64 = 600 << 20;

/// Reads an invalid file of limits, and returns the error. Fails if reading needs too much memory.
fn refused(text: &str) -> String {
    assert!(text.len() as u64 <= MAX_FILE_BYTES);
    let mut error = String::new();
    let allocated = measure(|| error = read(text).unwrap_err().to_string());
    assert!(allocated.bytes_max < MAX_BYTES, "{} bytes: {error}", allocated.bytes_max);
    error
}

#[test]
fn aliases_of_long_texts_count_as_if_they_were_written_out() {
    let long = "x".repeat(100_000);
    let many = "*a,".repeat(400_000);
    for bomb in [
        format!("domain: d\nmetadata: {{a: &a {long}, b: [{many}]}}"),
        format!("domain: d\nmetadata: {{a: &a {{{long}: 1}}, b: [{many}]}}"),
        format!(
            "domain: d\nmetadata: {{a: &a {{b: {long}}}, b: [{}]}}",
            "{<<: *a},".repeat(90_000)
        ),
    ] {
        let error = refused(&bomb);
        let expected =
            "the texts of the file have more than 16777216 bytes, including texts under aliases";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn aliases_at_all_depths_count_together() {
    // Each of 60 nested lists has 20 aliases of a map with 10,000 entries. Only all lists together
    // exceed the maximum of 500,000 values.
    let keys: String = (0..10_000).map(|key| format!("k{key}: 1, ")).collect();
    let level = format!("[{}", "*a,".repeat(20));
    let bomb = format!("domain: d\nmetadata: {{a: &a {{{keys}}}, b: {}", level.repeat(60));
    let error = refused(&bomb);
    assert!(error.contains("more than 500000 values"), "{error}");
}

#[test]
fn a_long_key_above_many_descriptors_is_refused() {
    let below: String =
        (0..30_000).map(|key| format!("{{key: k{key}, rate_limit: *l}},")).collect();
    let long = "x".repeat(1_000_000);
    for (domain, key) in [(&*long, "a"), ("d", &*long)] {
        let bomb = format!(
            "domain: {domain}\ndescriptors: [{{key: {key}, rate_limit: &l {{unit: day, requests_per_unit: 1}}, \
             descriptors: [{below}]}}]"
        );
        let error = refused(&bomb);
        assert!(error.contains("the paths to all descriptors"), "{error}");
        assert!(error.contains("more than 16777216 bytes"), "{error}");
    }
}

/// Returns the CPU time of a function, which does not depend on the load of the machine.
#[cfg(target_os = "linux")]
fn time_of(function: impl FnOnce()) -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let start = now();
    function();
    now() - start
}

#[test]
#[cfg(target_os = "linux")]
fn many_patterns_take_no_longer_than_as_many_values() {
    let list = |end: &str| -> String {
        (0..40_000).map(|at| format!("{{key: a, value: {at}{end}}},")).collect()
    };
    let file = |list: &str| format!("domain: d\ndescriptors: [{list}]");
    let time_of_reading = |text: &str| time_of(|| drop(read(text).unwrap()));
    let values = time_of_reading(&file(&list("x")));
    let patterns = time_of_reading(&file(&list("*")));
    // A reader that compares each pattern with all previous patterns would take twenty times as
    // long.
    assert!(patterns < values * 4, "{patterns:?}, {values:?}");
    let twice = file(&format!("{}{{key: a, value: 7*}}", list("*")));
    assert!(refused(&twice).contains("duplicate descriptor composite key 'd.a_7*'"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_line_that_comes_byte_by_byte_takes_time_by_its_length_and_not_by_its_square() {
    let by_parts = |len: usize, part: usize| {
        let (mut frames, mut buffer) = (Frames::default(), BytesMut::new());
        for _ in 0..len / part {
            buffer.extend_from_slice(&b"x".repeat(part));
            assert!(frames.next(&mut buffer, Bounds::FULL).unwrap().is_none());
        }
    };
    let few = time_of(|| by_parts(60_000, 1_000));
    let many = time_of(|| by_parts(60_000, 1));
    // The parser must search each byte once. If it searched the whole buffer after each new byte,
    // it would search 30,000 times as many bytes.
    assert!(many < few * 100 + Duration::from_secs(1), "{many:?}, {few:?}");
}
