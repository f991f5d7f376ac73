//! Measures the speed of a whole replay on one core: the program reads a file, decides by one
//! policy, and prints its report.

use std::fs::File;
use std::io::BufWriter;
use std::time::Instant;

use tidegate::replay::{Backend, Replay};
use tidegate::trace::{Input, Options, Order, replay_in_order};
use tidegate_core::Policy;

use crate::harness::middle;
use crate::{Outcome, sample};

const LINES: u64 = 2_000_000;
const RUNS: usize = 5;

pub(crate) fn run() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("access.log");
    let options = sample::Options { seed: 1, lines: LINES };
    sample::write(&options, &mut BufWriter::new(File::create(&path)?))?;
    println!("| policy | admitted | lines/s, median of {RUNS} |\n|---|--:|--:|");
    for text in [
        "fixed-window 60/1m",
        "sliding-log 60/1m",
        "sliding-counter 60/1m",
        "token-bucket 60/1m",
        "gcra 60/1m burst 10",
    ] {
        let policy: Policy = text.parse()?;
        let (mut rates, mut admitted) = (vec![], 0);
        for _ in 0..RUNS {
            let started = Instant::now();
            let mut replay =
                Replay::new(std::slice::from_ref(&policy), Backend::Memory, None, false, |_| {})?;
            let inputs = vec![Input::from_arg(&path)];
            let summary = replay_in_order(inputs, &Options::default(), Order::Time, &mut replay)?;
            admitted = replay.policies(&summary).first().map_or(0, |policy| policy.admitted);
            rates.push(u128::from(LINES) * 1_000_000 / started.elapsed().as_micros().max(1));
        }
        println!("| `{policy}` | {admitted} | {} |", middle(rates));
    }
    Ok(())
}
