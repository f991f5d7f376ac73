//! Tests of policies: valid and invalid policies, error messages, and the grammar.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Algorithm, Block, Call, Charge, Concurrent, FairPool, FixedWindow, MAX_EXACT, Operation,
    Policy, Shards, Share, SlidingCounter, SlidingLog, TokenBucket,
};

const MINUTE: Duration = Duration::from_secs(60);

fn refused(name: &str, algorithm: impl Into<Algorithm>) -> String {
    Policy::new(name, algorithm).unwrap_err().to_string()
}

fn misread(text: &str) -> (String, Option<std::ops::Range<usize>>) {
    let error = text.parse::<Policy>().unwrap_err();
    (error.to_string(), error.span())
}

#[test]
fn b35_zeros_are_errors_by_name_but_a_limit_of_zero_denies_all() {
    assert_eq!(
        refused("w", FixedWindow::new(1, Duration::ZERO)),
        "the window is 0; it must be at least 1us"
    );
    assert_eq!(refused("b", TokenBucket::new(0, MINUTE)), "the rate is 0; it must be at least 1");
    assert_eq!(
        refused("b", TokenBucket::new(1, MINUTE).burst(0)),
        "the burst is 0; it must be at least 1"
    );
    assert_eq!(
        refused("b", TokenBucket::gcra(1, Duration::ZERO)),
        "the period is 0; it must be at least 1us"
    );
    assert_eq!(
        refused("l", SlidingLog::new(1, MINUTE).grain(Duration::ZERO)),
        "the grain is 0; it must be at least 1us"
    );
    assert_eq!(Policy::new("w", FixedWindow::new(0, MINUTE)).unwrap().limit(), 0);
    assert!(Policy::new("l", SlidingLog::new(0, MINUTE)).is_ok());
    assert!(Policy::new("c", SlidingCounter::new(0, MINUTE)).is_ok());
    assert!(
        Policy::new("w", FixedWindow::new(1, MINUTE)).unwrap().block_for(Duration::ZERO).is_err()
    );
}

#[test]
fn slots_have_a_number_and_a_lease() {
    for text in [
        "slots: concurrent 10 lease 30s",
        "concurrent 0 lease 1us",
        "s: concurrent 100000 lease 1d block 1s shards 2 whole max-hold 1/2 shadow",
    ] {
        let policy: Policy = text.parse().unwrap();
        assert_eq!(policy.to_string(), text);
        assert!(policy.is_concurrent() && policy.refunds_lapsed());
    }
    let built = Policy::new("slots", Concurrent::new(10, Duration::from_secs(30))).unwrap();
    assert_eq!(built, "slots: concurrent 10 lease 30s".parse().unwrap());
    assert_eq!(built.clone().refund_lapsed(), built);
    assert!(built.max_open_holds_of(5).is_err());
    for (text, message, marked) in [
        (
            "concurrent 100001 lease 1s",
            "the number of slots is 100001; it must be at most 100000",
            "100001",
        ),
        ("concurrent 5 lease 0s", "it must be at least 1us", "0s"),
        ("concurrent 5 lease", "there must be a span of time after `lease`, such as `30s`", ""),
        (
            "concurrent 5 30s",
            "`30s` is not `lease`; there must be `lease` and a span of time",
            "30s",
        ),
        ("concurrent 5/1m", "`5/1m` is not a whole number; write 100 or 1_000", "5/1m"),
        ("concurrent 5 lease 1s leased", "`leased` is not an option of concurrent", "leased"),
        ("concurrent 5 lease 1s refund-lapsed", "is not an option of concurrent", "refund-lapsed"),
        ("slots 5 lease 1s", "did you mean `concurrent` (slots in use at a time)?", "slots"),
    ] {
        let (error, span) = misread(text);
        assert!(error.contains(message), "{text}: {error}");
        assert_eq!(&text[span.unwrap()], marked, "{text}: {error}");
    }
}

