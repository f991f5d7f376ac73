//! Random policies. Most policies have small numbers, so that a random trace reaches the limit and
//! the end of a window often. A few policies have numbers of any size.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::civil::{Weekday, date, time};
use tidegate_core::{
    Algorithm, Block, Concurrent, FairPool, FixedWindow, Policy, PolicyError, Quota, Share,
    SlidingCounter, SlidingLog, TokenBucket,
};

/// The kinds of algorithms. A token bucket that refills by intervals has its own kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in tidegate_core")]
#[non_exhaustive]
pub enum Kind {
    FixedWindow,
    SlidingLog,
    SlidingCounter,
    TokenBucket,
    IntervalBucket,
    Gcra,
    Quota,
    FairPool,
}

impl Kind {
    /// All kinds of algorithms.
    pub const ALL: [Self; 8] = [
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingCounter,
        Self::TokenBucket,
        Self::IntervalBucket,
        Self::Gcra,
        Self::Quota,
        Self::FairPool,
    ];

    /// Returns a strategy for any kind in [`ALL`](Self::ALL).
    pub fn any() -> impl Strategy<Value = Self> {
        prop::sample::select(&Self::ALL[..])
    }
}

/// The numbers of an algorithm: the limit or burst, the count per period, and the window or period
/// in µs.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    limit: u64,
    count: u64,
    span: u64,
}

/// Returns a strategy for a policy with this kind of algorithm and this name. One in four policies
/// blocks after a denial, one in four warns, and one in eight is a shadow. Half of the blocks grow
/// with each offense.
pub fn policy(kind: Kind, name: &'static str) -> impl Strategy<Value = Policy> {
    let shadow = prop::bool::weighted(0.125);
    (algorithm(kind), block(), warn(), shadow).prop_map(move |(algorithm, block, warn, shadow)| {
        finish(name, algorithm, block, warn, shadow)
    })
}

/// Returns a strategy for a policy of any kind, with a name.
pub fn any_policy(name: &'static str) -> impl Strategy<Value = Policy> {
    Kind::any().prop_flat_map(move |kind| policy(kind, name))
}

/// Returns a strategy for a policy of slots, with this name. One in four policies blocks after a
/// refusal, and one in eight is a shadow.
pub fn slots_policy(name: &'static str) -> impl Strategy<Value = Policy> {
    let lease = prop_oneof![6 => 5..60_u64, 1 => Just(1), 1 => Just(1 << 51)];
    (0..7_u64, lease, block(), warn(), prop::bool::weighted(0.125)).prop_map(
        move |(limit, lease, block, warn, shadow)| {
            let slots = Concurrent::new(limit, Duration::from_micros(lease));
            finish(name, slots.into(), block, warn, shadow)
        },
    )
}

/// Returns a strategy for a policy of few slots with a short lease, with this name. One in eight
/// policies is a shadow.
pub fn few_slots(name: &'static str) -> impl Strategy<Value = Policy> {
    (1..5_u64, 5..20_u64, prop::bool::weighted(0.125)).prop_map(move |(limit, lease, shadow)| {
        let slots = Concurrent::new(limit, Duration::from_micros(lease));
        finish(name, slots.into(), None, None, shadow)
    })
}

/// Returns a strategy for three policies of any kinds, with the names `p`, `q` and `r`.
pub fn several_policies() -> impl Strategy<Value = Vec<Policy>> {
    (any_policy("p"), any_policy("q"), any_policy("r")).prop_map(|(p, q, r)| vec![p, q, r])
}

/// Returns a strategy for two to four policies with the same name and random limits. Some of these
/// policies also have another algorithm or window, and some block after a denial.
pub fn related_policies(kind: Kind, name: &'static str) -> impl Strategy<Value = Vec<Policy>> {
    let one = (numbers(), variant(), block());
    let related = (one, prop::collection::vec(change(), 1..4));
    related.prop_filter_map("not within the bounds", move |((first, variant, block), changes)| {
        let policy = |algorithm, block| {
            Policy::new(name, algorithm).and_then(|policy| with_block(policy, block)).ok()
        };
        let mut policies = vec![policy(build(kind, first, variant)?, block)?];
        for change in changes {
            let numbers = Numbers {
                limit: change.limit,
                count: change.count.unwrap_or(first.count),
                span: change.span.unwrap_or(first.span),
            };
            let algorithm = build(change.kind.unwrap_or(kind), numbers, variant)?;
            policies.push(policy(algorithm, change.block)?);
        }
        Some(policies)
    })
}

