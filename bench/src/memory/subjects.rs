//! Who is asked about, in which order.

/// The subjects of calls, in the order of the calls: a request has its subject at hand, and so do
/// these. Otherwise all would pay alike for finding it in memory.
pub(crate) struct Workload {
    pub(crate) id: &'static str,
    pub(crate) title: String,
    /// Subjects that are known before the measuring begins.
    pub(crate) known: Vec<String>,
    pub(crate) calls: Vec<String>,
    /// What one subject may take at once.
    pub(crate) burst: u32,
}

/// So much that no caller is ever refused; at one a minute, nothing recovers meanwhile either.
pub(crate) const AMPLE: u32 = 30_000_000;

/// How much to measure: subjects in the large sets, and calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) subjects: u64,
    pub(crate) calls: u64,
}

pub(crate) fn workloads(size: Size) -> Vec<Workload> {
    let Size { subjects, calls } = size;
    let tenth = subjects.div_ceil(10);
    let workload = |id, title, known, calls, burst| Workload { id, title, known, calls, burst };
    let all = |count| (0..count).map(subject).collect::<Vec<_>>();
    let drawn = |draw: fn(u64, u64) -> u64, of| {
        (0..calls).map(|n| subject(draw(random(n), of))).collect::<Vec<_>>()
    };
    vec![
        workload(
            "hot",
            "one hot subject".to_owned(),
            all(1),
            (0..calls).map(|_| subject(0)).collect(),
            AMPLE,
        ),
        workload(
            "uniform",
            format!("{tenth} subjects, uniform"),
            all(tenth),
            drawn(|random, of| random % of, tenth),
            AMPLE,
        ),
        workload(
            "zipf",
            format!("{subjects} subjects, Zipf"),
            all(subjects),
            drawn(zipf, subjects),
            AMPLE,
        ),
        workload("insert", format!("{subjects} new subjects"), Vec::new(), all(subjects), AMPLE),
        workload(
            "denied",
            format!("{tenth} subjects, mostly denied"),
            all(tenth),
            drawn(|random, of| random % of, tenth),
            1,
        ),
    ]
}

/// 20 bytes, told apart by the last.
pub(crate) fn subject(number: u64) -> String {
    format!("subject:{number:012}")
}

/// SplitMix64.
pub(crate) fn random(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A rank that is drawn with a probability of about one over itself: each octave of ranks is as
/// likely as any other. Ranks are spread over the subjects.
fn zipf(random: u64, of: u64) -> u64 {
    let octaves = u64::from(of.ilog2()) + 1;
    let first = 1 << (random % octaves);
    let rank = first + (random >> 8) % first;
    rank.wrapping_mul(0x9e37_79b1) % of
}