#[test]
fn a_fair_pool_has_a_limit_a_window_and_a_weight() {
    for text in ["pool: fair-pool 10/1m", "fair-pool 4294967296/1us weight 1000 warn 80% shadow"] {
        let policy: Policy = text.parse().unwrap();
        assert_eq!(policy.to_string(), text);
        assert!(policy.is_fair_pool() && policy.is_per_tenant() && !policy.stores_holds());
    }
    let built = Policy::new("pool", FairPool::new(10, MINUTE).weight(3)).unwrap();
    assert_eq!(built, "pool: fair-pool 10/1m weight 3".parse().unwrap());
    let light = "pool: fair-pool 10/1m".parse::<Policy>().unwrap();
    assert!(built.shares_state_with(&light));
    assert_eq!(built.clone().refund_lapsed().count_failures(), built);
    assert!(built.clone().block_for(MINUTE).is_err() && built.sharded(Shards::whole(2)).is_err());
    for (text, message, marked) in [
        ("fair-pool 4294967297/1m", "it must be at most 2^32 = 4294967296", "4294967297/1m"),
        (
            "fair-pool 5/26d",
            "the window of a fair pool is 26d; it must be at most 2^41 us",
            "5/26d",
        ),
        ("fair-pool 5/1m weight 0", "the weight is 0; it must be 1 to 1000", "0"),
        ("fair-pool 5/1m weight 1001", "the weight is 1001; it must be 1 to 1000", "1001"),
        ("fair-pool 5/1m block 1m", "`block` is not an option of fair-pool", "block"),
        ("fair-pool 5/1m leased", "is not an option of fair-pool", "leased"),
        ("fair-pool 5/1m shards 2", "it takes weight, max-hold, warn, shadow", "shards"),
        ("fixed-window 5/1m weight 2", "`weight` is not an option of fixed-window", "weight"),
        ("fair 5/1m", "did you mean `fair-pool`", "fair"),
    ] {
        let (error, span) = misread(text);
        assert!(error.contains(message), "{text}: {error}");
        assert_eq!(&text[span.unwrap()], marked, "{text}: {error}");
    }
}

#[test]
fn b28_a_log_that_may_need_too_many_records_is_an_error_with_a_sufficient_grain() {
    let max = SlidingLog::MAX_RECORDS;
    assert!(Policy::new("l", SlidingLog::new(max, MINUTE)).is_ok());
    let message = refused("l", SlidingLog::new(max + 1, MINUTE));
    assert!(message.contains("1048577") && message.contains("1048576"), "{message}");
    let grain = message.rsplit("a grain of ").next().unwrap().split(' ').next().unwrap();
    let text = format!("sliding-log {}/1m grain {grain}", u64::MAX >> 13);
    assert!(text.parse::<Policy>().is_ok(), "{text}");
}

#[test]
fn b33_a_policy_takes_the_finest_tick_at_which_its_products_are_exact() {
    let tick = |text: &str| text.parse::<Policy>().unwrap().rule().tick();
    assert_eq!(tick("sliding-counter 60/1m"), 1);
    // For a window of a day, the largest limit with a tick of 1 µs is 2^52 / 86,400,000,000 µs =
    // 52,124.9.
    assert_eq!(tick("sliding-counter 52124/1d"), 1);
    assert_eq!(tick("sliding-counter 52125/1d"), 10);
    assert_eq!(tick("sliding-counter 521250/1d"), 100);
    assert_eq!(tick("token-bucket 7/1d burst 52124"), 1);
    assert_eq!(tick("token-bucket 7/1d burst 52125"), 10);
    // A tick must divide the window. A window of 86,400.000001 s has no tick other than 1 µs.
    let message = misread("sliding-counter 52125/86400000001us").0;
    assert!(message.contains("above 2^52") && message.contains("4503600000052125"), "{message}");
    let message = misread("token-bucket 7/1d burst 5000000000000").0;
    assert!(message.contains("above 2^52"), "{message}");
}

