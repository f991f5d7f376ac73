use crate::random::{random, zipf};

/// The subjects of calls, in memory in the order of the calls. Another order would cause cache
/// misses, which a program that has just read the subject from a request does not have.
pub(crate) struct Workload<K> {
    pub(crate) id: &'static str,
    pub(crate) title: String,
    /// The subjects that have a state before the measurement.
    pub(crate) known: Vec<K>,
    pub(crate) calls: Vec<K>,
    pub(crate) setup: Setup,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// The burst of a subject.
    pub(crate) burst: u32,
    /// The refill of a subject per minute, for token buckets of Tidegate and governor. The other
    /// contenders refill one token per minute.
    pub(crate) per_minute: u32,
    /// The maximum number of subjects, for limiters that have such a bound.
    pub(crate) max: Option<usize>,
}

/// A burst that no run uses up. At a refill of one per minute, no state recovers during a run.
pub(crate) const AMPLE: u32 = 30_000_000;

/// The refill of subjects that recover within a millisecond.
const QUICK: u32 = 60_000;

/// The number of subjects of the large workloads, and the number of calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) subjects: u64,
    pub(crate) calls: u64,
}

pub(crate) fn workloads(size: Size) -> Vec<Workload<String>> {
    let Size { subjects, calls } = size;
    let tenth = subjects.div_ceil(10);
    let drawn = |draw: fn(u64, u64) -> u64, of| {
        (0..calls).map(|n| subject(draw(random(n), of))).collect::<Vec<_>>()
    };
    let ample = Setup { burst: AMPLE, per_minute: 1, max: None };
    vec![
        Workload {
            id: "hot",
            title: "one hot subject".to_owned(),
            known: all(1),
            calls: (0..calls).map(|_| subject(0)).collect(),
            setup: ample,
        },
        Workload {
            id: "uniform",
            title: format!("{tenth} subjects, uniform"),
            known: all(tenth),
            calls: drawn(uniform, tenth),
            setup: ample,
        },
        Workload {
            id: "zipf",
            title: format!("{subjects} subjects, Zipf"),
            known: all(subjects),
            calls: drawn(zipf, subjects),
            setup: ample,
        },
        Workload {
            id: "insert",
            title: format!("{subjects} new subjects"),
            known: Vec::new(),
            calls: all(subjects),
            setup: ample,
        },
        Workload {
            id: "denied",
            title: format!("{tenth} subjects, mostly denied"),
            known: all(tenth),
            calls: drawn(uniform, tenth),
            setup: Setup { burst: 1, ..ample },
        },
        Workload {
            id: "crowded",
            title: format!("{} subjects, uniform, where {tenth} are kept", 2 * tenth),
            known: all(2 * tenth),
            calls: drawn(uniform, 2 * tenth),
            setup: Setup { max: usize::try_from(tenth).ok(), ..ample },
        },
    ]
}

pub(crate) fn numbered(size: Size) -> Workload<u64> {
    let tenth = size.subjects.div_ceil(10);
    Workload {
        id: "numbers",
        title: format!("{tenth} subjects that are numbers, uniform"),
        known: (0..tenth).collect(),
        calls: (0..size.calls).map(|n| random(n) % tenth).collect(),
        setup: Setup { burst: AMPLE, per_minute: 1, max: None },
    }
}

/// Returns the workload whose subjects recover between two of their checks, because the checks use
/// all subjects in turn.
pub(crate) fn recovering(size: Size) -> Workload<String> {
    let tenth = size.subjects.div_ceil(10);
    Workload {
        id: "recovering",
        title: format!("{tenth} subjects that recover between checks"),
        known: all(tenth),
        calls: (0..size.calls).map(|n| subject(n % tenth)).collect(),
        setup: Setup { burst: AMPLE, per_minute: QUICK, max: None },
    }
}

fn all(count: u64) -> Vec<String> {
    (0..count).map(subject).collect()
}

/// Returns a subject of 20 bytes. Subjects differ only in their last bytes.
pub(crate) fn subject(number: u64) -> String {
    format!("subject:{number:012}")
}

fn uniform(random: u64, of: u64) -> u64 {
    random % of
}
