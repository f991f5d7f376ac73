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

/// Returns the figures with their targets.
pub(super) fn run(subjects: u64, flooded: u64, rounds: usize) -> Outcome<Vec<Verdict>> {
    grown(subjects)?;
    flood(flooded, rounds)
}

/// Returns the time of a check of a known subject in nanoseconds, and the bytes per subject.
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
    /// Checks the subjects whose numbers `number` returns. With `each`, also measures the longest
    /// check; the total time is then not used, because it includes the readings of the clock.
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
        // All states have recovered, so each check also removes some of them.
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

/// The number of checks in a turn. Turns of new subjects and turns of regular subjects alternate.
const TURN: u64 = 100;

/// The times of checks on a full store, in nanoseconds.
struct Flood {
    calm: u64,
    /// A check of a regular subject during a flood of new subjects.
    beside: u64,
    new: u64,
}

impl Flood {
    fn measure(store: &MemoryStore, policy: &Policy, subjects: u64) -> Outcome<Self> {
        let run = |checks, number: &dyn Fn(u64) -> u64| {
            Stretch::run(store, policy, checks, false, number)
        };
        let regulars = (subjects / 2).max(1);
        run(subjects, &|n| regulars + n)?;
        // The full store keeps subjects that were checked several times when new subjects arrive.
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

/// Prints the bytes of a full store. Returns the times of its checks with their targets.
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
