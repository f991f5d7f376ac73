//! Measures the memory store with ten million subjects, and a bounded store during a flood of new
//! subjects.

use std::time::Duration;

use tidegate_memory::{Call, Charge, Clock, ManualClock, MemoryStore, Policy, Timestamp};

use super::subjects::AMPLE;
use crate::Outcome;
use crate::harness::{Thousandths, Verdict, middle, thread_time};
use crate::random::random;

/// The maximum time of a check during a flood, relative to the time of a check without a flood.
const MAX_FLOOD: Thousandths = Thousandths(2_000);

/// Measures and prints. Returns the figures with their targets.
pub(super) fn run(subjects: u64, flooded: u64, rounds: usize) -> Outcome<Vec<Verdict>> {
    grown(subjects)?;
    flood(flooded, rounds)
}

/// Measures a store with this number of subjects. Returns the nanoseconds of a check of a known
/// subject, and the bytes per subject.
pub(crate) fn known(subjects: u64, checks: u64) -> Outcome<(u64, u64)> {
    let policy: Policy = format!("token-bucket 1/1m burst {AMPLE}").parse()?;
    let max = usize::try_from(subjects)?.next_power_of_two();
    let store = MemoryStore::builder().max_keys(max).build();
    Stretch::run(&store, &policy, subjects, false, |n| n)?;
    let known = Stretch::run(&store, &policy, checks, false, |n| random(n) % subjects)?;
    Ok((known.nanos(), u64::try_from(store.bytes() / store.len().max(1))?))
}

/// The time of many checks on one thread.
struct Stretch {
    checks: u64,
    took: Duration,
    longest: Duration,
}

impl Stretch {
    /// Checks the subjects with the numbers that `number` returns. With `each`, also measures the
    /// longest check. Then the total time includes the readings of the clock, and is not used.
    fn run<C: Clock>(
        store: &MemoryStore<C>,
        policy: &Policy,
        checks: u64,
        each: bool,
        number: impl Fn(u64) -> u64,
    ) -> Outcome<Self> {
        let mut subject = *b"subject:000000000000";
        let (started, mut longest) = (thread_time(), Duration::ZERO);
        for n in 0..checks {
            write_digits(&mut subject, number(n));
            let charge = [Charge::new(policy, &subject)];
            let before = if each { thread_time() } else { started };
            let _ = std::hint::black_box(store.decide_now(&Call::acquire(&charge))?);
            if each {
                longest = longest.max(thread_time().saturating_sub(before));
            }
        }
        Ok(Self { checks, took: thread_time().saturating_sub(started), longest })
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

/// Prints the times of checks of new subjects, known subjects and recovered subjects.
fn grown(subjects: u64) -> Outcome<()> {
    let policy: Policy = "token-bucket 1/1m burst 10".parse()?;
    println!("\n## {subjects} subjects\n\n| | ns each | longest check |\n|---|---|---|");
    let max = usize::try_from(subjects)?.next_power_of_two();
    let start = Timestamp::from_micros(1_790_000_000_000_000);
    let (mut stretches, mut bytes, mut left) = (Vec::new(), 0, 0);
    for each in [false, true] {
        let clock = ManualClock::new(start);
        let store = MemoryStore::builder().max_keys(max).clock(clock.clone()).build();
        let known = |n| random(n) % subjects;
        let come = Stretch::run(&store, &policy, subjects, each, |n| n)?;
        bytes = store.bytes() / store.len().max(1);
        let stay = Stretch::run(&store, &policy, subjects / 4, each, known)?;
        // All states have recovered, so the store removes some of them during each check.
        clock.advance(Duration::from_secs(3_600));
        let go = Stretch::run(&store, &policy, subjects / 2, each, |n| n % 1_000)?;
        left = store.len();
        stretches.push([come, stay, go]);
    }
    if let [fast, slow] = &stretches[..] {
        for (place, what) in ["new", "known", "recovered"].into_iter().enumerate() {
            println!("| {what} | {} | {:?} |", fast[place].nanos(), slow[place].longest);
        }
    }
    println!(
        "\n{bytes} bytes per subject. {left} recovered states remained after {} more checks of \
         1,000 subjects.",
        subjects / 2,
    );
    Ok(())
}

/// The number of checks of new subjects before the same number of checks of regular subjects.
const TURN: u64 = 100;

/// The times of checks on a full store, in nanoseconds.
struct Flood {
    /// A check of a regular subject, without checks of new subjects.
    calm: u64,
    /// A check of a regular subject, while as many checks are for new subjects.
    beside: u64,
    /// Checks of new subjects only.
    new: u64,
}

impl Flood {
    fn measure(store: &MemoryStore, policy: &Policy, subjects: u64) -> Outcome<Self> {
        let run = |checks, number: &dyn Fn(u64) -> u64| {
            Stretch::run(store, policy, checks, false, number)
        };
        let regulars = (subjects / 2).max(1);
        run(subjects, &|n| regulars + n)?;
        // The full store keeps a subject that was checked several times, even if new subjects
        // arrive.
        run(2 * regulars, &|n| n % regulars)?;
        let calm = run(subjects, &|n| random(n) % regulars)?;
        let mut beside = Stretch { checks: 0, took: Duration::ZERO, longest: Duration::ZERO };
        let mut next = regulars + subjects;
        for turn in 0..subjects.div_ceil(TURN) {
            run(TURN, &|n| next + n)?;
            next += TURN;
            let regular = run(TURN, &|n| random(turn * TURN + n) % regulars)?;
            beside.checks += regular.checks;
            beside.took += regular.took;
        }
        let new = run(subjects, &|n| next + n)?;
        Ok(Self { calm: calm.nanos(), beside: beside.nanos(), new: new.nanos() })
    }

    fn ratio(&self, of: u64) -> Outcome<Thousandths> {
        Thousandths::ratio(of, self.calm).ok_or_else(|| "the flood was not measured".into())
    }
}

/// Prints the bytes of a full store and their bound. Returns the times of checks with their
/// targets.
fn flood(subjects: u64, rounds: usize) -> Outcome<Vec<Verdict>> {
    let policy: Policy = "token-bucket 1/1m burst 10".parse()?;
    let max = usize::try_from(subjects)?;
    let (mut floods, mut bytes) = (Vec::new(), (0, 0));
    for _ in 0..rounds {
        let store = MemoryStore::builder().max_keys(max).build();
        floods.push(Flood::measure(&store, &policy, subjects)?);
        bytes = (store.bytes(), store.max_bytes());
    }
    println!(
        "\n## A flood\n\nA full store that keeps {subjects} subjects; {} of {} bytes.",
        bytes.0, bytes.1,
    );
    let verdict = |what: &str, of: fn(&Flood) -> u64| -> Outcome<_> {
        let ratios =
            floods.iter().map(|flood| Ok((flood.ratio(of(flood))?, of(flood), flood.calm)));
        let (ratio, nanos, calm) = middle(ratios.collect::<Outcome<_>>()?);
        let what = format!("flood: checks of {what}, {nanos} ns / calm checks, {calm} ns");
        Ok(Verdict::new(what, ratio, MAX_FLOOD))
    };
    Ok(vec![
        verdict("regular subjects among as many new ones", |flood| flood.beside)?,
        verdict("new subjects", |flood| flood.new)?,
    ])
}
