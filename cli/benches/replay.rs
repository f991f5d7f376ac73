//! How many lines a second the whole replay takes in, on one core, from the file to the tallies, with
//! one policy: `cargo bench -p tidegate --bench replay`.

use std::io::BufWriter;
use std::time::{Duration, Instant};

use tidegate::replay::{Backend, Replay};
use tidegate::sample;
use tidegate::trace::{Input, Options, Order, replay_in_order};
use tidegate_core::Policy;

const LINES: u64 = 2_000_000;
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("access.log");
    let options = sample::Options { lines: LINES, ..sample::Options::default() };
    sample::write(&options, &mut BufWriter::new(std::fs::File::create(&path)?))?;
    println!("| policy | admitted | lines/s, median of {RUNS} |\n|---|---|---|");
    for text in [
        "fixed-window 60/1m",
        "sliding-log 60/1m",
        "sliding-counter 60/1m",
        "token-bucket 60/1m",
        "gcra 60/1m burst 10",
    ] {
        let policy: Policy = text.parse()?;
        let mut times = Vec::new();
        let mut admitted = 0;
        for _ in 0..RUNS {
            let started = Instant::now();
            let mut replay =
                Replay::new(std::slice::from_ref(&policy), Backend::Memory, None, false, |_| {})?;
            let inputs = vec![Input::from_arg(&path)];
            let summary = replay_in_order(inputs, &Options::default(), Order::Time, &mut replay)?;
            admitted = replay.policies(&summary).first().map_or(0, |policy| policy.admitted);
            times.push(started.elapsed());
        }
        println!("| `{policy}` | {admitted} | {} |", rate(&mut times));
    }
    Ok(())
}

fn rate(times: &mut [Duration]) -> u128 {
    times.sort();
    u128::from(LINES) * 1_000_000 / times[RUNS / 2].as_micros().max(1)
}
