//! Counts the bytes of all inputs, and can end the program after a number of bytes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static BYTES: AtomicU64 = AtomicU64::new(0);

const STEP: u64 = 10_000_000;

/// Counts an input, and prints a line for each 10 million bytes. If the environment variable
/// `TIDEGATE_FUZZ_BYTES` is set, ends the program after that number of bytes.
pub fn count(input: &[u8]) {
    static MAX: OnceLock<Option<u64>> = OnceLock::new();
    let max = MAX.get_or_init(|| std::env::var("TIDEGATE_FUZZ_BYTES").ok()?.parse().ok());
    let len = input.len() as u64;
    let before = BYTES.fetch_add(len, Ordering::Relaxed);
    if before / STEP != (before + len) / STEP {
        eprintln!("{} bytes were fed", before + len);
    }
    if let Some(max) = max.filter(|max| before >= *max) {
        eprintln!("all of {max} bytes were fed");
        std::process::exit(0);
    }
}