#[test]
fn spans_and_numbers_out_of_bounds_are_errors_with_the_bound() {
    let message = refused("w", FixedWindow::new(MAX_EXACT + 1, MINUTE));
    assert_eq!(
        message,
        "the limit is 4503599627370497; it must be at most 2^52 = 4503599627370496"
    );
    let long = Duration::from_secs(72 * 366 * 86_400);
    assert!(refused("w", FixedWindow::new(1, long)).contains("longer than 2^51 us"));
    assert!(
        refused("w", FixedWindow::new(1, Duration::from_secs(u64::MAX)))
            .contains("longer than 2^51 us")
    );
    assert!(refused("w", FixedWindow::new(1, Duration::from_nanos(1_500))).contains("1.5µs"));
    assert!(refused("b", TokenBucket::new(1, MINUTE * 60 * 24).burst(30_000)).contains("to fill"));
    assert!(
        refused("b", TokenBucket::new(1, MINUTE * 60 * 24).burst(30_000).by_interval())
            .contains("to fill")
    );
    assert!(
        refused("l", SlidingLog::new(1, MINUTE).grain(MINUTE * 2))
            .contains("the grain 2m is longer than the window 1m")
    );
}

#[test]
fn names_are_short_and_plain() {
    assert!(Policy::new("per-user_v1.2", FixedWindow::new(1, MINUTE)).is_ok());
    assert!(Policy::new(&"n".repeat(64), FixedWindow::new(1, MINUTE)).is_ok());
    assert!(refused(&"n".repeat(65), FixedWindow::new(1, MINUTE)).contains("65 bytes"));
    assert!(refused("", FixedWindow::new(1, MINUTE)).contains("0 bytes"));
    assert!(refused("a{b", FixedWindow::new(1, MINUTE)).contains("'{'"));
    assert!(refused("é", FixedWindow::new(1, MINUTE)).contains("'é'"));
}

#[test]
fn short_and_long_spellings_are_the_same_policy() {
    for (short, long) in [
        ("token-bucket 10/s", "token-bucket 10/1s burst 10"),
        ("gcra 1_000/minute burst 5", "gcra 1000/1m burst 5"),
        ("  api :  fixed-window   7/1w ", "api: fixed-window 7/7d"),
        ("sliding-log 5/1h30m shadow block 1d", "sliding-log 5/90m block 1d shadow"),
        (
            "sliding-log 5/1h shadow block 60s x4 up to 24h forget 1w restart",
            "sliding-log 5/1h block 1m x4 up to 1d forget 7d restart shadow",
        ),
        ("gcra 5/1m block 1m restart", "gcra 5/1m burst 5 block 1m restart"),
        ("fixed-window 1/1500ms phased", "fixed-window 1/1500ms phased"),
        ("sliding-log: sliding-log 5/15min", "sliding-log: sliding-log 5/15m"),
        ("token-bucket 5/1m by-interval burst 9", "token-bucket 5/1m burst 9 by-interval"),
        ("sliding-log 5/1m shadow shards 8", "sliding-log 5/1m shards 8 shadow"),
        ("fixed-window 5/1m shadow leased", "fixed-window 5/1m leased shadow"),
        ("gcra 5/1m shards 8 burst 6 by-subject", "gcra 5/1m burst 6 shards 8 by-subject"),
        ("gcra 5/1m shards 8 whole block 1s", "gcra 5/1m burst 5 block 1s shards 8 whole"),
    ] {
        assert_eq!(short.parse::<Policy>().unwrap().to_string(), long);
    }
}