#[derive(Debug, Clone)]
struct Change {
    limit: u64,
    count: Option<u64>,
    span: Option<u64>,
    kind: Option<Kind>,
    block: Option<Block>,
}

fn change() -> impl Strategy<Value = Change> {
    let rarely = |strategy| prop::option::weighted(0.2, strategy);
    (
        1..9_u64,
        prop::option::weighted(0.5, 1..9_u64),
        rarely((1..13_u64).boxed()),
        prop::option::weighted(0.2, Kind::any()),
        block(),
    )
        .prop_map(|(limit, count, span, kind, block)| Change {
            limit,
            count,
            span,
            kind,
            block,
        })
}

fn finish(
    name: &str,
    algorithm: Algorithm,
    block: Option<Block>,
    warn: Option<u8>,
    shadow: bool,
) -> Policy {
    let policy = Policy::new(name, algorithm)
        .and_then(|policy| with_block(policy, block))
        .and_then(|policy| match warn {
            Some(percent) => policy.warn_at(percent),
            None => Ok(policy),
        })
        .unwrap_or_else(|error| unreachable!("the generated policy is within the bounds: {error}"));
    if shadow { policy.shadow() } else { policy }
}

/// Returns a strategy for an optional percentage from which a policy warns.
fn warn() -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(0.25, 1..=100_u8)
}

/// Adds a block, except to a fair pool.
fn with_block(policy: Policy, block: Option<Block>) -> Result<Policy, PolicyError> {
    match block {
        Some(block) if !policy.is_fair_pool() => policy.block_with(block),
        _ => Ok(policy),
    }
}

/// Returns a strategy for an optional block. It is boxed, because a test has several of these large
/// strategies on its stack.
fn block() -> BoxedStrategy<Option<Block>> {
    const MAX: u64 = 1 << 51;
    let any_span = prop_oneof![4 => 1..20_u64, 1 => Just(60 * 86_400_000_000), 1 => Just(MAX)];
    let more = prop_oneof![8 => 1..60_u64, 1 => Just(MAX)];
    let factor = prop_oneof![8 => 2..5_u32, 1 => Just(Block::MAX_FACTOR)];
    let forget = prop_oneof![8 => 1..60_u64, 1 => Just(MAX)];
    let growth = prop::option::weighted(0.5, (factor, more, forget));
    let block = (any_span, growth, prop::bool::weighted(0.25));
    let block = block.prop_map(|(span, growth, restarts)| {
        let micros = Duration::from_micros;
        let block = match growth {
            Some((factor, more, forget)) if span < MAX => Block::new(micros(span)).growing(
                factor,
                micros(MAX.min(span + more)),
                micros(forget),
            ),
            _ => Block::new(micros(span)),
        };
        if restarts { block.restarting() } else { block }
    });
    prop::option::weighted(0.25, block).boxed()
}

fn algorithm(kind: Kind) -> impl Strategy<Value = Algorithm> {
    (numbers(), variant()).prop_filter_map("not within the bounds", move |(numbers, variant)| {
        build(kind, numbers, variant).filter(|a| Policy::new("p", a.clone()).is_ok())
    })
}

