//! Runs fixed programs. `.ci/instructions` runs each of them under callgrind and counts its
//! instructions.
//!
//! ```sh
//! tidegate-instructions NAME # makes the calls of one program
//! tidegate-instructions      # lists the programs, each with its numbers of calls and of subjects
//! ```
//!
//! Callgrind counts the instructions of functions whose name contains `counted_calls`, and of the
//! functions that they call. Therefore the function must keep its name, and no function that it
//! calls may contain the name.
//!
//! The clock is the system clock, as in production. No state recovers while a program runs, so each
//! run makes the same decisions.

use std::error::Error;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_memory::{Call, Charge, Limiter, MemoryStore, Policy, Store};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BUCKET: &str = "token-bucket 1/1m burst 30000000";
const STRICT_BUCKET: &str = "token-bucket 1/1h";
const COUNTER: &str = "sliding-counter 30000000/1h";
const LOG: &str = "sliding-log 100/1h";
const WINDOW: &str = "day: fixed-window 30000000/1d";

/// A way to check one subject.
enum Check {
    Store(MemoryStore, Policy),
    Limiter(Limiter<MemoryStore>),
    Object(Limiter<Arc<dyn Store>>),
}

struct Program {
    name: &'static str,
    /// Whether each subject is checked once before counting begins.
    is_known: bool,
    /// The number of subjects. Each is checked `rounds` times.
    subjects: u32,
    rounds: u32,
    build: fn() -> Outcome<Check>,
}

const PROGRAMS: [Program; 9] = [
    Program {
        name: "store-hot",
        is_known: true,
        subjects: 1,
        rounds: 20_000,
        build: || store(BUCKET),
    },
    Program {
        name: "store-known",
        is_known: true,
        subjects: 40_000,
        rounds: 1,
        build: || store(BUCKET),
    },
    Program {
        name: "store-new",
        is_known: false,
        subjects: 40_000,
        rounds: 1,
        build: || store(BUCKET),
    },
    Program {
        name: "store-denied",
        is_known: true,
        subjects: 1,
        rounds: 20_000,
        build: || store(STRICT_BUCKET),
    },
    Program {
        name: "store-counter",
        is_known: true,
        subjects: 1,
        rounds: 20_000,
        build: || store(COUNTER),
    },
    Program {
        name: "store-log",
        is_known: true,
        subjects: 1_000,
        rounds: 20,
        build: || store(LOG),
    },
    Program {
        name: "limiter-hot",
        is_known: true,
        subjects: 1,
        rounds: 20_000,
        build: || Ok(Check::Limiter(Limiter::new(MemoryStore::new(), [BUCKET.parse()?])?)),
    },
    Program {
        name: "limiter-two-policies",
        is_known: true,
        subjects: 1,
        rounds: 20_000,
        build: || {
            let policies = [BUCKET.parse()?, WINDOW.parse()?];
            Ok(Check::Limiter(Limiter::new(MemoryStore::new(), policies)?))
        },
    },
    Program {
        name: "object-hot",
        is_known: true,
        subjects: 1,
        rounds: 20_000,
        build: || {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            Ok(Check::Object(Limiter::new(store, [BUCKET.parse()?])?))
        },
    },
];

fn store(policy: &str) -> Outcome<Check> {
    Ok(Check::Store(MemoryStore::new(), policy.parse()?))
}

/// Checks each subject `rounds` times. Returns the number of admitted checks.
#[inline(never)]
fn counted_calls(check: &Check, subjects: &[String], rounds: u32) -> usize {
    let mut admitted = 0;
    for _ in 0..rounds {
        for subject in subjects {
            let subject = black_box(subject.as_str());
            admitted += usize::from(match check {
                Check::Store(store, policy) => passes_store(store, policy, subject),
                Check::Limiter(limiter) => passes_limiter(limiter, subject),
                Check::Object(limiter) => passes_limiter(limiter, subject),
            });
        }
    }
    admitted
}

#[inline]
fn passes_store(store: &MemoryStore, policy: &Policy, subject: &str) -> bool {
    let charge = [Charge::new(policy, subject.as_bytes())];
    store.decide_now(&Call::acquire(&charge)).is_ok_and(|decision| decision.is_allowed())
}

#[inline]
fn passes_limiter<S: Store>(limiter: &Limiter<S>, subject: &str) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(limiter.acquire(subject)).poll(&mut context) {
        Poll::Ready(Ok(decision)) => decision.is_allowed(),
        _ => false,
    }
}

fn main() -> Outcome<()> {
    let Some(name) = std::env::args().nth(1) else {
        for Program { name, subjects, rounds, .. } in &PROGRAMS {
            println!("{name} {} {subjects}", subjects * rounds);
        }
        return Ok(());
    };
    let program = PROGRAMS.iter().find(|program| program.name == name);
    let program = program.ok_or_else(|| format!("no program is called {name}"))?;
    let check = (program.build)()?;
    // Subjects have the same length, so that hashing takes the same time for each of them.
    let subjects: Vec<_> = (0..program.subjects).map(|n| format!("subject:{n:012}")).collect();
    if program.is_known {
        warm_up(&check, &subjects);
    }
    let admitted = black_box(counted_calls(&check, &subjects, program.rounds));
    println!("{name}: {admitted} of {} admitted", program.subjects * program.rounds);
    Ok(())
}

/// Checks each subject once, so that the store has a state for it.
fn warm_up(check: &Check, subjects: &[String]) {
    for subject in subjects {
        black_box(match check {
            Check::Store(store, policy) => passes_store(store, policy, subject),
            Check::Limiter(limiter) => passes_limiter(limiter, subject),
            Check::Object(limiter) => passes_limiter(limiter, subject),
        });
    }
}