/// The text of a policy is possibly from an untrusted file, and terminals and logs show the error
/// message. So the message must not contain control characters or very long words.
#[test]
fn an_error_shows_no_character_that_steers_a_terminal_and_no_long_word_in_full() {
    let long = "x".repeat(1 << 20);
    for text in [
        "\u{1b}[31mgcra 5/1m",
        "gcra 5/1m \u{1b}[31mshadow",
        "gcra \u{202e}5/1m",
        "gcra 5/\u{7}1m",
        "gcra 5/1m burst \u{1b}]0;title",
        "gcra 5/1m\nshadow\r \u{200f}x",
        &long,
        &format!("gcra {long}"),
        &format!("gcra {long}/1m"),
        &format!("gcra 5/{long}"),
        &format!("gcra 5/1m {long}"),
        &format!("gcra 5/1m shadow {}\u{1b} shadow", " ".repeat(1 << 20)),
        &format!("gcra 5/1m {}", "9".repeat(1 << 20)),
        &format!("gcra {}/1m", "9".repeat(1 << 20)),
        &format!("gcra 5/{}d", "9".repeat(1 << 20)),
    ] {
        let error = text.parse::<Policy>().unwrap_err();
        let start: String = text.chars().take(30).collect();
        for shown in [error.to_string(), format!("{error:#}").replace("\n| ", "")] {
            assert!(
                !shown.contains(['\u{1b}', '\u{7}', '\n', '\r', '\u{202e}', '\u{200f}']),
                "{start:?}"
            );
            assert!(shown.chars().count() < 600, "{start:?}: {} characters", shown.len());
        }
    }
    let error = format!("gcra 5/1m{}oops {long}", " ".repeat(200)).parse::<Policy>().unwrap_err();
    let shown = format!("{error:#}");
    let lines: Vec<&str> = shown.lines().collect();
    let place = |line: &str, character: char| line.chars().position(|c| c == character).unwrap();
    assert_eq!(place(lines[1], 'o'), place(lines[2], '^'), "{shown}");
}

#[test]
fn an_error_points_at_the_wrong_word_and_suggests_a_correction() {
    for (text, wrong, says) in [
        ("", "", "there must be an algorithm"),
        ("slidng-log 5/1m", "slidng-log", "did you mean `sliding-log`?"),
        ("bananas 5/1m", "bananas", "There are fixed-window"),
        ("sliding-window 5/1m", "sliding-window", "`sliding-log` (exact) or `sliding-counter`"),
        ("slidingWindow 5/1m", "slidingWindow", "`sliding-log` (exact) or `sliding-counter`"),
        ("fixed 5/1m", "fixed", "did you mean `fixed-window`?"),
        ("leaky 5/1m", "leaky", "did you mean `gcra`"),
        ("100/1m", "100/1m", "write an algorithm before it: `sliding-log 100/1m`"),
        ("sliding-log", "", "there must be a rate"),
        ("sliding-log 100", "100", "`100/1m`"),
        ("sliding-log 100/", "100/", "no span after the slash"),
        ("sliding-log /1m", "", "there is no number here"),
        ("sliding-log ten/1m", "ten", "`ten` is not a whole number"),
        ("sliding-log -5/1m", "-5", "`-5` is not a whole number"),
        ("sliding-log 1.5/1m", "1.5", "`1.5` is not a whole number"),
        ("sliding-log 99999999999999999999/1m", "99999999999999999999", "at most 2^52"),
        ("sliding-log 5/1fortnight", "1fortnight", "write 250ms, 90s, 1m"),
        ("sliding-log 5/0s", "0s", "at least 1us"),
        ("sliding-log 5/99999999999d", "99999999999d", "71 years"),
        ("sliding-log 5/1m grains 1s", "grains", "did you mean `grain`?"),
        ("sliding-log 5/1m grain", "", "a span of time after `grain`"),
        ("sliding-log 5/1m burst 7", "burst", "it takes grain, block, shards, max-hold"),
        ("fixed-window 5/1m anchored phased", "phased", "exclude each other"),
        ("gcra 5/1m burst many", "many", "`many` is not a whole number"),
        ("gcra 5/1m burst 5 burst 6", "burst", "twice"),
        ("gcra 5/1m shadow shadow", "shadow", "twice"),
        (": gcra 5/1m", ":", "no name before the colon"),
        ("a b: gcra 5/1m", "a b", "' '"),
        ("x: gcra 0/1m", "0/1m", "the rate is 0"),
        ("gcra 5/1m shadow burst 0", "0", "the burst is 0"),
        ("sliding-log 5/1m grain 2m block 1h", "2m", "longer than the window"),
        ("gcra 1/1d burst 30000", "gcra 1/1d burst 30000", "to fill"),
        ("gcra 5/1m block 0s", "0s", "at least 1us"),
        (
            "gcra 5/1m block 1m x1 up to 1d forget 7d",
            "x1",
            "factor of the block is 1; it must be from 2 to 100",
        ),
        ("gcra 5/1m block 1m x101 up to 1d forget 7d", "x101", "is 101; it must be from 2 to 100"),
        ("gcra 5/1m block 1m x4294967297 up to 1d forget 7d", "x4294967297", "from 2 to 100"),
        ("gcra 5/1m block 1m x4.5 up to 1d forget 7d", "4.5", "not a whole number"),
        ("gcra 5/1m block 1m x4 forget 7d", "forget", "is not `up`; there must be `up to`"),
        ("gcra 5/1m block 1m x4 up 1d forget 7d", "1d", "is not `to`"),
        ("gcra 5/1m block 1m x4 up to 1d", "", "there must be `forget`"),
        ("gcra 5/1m block 1m x4 up to 1d restart", "restart", "is not `forget`"),
        (
            "gcra 5/1m block 1m x4 up to 1m forget 7d",
            "1m",
            "grows up to 1m; it must be more than 1m",
        ),
        ("gcra 5/1m block 1m x4 up to 1d forget 0s", "0s", "at least 1us"),
        ("gcra 5/1m block 1m up to 1d forget 7d", "up", "is not an option"),
        ("gcra 5/1m block 1m x2 up to 1d forget 7d shards 8", "8", "exclude each other"),
        ("gcra 5/1m shards", "", "a number after `shards`"),
        ("gcra 5/1m shards 8 shards 9", "shards", "twice"),
        ("gcra 5/1m shards 0", "0", "the number of shards is 0; it must be 1 to 256"),
        ("gcra 5/1m shards 257", "257", "the number of shards is 257; it must be 1 to 256"),
        ("gcra 5/1m shard 8", "shard", "did you mean `shards`?"),
        ("gcra 5/1m whole shards 8", "whole", "`shards 8 whole`"),
        ("gcra 5/1m by-subject", "by-subject", "`shards 8 by-subject`"),
        ("gcra 5/1m shards 8 whole by-subject", "by-subject", "exclude each other"),
        ("gcra 5/1m shards 8 block 1m", "8", "exclude each other"),
    ] {
        let (message, span) = misread(text);
        let span = span.unwrap();
        assert!(message.contains(says), "{text}: {message}");
        assert_eq!(&text[span.clone()], wrong, "{text}: {message}");
        // If the text contains the wrong word twice, the error must point to the second occurrence.
        assert!(wrong.is_empty() || span.start == text.rfind(wrong).unwrap(), "{text}");
    }
}