/// Returns a strategy for the numbers of an algorithm. Most numbers are small, and some are as
/// large as possible.
fn numbers() -> impl Strategy<Value = Numbers> {
    let small = (0..7_u64, 1..8_u64, 1..13_u64);
    // Special numbers: rates whose intervals are not whole microseconds, windows without a common
    // divisor with the limit, and ticks longer than 1 µs.
    let known = prop::sample::select(vec![
        (1_000_000, 1_000_000, 1_000_000),
        (5, 300_000, 1_000_000),
        (3, 3, 7_000_000),
        (10, 3, 7),
        (50_000, 50_000, 1_000_000),
        (1, 1, 1),
        (1, 1_000_003, 1_000_000),
        (100, 1, 365 * 86_400_000_000),
        (1, 1, 1 << 51),
        (1_000_000, 1_000_000, 86_400_000_000),
        (400_000_000_000, 7, 10_000_000),
        (4_000_000, 999_999_937, 3_600_000_000),
        (5, 3, 30_000_000),
        (1 << 52, 1, 1),
        (1 << 52, 1 << 52, 1),
        (1_000_003, 1_000_033, 86_400_000_000),
    ]);
    let wild = (any_size(), any_size(), any_size());
    prop_oneof![12 => small, 5 => known, 2 => wild].prop_map(|(limit, count, span)| Numbers {
        limit,
        count,
        span,
    })
}

/// Returns a strategy for numbers of any size. Numbers with few bits are as frequent as numbers
/// with many bits.
fn any_size() -> impl Strategy<Value = u64> {
    (0..53_u32, any::<u64>()).prop_map(|(bits, number)| number >> (63 - bits))
}

fn variant() -> impl Strategy<Value = (u8, u64)> {
    (0..3_u8, prop_oneof![1 => Just(0), 2 => 1..8_u64])
}

/// Builds an algorithm of the kind `kind`. The last argument selects the start of a fixed window
/// and the number of grains in the window of a sliding log.
fn build(kind: Kind, numbers: Numbers, (start, grains): (u8, u64)) -> Option<Algorithm> {
    let Numbers { limit, count, span } = numbers;
    let window = Duration::from_micros(span);
    Some(match kind {
        Kind::FixedWindow => {
            let spec = FixedWindow::new(limit, window);
            match start {
                0 => spec.into(),
                1 => spec.phased().into(),
                _ => spec.anchored().into(),
            }
        }
        Kind::SlidingLog => {
            let spec = SlidingLog::new(limit, window);
            match span.checked_div(grains) {
                Some(grain @ 1..) => spec.grain(Duration::from_micros(grain)).into(),
                _ => spec.into(),
            }
        }
        Kind::SlidingCounter => SlidingCounter::new(limit, window).into(),
        Kind::TokenBucket => TokenBucket::new(count, window).burst(limit).into(),
        Kind::IntervalBucket => TokenBucket::new(count, window).burst(limit).by_interval().into(),
        Kind::Gcra => TokenBucket::gcra(count, window).burst(limit).into(),
        Kind::Quota => quota(limit, start, grains, count, span).into(),
        Kind::FairPool => FairPool::new(limit, window).weight(1 + grains).into(),
    })
}

/// Builds a quota. `unit` selects the unit, and the other numbers select the zone, the time of day
/// and the anchor.
fn quota(limit: u64, start: u8, unit: u64, zone: u64, span: u64) -> Quota {
    const ZONES: [&str; 7] = [
        "UTC",
        "Europe/Amsterdam",
        "Africa/Cairo",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "America/Havana",
        "Australia/Lord_Howe",
    ];
    let zone = ZONES[usize::try_from(zone % 7).unwrap_or(0)];
    let day = i8::try_from(1 + span % 31).unwrap_or(1);
    let quota = match unit {
        0 | 1 => Quota::per_day(limit, zone),
        2 | 3 => Quota::per_month(limit, zone),
        4 => Quota::per_year(limit, zone),
        5 => Quota::per_week(limit, Weekday::Sunday, zone),
        _ => return Quota::credits(limit),
    };
    let quota = match (span % 5, Share::new(2, 2 + u32::from(start))) {
        (0 | 1, Ok(share)) => quota.rollover(share),
        (2, _) => quota.since(date(2026, 9, day.min(30)).at(7, 0, 0, 0)),
        _ => quota,
    };
    match start {
        1 => quota.at(time(i8::try_from(span % 24).unwrap_or(0), 30, 0, 0)),
        2 if (2..=4).contains(&unit) => quota.anchored(date(2024, 1, day).at(9, 0, 0, 0)),
        _ => quota,
    }
}
