//! Ten million subjects, and a flood of ever new ones: what only a bounded store can be asked.

use std::fmt::Write;
use std::time::Duration;

use tidegate_memory::{Call, Charge, Clock, ManualClock, MemoryStore, Policy, Timestamp};

use super::measure::ran;
use crate::Outcome;
use crate::figures::Thousandths;
use crate::random::random;

/// What a check takes while the bound on memory is flooded, in thousandths of a calm one, at most.
const WANTED_FLOOD: u64 = 2_000;

/// Measures and prints; says whether what is wanted is met.
pub(crate) fn run(subjects: u64, flooded: u64, rounds: usize) -> Outcome<(String, bool)> {
    let mut text = grown(subjects)?;
    let (flood, met) = flood(flooded, rounds)?;
    text.push_str(&flood);
    Ok((text, met))
}

/// Many checks by one thread.
struct Stretch {
    checks: u64,
    took: Duration,
    longest: Duration,
}

impl Stretch {
    /// Checks that subject of each number of a sequence. The longest of them is looked for in a run of
    /// its own, as reading the clock takes its time as well.
    fn run<C: Clock>(
        store: &MemoryStore<C>,
        policy: &Policy,
        checks: u64,
        each: bool,
        number: impl Fn(u64) -> u64,
    ) -> Outcome<Self> {
        let mut subject = *b"subject:000000000000";
        let (started, mut longest) = (ran(), Duration::ZERO);
        for n in 0..checks {
            write_digits(&mut subject, number(n));
            let charge = [Charge::new(policy, &subject)];
            let before = if each { ran() } else { started };
            let _ = std::hint::black_box(store.decide_now(&Call::acquire(&charge))?);
            if each {
                longest = longest.max(ran().saturating_sub(before));
            }
        }
        Ok(Self { checks, took: ran().saturating_sub(started), longest })
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.took.as_nanos()).unwrap_or(u64::MAX) / self.checks.max(1)
    }
}

fn write_digits(subject: &mut [u8; 20], mut number: u64) {
    for digit in subject.iter_mut().rev().take(12) {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

fn grown(subjects: u64) -> Outcome<String> {
    let policy: Policy = "token-bucket 1/1m burst 10".parse()?;
    let mut text =
        format!("\n## {subjects} subjects\n\n| | ns each | longest check |\n|---|---|---|\n");
    let most = usize::try_from(subjects)?.next_power_of_two();
    let mut row = |what: &str, fast: &Stretch, slow: &Stretch| {
        let _ = writeln!(text, "| {what} | {} | {:?} |", fast.nanos(), slow.longest);
    };
    let start = Timestamp::from_micros(1_790_000_000_000_000);
    let (mut stretches, mut bytes, mut left) = (Vec::new(), 0, 0);
    for each in [false, true] {
        let clock = ManualClock::new(start);
        let store = MemoryStore::builder().max_keys(most).clock(clock.clone()).build();
        let known = |n| random(n) % subjects;
        let come = Stretch::run(&store, &policy, subjects, each, |n| n)?;
        bytes = store.bytes() / store.len().max(1);
        let stay = Stretch::run(&store, &policy, subjects / 4, each, known)?;
        // All have recovered; whoever comes now sweeps.
        clock.advance(Duration::from_secs(3_600));
        let go = Stretch::run(&store, &policy, subjects / 2, each, |n| n % 1_000)?;
        left = store.len();
        stretches.push([come, stay, go]);
    }
    if let [fast, slow] = &stretches[..] {
        for (place, what) in ["they come", "they are known", "they go"].into_iter().enumerate() {
            row(what, &fast[place], &slow[place]);
        }
    }
    let _ = writeln!(
        text,
        "\n{bytes} bytes a subject. Of all that had recovered {left} were left after {} more checks of \
         1,000 subjects.",
        subjects / 2,
    );
    Ok(text)
}

/// Known subjects on a store that is full, and then only subjects that it has never seen.
fn flood(subjects: u64, rounds: usize) -> Outcome<(String, bool)> {
    let policy: Policy = "token-bucket 1/1m burst 10".parse()?;
    let most = usize::try_from(subjects)?;
    let (mut figures, mut bytes) = (Vec::new(), (0, 0));
    for _ in 0..rounds {
        // A fresh one: who has been asked about twice stays, and would push out the newcomers.
        let store = MemoryStore::builder().max_keys(most).build();
        let run =
            |number: &dyn Fn(u64) -> u64| Stretch::run(&store, &policy, subjects, false, number);
        run(&|n| n)?;
        run(&|n| subjects + n)?;
        // Whoever came last is still there.
        let calm = run(&|n| 2 * subjects - 1 - random(n) % (subjects / 2).max(1))?;
        let flooded = run(&|n| 2 * subjects + n)?;
        figures.push((calm.nanos(), flooded.nanos()));
        bytes = (store.bytes(), store.most_bytes());
    }
    figures.sort_unstable_by_key(|(calm, flooded)| flooded * 1_000 / calm.max(&1));
    let (calm, flooded) = figures[(figures.len() - 1) / 2];
    let ratio = Thousandths::of(flooded, calm).ok_or("the flood was not measured")?;
    let met = ratio.0 <= WANTED_FLOOD;
    let verdict = if met { "met" } else { "NOT MET" };
    let text = format!(
        "\n## A flood\n\nA store that keeps {subjects} subjects and is full: {calm} ns a check of those \
         that are known, {flooded} ns a check of ever new ones; {} of {} bytes at most.\n\n- {verdict}: \
         a check while it floods, to a calm one: {ratio} of at most {}\n",
        bytes.0,
        bytes.1,
        Thousandths(WANTED_FLOOD),
    );
    Ok((text, met))
}