#[test]
fn the_mark_is_below_the_word_after_any_characters() {
    let error = "é\u{7}: gcra".parse::<Policy>().unwrap_err();
    let lines: Vec<String> = format!("{error:#}").lines().map(str::to_owned).collect();
    assert_eq!(lines[1..], ["| é\u{fffd}: gcra", "|         ^"]);
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let number = || prop_oneof![1..100_u64, 1..=MAX_EXACT];
    let span = || {
        prop_oneof![1..5_000_000_u64, (1..4_000_u64).prop_map(|s| s * 1_000_000), 1..(1_u64 << 51)]
            .prop_map(Duration::from_micros)
    };
    prop_oneof![
        (number(), span(), 0..3).prop_map(|(limit, window, start)| {
            let policy = FixedWindow::new(limit, window);
            match start {
                0 => policy.into(),
                1 => policy.phased().into(),
                _ => Algorithm::from(policy.anchored()),
            }
        }),
        (number(), span(), prop::option::of(span())).prop_map(|(limit, window, grain)| {
            let policy = SlidingLog::new(limit, window);
            grain.map_or(policy.clone(), |grain| policy.grain(grain)).into()
        }),
        (number(), span()).prop_map(|(limit, window)| SlidingCounter::new(limit, window).into()),
        (number(), span(), number(), any::<bool>()).prop_map(|(refill, period, burst, steps)| {
            let policy = TokenBucket::new(refill, period).burst(burst);
            if steps { policy.by_interval().into() } else { policy.into() }
        }),
        (number(), span(), number()).prop_map(|(count, period, burst)| TokenBucket::gcra(
            count, period
        )
        .burst(burst)
        .into()),
    ]
}

