//! Ten million subjects, and a flood of new ones, on a bounded store.

use std::fmt::Write;
use std::time::Duration;

use tidegate_memory::{Call, Charge, Clock, ManualClock, MemoryStore, Policy, Timestamp};

use super::measure::ran;
use crate::Outcome;
use crate::figures::{Thousandths, middle};
use crate::random::random;

/// What a check takes while the bound on memory is flooded, in thousandths of a calm one, at most.
const TARGETS_FLOOD: u64 = 2_000;

/// Measures. Returns the report, and whether all targets are met.
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
    let max = usize::try_from(subjects)?.next_power_of_two();
    let mut row = |what: &str, fast: &Stretch, slow: &Stretch| {
        let _ = writeln!(text, "| {what} | {} | {:?} |", fast.nanos(), slow.longest);
    };
    let start = Timestamp::from_micros(1_790_000_000_000_000);
    let (mut stretches, mut bytes, mut left) = (Vec::new(), 0, 0);
    for each in [false, true] {
        let clock = ManualClock::new(start);
        let store = MemoryStore::builder().max_keys(max).clock(clock.clone()).build();
        let known = |n| random(n) % subjects;
        let come = Stretch::run(&store, &policy, subjects, each, |n| n)?;
        bytes = store.bytes() / store.len().max(1);
        let stay = Stretch::run(&store, &policy, subjects / 4, each, known)?;
        // All have recovered; each check now sweeps.
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

/// Checks of one kind between two of the other.
const TURN: u64 = 100;

/// What checks take on a store that is full, in nanoseconds.
struct Flood {
    /// Of regular subjects, without any others.
    calm: u64,
    /// Of regulars, while as many checks are of subjects that were never seen.
    beside: u64,
    /// Of subjects that were never seen, one after another.
    new: u64,
}

impl Flood {
    fn measure(store: &MemoryStore, policy: &Policy, subjects: u64) -> Outcome<Self> {
        let run = |checks, number: &dyn Fn(u64) -> u64| {
            Stretch::run(store, policy, checks, false, number)
        };
        let regulars = (subjects / 2).max(1);
        run(subjects, &|n| regulars + n)?;
        // A subject that was checked several times stays, whatever else arrives.
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
        Thousandths::of(of, self.calm).ok_or_else(|| "the flood was not measured".into())
    }
}

fn flood(subjects: u64, rounds: usize) -> Outcome<(String, bool)> {
    let policy: Policy = "token-bucket 1/1m burst 10".parse()?;
    let max = usize::try_from(subjects)?;
    let (mut floods, mut bytes) = (Vec::new(), (0, 0));
    for _ in 0..rounds {
        let store = MemoryStore::builder().max_keys(max).build();
        floods.push(Flood::measure(&store, &policy, subjects)?);
        bytes = (store.bytes(), store.max_bytes());
    }
    let median = |of: fn(&Flood) -> u64| -> Outcome<(Thousandths, u64, u64)> {
        let ratios = floods.iter().map(|one| Ok((one.ratio(of(one))?.0, of(one), one.calm)));
        let (ratio, this, calm) = middle(ratios.collect::<Outcome<_>>()?);
        Ok((Thousandths(ratio), this, calm))
    };
    let mut text = format!(
        "\n## A flood\n\nA store that keeps {subjects} subjects and is full; {} of {} bytes at most.\n\n",
        bytes.0, bytes.1,
    );
    let mut all_met = true;
    for (what, (ratio, this, calm)) in [
        ("of regulars while every other is of a new subject", median(|one| one.beside)?),
        ("of ever new subjects", median(|one| one.new)?),
    ] {
        let met = ratio.0 <= TARGETS_FLOOD;
        all_met &= met;
        let _ = writeln!(
            text,
            "- {}: checks {what}, {this} ns, to calm ones of regulars, {calm} ns: {ratio} of at most {}",
            if met { "met" } else { "NOT MET" },
            Thousandths(TARGETS_FLOOD),
        );
    }
    Ok((text, all_met))
}
