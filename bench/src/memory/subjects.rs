//! Subjects, in the order of the calls.

use crate::random::{random, zipf};

/// The subjects of calls, in the order of the calls: a request has its subject at hand, and so do
/// these. Otherwise all would pay alike for finding it in memory.
pub(crate) struct Workload<K> {
    pub(crate) id: &'static str,
    pub(crate) title: String,
    /// Subjects that are known before the measuring begins.
    pub(crate) known: Vec<K>,
    pub(crate) calls: Vec<K>,
    pub(crate) setup: Setup,
}

/// Settings of a limiter for a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Burst of a subject.
    pub(crate) burst: u32,
    /// Maximum number of subjects to keep, for those that can be bounded.
    pub(crate) max: Option<usize>,
}

/// A burst that is never used up; at one a minute, nothing recovers meanwhile either.
pub(crate) const AMPLE: u32 = 30_000_000;

/// How much to measure: subjects in the large sets, and calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) subjects: u64,
    pub(crate) calls: u64,
}

/// The workloads whose subjects are texts.
pub(crate) fn workloads(size: Size) -> Vec<Workload<String>> {
    let Size { subjects, calls } = size;
    let tenth = subjects.div_ceil(10);
    let drawn = |draw: fn(u64, u64) -> u64, of| {
        (0..calls).map(|n| subject(draw(random(n), of))).collect::<Vec<_>>()
    };
    let ample = Setup { burst: AMPLE, max: None };
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

/// The workload whose subjects are numbers.
pub(crate) fn numbered(size: Size) -> Workload<u64> {
    let tenth = size.subjects.div_ceil(10);
    Workload {
        id: "numbers",
        title: format!("{tenth} subjects that are numbers, uniform"),
        known: (0..tenth).collect(),
        calls: (0..size.calls).map(|n| random(n) % tenth).collect(),
        setup: Setup { burst: AMPLE, max: None },
    }
}

fn all(count: u64) -> Vec<String> {
    (0..count).map(subject).collect()
}

/// 20 bytes, told apart by the last.
pub(crate) fn subject(number: u64) -> String {
    format!("subject:{number:012}")
}

fn uniform(random: u64, of: u64) -> u64 {
    random % of
}