/// Returns policies with few names, windows and options, so that some of these policies are equal.
fn state_name_policies() -> impl Strategy<Value = Policy> {
    let name = prop::sample::select(vec!["", "p: ", "q: ", "window.1m: "]);
    let algorithm = prop::sample::select(vec![
        "fixed-window 8/1m",
        "fixed-window 9/1m",
        "fixed-window 8/60s",
        "fixed-window 8/1h",
        "fixed-window 8/1m phased",
        "fixed-window 8/1m anchored",
        "sliding-log 8/1m",
        "sliding-log 8/1m grain 1s",
        "sliding-log 8/1m grain 1ms",
        "sliding-counter 8/1m",
        "token-bucket 8/1m",
        "gcra 8/1m burst 8",
        "token-bucket 8/1m by-interval",
        "token-bucket 8/1h by-interval",
    ]);
    let options = prop::sample::select(vec![
        "",
        " shadow",
        " leased",
        " shards 2",
        " shards 3",
        " shards 3 whole",
    ]);
    (name, algorithm, options).prop_map(|(name, algorithm, options)| {
        format!("{name}{algorithm}{options}").parse().unwrap()
    })
}

#[test]
fn states_are_stored_under_the_name_and_the_shape() {
    for (text, expected) in [
        ("p: fixed-window 5/1m", "p:window.1m"),
        ("p: fixed-window 500/1m block 1h shadow", "p:window.1m"),
        ("p: fixed-window 5/1m phased", "p:window.1m.phased"),
        ("p: fixed-window 5/1m anchored", "p:window.1m.anchored"),
        ("p: sliding-log 5/15m", "p:log.15m"),
        ("p: sliding-log 5/15m grain 1s", "p:log.15m.1s"),
        ("p: sliding-counter 5/1d", "p:counter.1d"),
        ("p: token-bucket 5/1s", "p:bucket"),
        ("p: gcra 7/3h burst 9", "p:bucket"),
        ("p: token-bucket 5/1500ms by-interval", "p:bucket.1500ms"),
        ("fixed-window 5/60s", "fixed-window 5/1m"),
        ("gcra 5/1s shadow", "gcra 5/1s burst 5 shadow"),
    ] {
        let policy: Policy = text.parse().unwrap();
        assert_eq!(policy.state_name().to_string(), expected, "{text}");
    }
    let hot: Policy = "hot: fixed-window 5/1m shards 3".parse().unwrap();
    let shares: Vec<_> = hot.shares().iter().map(|share| share.state_name().to_string()).collect();
    assert_eq!(shares, ["hot:window.1m%0.3", "hot:window.1m%1.3", "hot:window.1m%2.3"]);
}

/// If a policy has no given name, its name is its text. The name changes with each change of the
/// policy, because nothing else distinguishes the policy from other policies.
#[test]
fn a_policy_without_a_name_is_named_by_its_whole_text() {
    let plain: Policy = "sliding-log 9/1m".parse().unwrap();
    assert_eq!((plain.name(), plain.is_named()), ("sliding-log 9/1m", false));
    let minute = Duration::from_secs(60);
    let changed = plain.clone().block_for(minute).unwrap().shadow();
    assert_eq!(changed.name(), "sliding-log 9/1m block 1m shadow");
    let sharded = plain.clone().sharded(Shards::any(2)).unwrap().shadow();
    assert_eq!(sharded.name(), "sliding-log 9/1m shards 2 shadow");
    assert!(sharded.shares().iter().all(|share| share.name() == sharded.name()));
    let half = plain.scaled_to(Share::new(1, 2).unwrap()).unwrap().unwrap();
    assert_eq!(half.name(), "sliding-log 4/1m");
    let named = Policy::new("sliding-log", SlidingLog::new(9, minute)).unwrap();
    assert_ne!(named, plain, "the name distinguishes the policies");
    assert_eq!(named.to_string(), "sliding-log: sliding-log 9/1m");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn a_printed_policy_is_parsed_as_the_same_policy(
        name in prop::option::weighted(
            0.8,
            prop_oneof!["[A-Za-z0-9_.-]{1,64}", Just("gcra".to_owned()), Just("gcra2".to_owned())],
        ),
        algorithm in algorithms(),
        block in prop::option::of((1..(1_u64 << 51), 0..(1_u64 << 51), 2..=100_u32, any::<bool>())),
        shadow in any::<bool>(),
        leased in any::<bool>(),
        shards in prop::option::of((1..=256_u32, 0..3_usize)),
    ) {
        let policy = match &name {
            Some(name) => Policy::new(name, algorithm),
            None => Policy::unnamed(algorithm),
        };
        let Ok(mut policy) = policy else { return Ok(()) };
        if let Some((span, more, factor, restarts)) = block {
            let [span, up_to, forget] =
                [span, (span + more).min(1 << 51), more.max(1)].map(Duration::from_micros);
            let mut block = Block::new(span);
            if up_to > span {
                block = block.growing(factor, up_to, forget);
            }
            policy = policy.block_with(if restarts { block.restarting() } else { block }).unwrap();
        }
        if leased {
            policy = policy.leased();
        }
        if shadow {
            policy = policy.shadow();
        }
        if let Some((count, by)) = shards {
            let shards = [Shards::any(count), Shards::by_subject(count), Shards::whole(count)][by];
            let Ok(sharded) = policy.sharded(shards) else { return Ok(()) };
            policy = sharded;
        }
        let text = policy.to_string();
        prop_assert_eq!(text.parse::<Policy>().unwrap(), policy.clone(), "{}", text);
        prop_assert_eq!(policy.name(), name.as_deref().unwrap_or(&text));
        prop_assert_eq!(policy.is_named(), name.is_some());
        for share in policy.shares() {
            prop_assert_eq!(share.name(), policy.name());
        }
    }

    /// Stores compare the states of two policies by `shares_state_with`, by the text of the state
    /// names, or by the hashes of the state names. The three comparisons must agree.
    #[test]
    fn policies_share_states_exactly_if_their_state_names_are_equal(
        one in state_name_policies(),
        other in state_name_policies(),
    ) {
        let all = |policy: &Policy| {
            policy.shares().iter().chain([policy]).cloned().collect::<Vec<_>>()
        };
        for one in all(&one) {
            for other in all(&other) {
                let is_same = one.state_name().to_string() == other.state_name().to_string();
                prop_assert_eq!(one.shares_state_with(&other), is_same, "{} and {}", one, other);
                prop_assert!(!is_same || one.state_hash() == other.state_hash());
            }
        }
    }

    #[test]
    fn any_text_is_parsed_or_rejected_with_a_position_within_it(
        text in prop_oneof![
            ".*",
            "([a-z-]{0,14}|fixed-window|gcra|sliding-log|token-bucket| |:|/|burst|block|x4|up|to|forget|restart|grain|shadow|leased|shards|whole|1m|5|_|0){0,12}",
        ],
    ) {
        if let Err(error) = text.parse::<Policy>() {
            let span = error.span().unwrap();
            prop_assert!(text.get(span).is_some());
            let shown = format!("{error:#}");
            prop_assert!(shown.lines().count() == 3, "{}", shown);
        }
    }
}

/// Guards against a former defect: the message was split over two lines in the source without a
/// backslash. So it contained the indentation of the source.
#[test]
fn the_message_about_reserving_a_split_policy_is_one_line_without_gaps() {
    let policy: Policy = "gcra 5/1m shards 8".parse().unwrap();
    let charges = [Charge::new(&policy, "subject")];
    let reserve = Operation::Reserve { max_wait: Duration::from_secs(1) };
    let message = Call::new(reserve, &charges).check().unwrap_err().to_string();
    assert!(message.contains("a shard does not know") && !message.contains("  "), "{message}");
}
