//! Tests the fields and problems that this crate writes.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use tidegate_core::{
    Decision, Degraded, DegradedAnswer, ErrorKind, Limiter, ManualClock, Outcome, Policy, Verdict,
};
use tidegate_http::fields::{
    FieldFormat, FieldScope, FieldWriter, Problem, ProblemKind, ServerLimit, ServerLimits,
};
use tidegate_memory::MemoryStore;

const ALL_FORMATS: [FieldFormat; 6] = [
    FieldFormat::Ietf11,
    FieldFormat::Ietf07,
    FieldFormat::Ietf06,
    FieldFormat::EnvoyDraft03,
    FieldFormat::XRateLimit,
    FieldFormat::XRateLimitEpoch,
];

/// 2026-03-26T16:00:00Z
const NOW: u64 = 1_774_540_800;

fn policies(texts: &[&str]) -> Vec<Policy> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn admission(limit: u64, remaining: u64, reset: Duration) -> Verdict {
    Verdict::new(Outcome::Allowed, limit).with_remaining(remaining).with_reset_after(reset)
}

fn refusal(limit: u64, remaining: u64, wait: Duration, reset: Duration) -> Verdict {
    Verdict::new(Outcome::Denied, limit)
        .with_remaining(remaining)
        .with_retry_after(Some(wait))
        .with_reset_after(reset)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the fields in the order of their names, as `name: value`.
fn written(format: FieldFormat, policies: &[Policy], decision: &Decision) -> Vec<String> {
    let writer = FieldWriter::builder().format(format).build(policies).unwrap();
    written_by(&writer, policies, decision)
}

fn written_by(writer: &FieldWriter, policies: &[Policy], decision: &Decision) -> Vec<String> {
    let mut headers = HeaderMap::new();
    let now = SystemTime::UNIX_EPOCH + secs(NOW) + ms(250);
    writer.write_at(now, decision.verdicts_of(policies), decision, &mut headers);
    shown(&headers)
}

fn shown(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

#[test]
fn each_policy_that_warns_is_named_in_each_format() {
    let policies =
        policies(&["a: fixed-window 5/1m", "b: fixed-window 5/1m shadow", "c: gcra 5/1s"]);
    let verdict = admission(5, 1, secs(1));
    let decision = |warns: [bool; 3]| {
        let verdicts = warns.map(|warns| verdict.with_warning(warns));
        Decision::new([verdicts[0], verdicts[1].in_shadow(), verdicts[2]])
    };
    let warnings = |lines: Vec<String>| {
        lines.into_iter().filter(|line| line.starts_with("ratelimit-warning")).collect::<Vec<_>>()
    };
    for format in ALL_FORMATS {
        let written = |warns| warnings(written(format, &policies, &decision(warns)));
        assert_eq!(written([false; 3]), [""; 0]);
        assert_eq!(written([true, true, false]), [r#"ratelimit-warning: "a", "b""#]);
    }
    let only_shadow = Decision::new([verdict.in_shadow().with_warning(true)]);
    let written = written(FieldFormat::Ietf11, &policies[1..2], &only_shadow);
    assert_eq!(written, [r#"ratelimit-warning: "b""#]);
}

#[test]
fn an_admission_tells_each_policy_and_when_it_is_full_again() {
    let policies =
        policies(&["permin: fixed-window 50/1m", "perhr: token-bucket 1000/1h burst 2000"]);
    let decision =
        Decision::new([admission(50, 49, ms(30_001)), admission(2000, 1000, secs(3600))]);
    let expected: [(FieldFormat, &[&str]); 6] = [
        (
            FieldFormat::Ietf11,
            &[
                r#"ratelimit-policy: "permin";q=50;w=60, "perhr";q=2000;w=7200"#,
                r#"ratelimit: "permin";r=49;t=31, "perhr";r=1000;t=3600"#,
            ],
        ),
        (
            FieldFormat::Ietf07,
            &[
                "ratelimit-policy: 50;w=60, 2000;w=7200",
                "ratelimit: limit=50, remaining=49, reset=31",
            ],
        ),
        (
            FieldFormat::Ietf06,
            &[
                "ratelimit-limit: 50",
                "ratelimit-policy: 50;w=60, 2000;w=7200",
                "ratelimit-remaining: 49",
                "ratelimit-reset: 31",
            ],
        ),
        (
            FieldFormat::EnvoyDraft03,
            &[
                r#"x-ratelimit-limit: 50, 50;w=60;name="permin", 2000;w=7200;name="perhr""#,
                "x-ratelimit-remaining: 49",
                "x-ratelimit-reset: 31",
            ],
        ),
        (
            FieldFormat::XRateLimit,
            &["x-ratelimit-limit: 50", "x-ratelimit-remaining: 49", "x-ratelimit-reset: 31"],
        ),
        (
            FieldFormat::XRateLimitEpoch,
            &[
                "x-ratelimit-limit: 50",
                "x-ratelimit-remaining: 49",
                "x-ratelimit-reset: 1774540832",
            ],
        ),
    ];
    for (format, lines) in expected {
        assert_eq!(written(format, &policies, &decision), lines, "{format:?}");
    }
}

#[test]
fn a_refusal_tells_the_wait_of_each_policy_that_refuses_and_never_one_beyond_retry_after() {
    let policies = policies(&[
        "second: fixed-window 10/1s",
        "hour: fixed-window 100/1h",
        "day: fixed-window 1000/1d",
    ]);
    let decision = Decision::new([
        refusal(10, 3, ms(400), ms(400)),
        refusal(100, 4, ms(60_100), secs(1800)),
        admission(1000, 900, secs(80_000)),
    ]);
    let expected: [(FieldFormat, &[&str]); 5] = [
        (
            FieldFormat::Ietf11,
            &[
                r#"ratelimit-policy: "second";q=10;w=1, "hour";q=100;w=3600, "day";q=1000;w=86400"#,
                r#"ratelimit: "second";r=3;t=1, "hour";r=4;t=61, "day";r=900"#,
                "retry-after: 61",
            ],
        ),
        (
            FieldFormat::Ietf07,
            &[
                "ratelimit-policy: 10;w=1, 100;w=3600, 1000;w=86400",
                "ratelimit: limit=100, remaining=4, reset=61",
                "retry-after: 61",
            ],
        ),
        (
            FieldFormat::Ietf06,
            &[
                "ratelimit-limit: 100",
                "ratelimit-policy: 10;w=1, 100;w=3600, 1000;w=86400",
                "ratelimit-remaining: 4",
                "ratelimit-reset: 61",
                "retry-after: 61",
            ],
        ),
        (
            FieldFormat::EnvoyDraft03,
            &[
                "retry-after: 61",
                r#"x-ratelimit-limit: 100, 10;w=1;name="second", 100;w=3600;name="hour", 1000;w=86400;name="day""#,
                "x-ratelimit-remaining: 4",
                "x-ratelimit-reset: 61",
            ],
        ),
        (
            FieldFormat::XRateLimit,
            &[
                "retry-after: 61",
                "x-ratelimit-limit: 100",
                "x-ratelimit-remaining: 4",
                "x-ratelimit-reset: 61",
            ],
        ),
    ];
    for (format, lines) in expected {
        assert_eq!(written(format, &policies, &decision), lines, "{format:?}");
    }
}

#[test]
fn credits_have_no_window_and_grants_can_exceed_the_quota() {
    let policies = policies(&["prepaid: credits 500"]);
    let never = Duration::from_secs(1 << 31);
    let verdict = Verdict::new(Outcome::Allowed, 500).with_remaining(520).with_reset_after(never);
    let decision = Decision::one(verdict);
    let expected = [r#"ratelimit-policy: "prepaid";q=500"#, r#"ratelimit: "prepaid";r=520"#];
    assert_eq!(written(FieldFormat::Ietf11, &policies, &decision), expected);
    // The older drafts require a window.
    let numbers = ["ratelimit-limit: 500", "ratelimit-remaining: 520"];
    let older = numbers.map(|line| format!("x-{line}"));
    assert_eq!(written(FieldFormat::Ietf07, &policies, &decision), [""; 0]);
    assert_eq!(written(FieldFormat::Ietf06, &policies, &decision), numbers);
    for format in [FieldFormat::EnvoyDraft03, FieldFormat::XRateLimit, FieldFormat::XRateLimitEpoch]
    {
        assert_eq!(written(format, &policies, &decision), older, "{format:?}");
    }
}

#[test]
fn a_refusal_that_no_wait_helps_has_no_retry_after_and_no_reset() {
    let policies = policies(&["daily: fixed-window 5/1d"]);
    let never = Verdict::new(Outcome::Denied, 5).with_remaining(5).with_retry_after(None);
    let decision = Decision::one(never);
    let expected: [(FieldFormat, &[&str]); 5] = [
        (
            FieldFormat::Ietf11,
            &[r#"ratelimit-policy: "daily";q=5;w=86400"#, r#"ratelimit: "daily";r=5"#],
        ),
        (FieldFormat::Ietf07, &["ratelimit-policy: 5;w=86400"]),
        (
            FieldFormat::Ietf06,
            &["ratelimit-limit: 5", "ratelimit-policy: 5;w=86400", "ratelimit-remaining: 5"],
        ),
        (
            FieldFormat::EnvoyDraft03,
            &[r#"x-ratelimit-limit: 5, 5;w=86400;name="daily""#, "x-ratelimit-remaining: 5"],
        ),
        (FieldFormat::XRateLimit, &["x-ratelimit-limit: 5", "x-ratelimit-remaining: 5"]),
    ];
    for (format, lines) in expected {
        assert_eq!(written(format, &policies, &decision), lines, "{format:?}");
    }
    let problem = Problem::new(decision.verdicts_of(&policies), &decision).unwrap();
    assert_eq!((problem.kind(), problem.status().as_u16()), (ProblemKind::QuotaExceeded, 429));
}

#[test]
fn a_window_below_a_second_is_left_out_or_is_one_where_it_is_required() {
    let policies = policies(&[
        "a: fixed-window 10/999ms",
        "b: fixed-window 20/1s",
        "c: fixed-window 30/1001ms",
        "d: token-bucket 100/s burst 40",
        "e: token-bucket 10/s burst 50",
    ]);
    let decision = Decision::new(policies.iter().map(|policy| admission(policy.limit(), 1, ms(1))));
    let all = |format| {
        let writer = FieldWriter::builder().format(format).scope(FieldScope::All);
        written_by(&writer.build(&policies).unwrap(), &policies, &decision)
    };
    assert_eq!(
        all(FieldFormat::Ietf11)[0],
        r#"ratelimit-policy: "a";q=10, "b";q=20;w=1, "c";q=30;w=2, "d";q=40, "e";q=50;w=5"#
    );
    assert_eq!(
        all(FieldFormat::Ietf07)[0],
        "ratelimit-policy: 10;w=1, 20;w=1, 30;w=2, 40;w=1, 50;w=5"
    );
    let fields = written(FieldFormat::EnvoyDraft03, &policies[..2], &decision);
    assert_eq!(fields[0], r#"x-ratelimit-limit: 10, 10;w=1;name="a", 20;w=1;name="b""#);
}

#[test]
fn the_older_drafts_have_one_policy_of_a_number() {
    let policies = policies(&["second: fixed-window 10/1s", "minute: fixed-window 10/1m"]);
    let decision = Decision::new([admission(10, 9, secs(1)), admission(10, 9, secs(60))]);
    for format in [FieldFormat::Ietf07, FieldFormat::Ietf06] {
        let fields = written(format, &policies, &decision);
        assert!(fields.contains(&"ratelimit-policy: 10;w=1".to_owned()), "{fields:?}");
    }
    let fields = written(FieldFormat::XRateLimit, &policies, &decision);
    assert_eq!(fields[2], "x-ratelimit-reset: 60", "of equals, the later reset");
}

#[test]
fn shadows_are_not_written_and_do_not_make_a_field() {
    let policies = policies(&["api: fixed-window 5/1s", "trial: fixed-window 1/1h shadow"]);
    let shadow = refusal(1, 0, secs(3600), secs(3600)).in_shadow();
    let decision = Decision::new([admission(5, 4, secs(1)), shadow]);
    for format in ALL_FORMATS {
        let fields = written(format, &policies, &decision).join("\n");
        assert!(!fields.contains("trial") && !fields.contains("3600"), "{fields}");
        assert!(!fields.contains("retry-after"), "{fields}");
        let alone = Decision::one(shadow);
        assert_eq!(written(format, &policies[1..], &alone), [""; 0]);
    }
    let problem = Problem::new(decision.verdicts_of(&policies), &decision);
    assert_eq!(problem, None);
}

#[test]
fn a_degraded_answer_tells_only_what_is_known() {
    let policies = policies(&["api: fixed-window 5/1s"]);
    let degraded = |decision: Decision, answer| {
        decision.degraded_by(Degraded::new(answer, ErrorKind::Unavailable))
    };
    for format in ALL_FORMATS {
        let open = degraded(Decision::one(admission(5, 4, secs(1))), DegradedAnswer::FailedOpen);
        assert_eq!(written(format, &policies, &open), [""; 0]);
        assert_eq!(Problem::new(open.verdicts_of(&policies), &open), None);

        let refused = Decision::one(refusal(5, 0, secs(7), secs(7)));
        let closed = degraded(refused.clone(), DegradedAnswer::FailedClosed);
        assert_eq!(written(format, &policies, &closed), ["retry-after: 7"]);
        let problem = Problem::new(closed.verdicts_of(&policies), &closed).unwrap();
        assert_eq!(problem.kind(), ProblemKind::TemporaryReducedCapacity);
        assert_eq!((problem.status().as_u16(), problem.violated_policies()), (503, &[][..]));

        let share =
            degraded(Decision::one(refusal(2, 0, secs(7), secs(7))), DegradedAnswer::FellBack);
        assert_eq!(
            written(format, &policies, &share).len(),
            written(format, &policies, &refused).len()
        );
        let problem = Problem::new(share.verdicts_of(&policies), &share).unwrap();
        assert_eq!((problem.status().as_u16(), problem.violated_policies()), (503, &["api"][..]));
    }
}

#[tokio::test]
async fn a_blocked_subject_has_nothing_left_and_the_problem_is_abnormal_usage() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let policies = policies(&["minute: fixed-window 1/1m", "login: sliding-log 2/15m block 1h"]);
    let limiter = Limiter::new(store, policies.clone()).unwrap();
    let problem = |decision: &Decision| {
        let problem = Problem::new(limiter.verdicts(decision), decision).unwrap();
        (problem.kind(), problem.violated_policies().join(" "))
    };
    assert!(limiter.acquire("eve").await.unwrap().is_allowed());
    let refused = limiter.acquire("eve").await.unwrap();
    assert_eq!(problem(&refused), (ProblemKind::QuotaExceeded, "minute".into()));
    clock.advance(secs(61));
    assert!(limiter.acquire("eve").await.unwrap().is_allowed());

    // The first refusal starts the block of one hour. The second refusal occurs 29 s later, during
    // the block. Both policies refuse each time.
    for passed in [0, 29] {
        clock.advance(secs(passed));
        let refused = limiter.acquire("eve").await.unwrap();
        let kind = (ProblemKind::AbnormalUsageDetected, "minute login".into());
        assert_eq!(problem(&refused), kind);
        let fields = written(FieldFormat::Ietf11, &policies, &refused);
        let wait = 3600 - passed;
        assert!(fields[1].ends_with(&format!(r#", "login";r=0;t={wait}"#)), "{fields:?}");
        assert_eq!(fields[2], format!("retry-after: {wait}"));
    }
}

#[test]
fn a_unit_is_sent_as_it_is_named_and_does_not_count_as_requests() {
    let policies = policies(&["bytes: token-bucket 65535/10s", "api: fixed-window 100/1m"]);
    let decision = Decision::new([admission(65535, 10, secs(10)), admission(100, 50, secs(60))]);
    let writer = FieldWriter::builder().unit("bytes", "content-bytes").build(&policies).unwrap();
    assert_eq!(
        written_by(&writer, &policies, &decision)[0],
        r#"ratelimit-policy: "bytes";q=65535;qu="content-bytes";w=10, "api";q=100;w=60"#
    );
    let own = FieldWriter::builder().unit("bytes", "x").unit("bytes", r#"a "b\"#).build(&policies);
    let text = own.unwrap().policy_value().unwrap().to_str().unwrap().to_owned();
    assert!(text.starts_with(r#""bytes";q=65535;qu="a \"b\\";w=10"#), "{text}");

    let writer =
        FieldWriter::builder().format(FieldFormat::XRateLimit).unit("bytes", "content-bytes");
    let fields = written_by(&writer.build(&policies).unwrap(), &policies, &decision);
    assert_eq!(fields[1], "x-ratelimit-remaining: 50");

    let error = FieldWriter::builder().unit("api", "größe").build(&policies).unwrap_err();
    assert!(error.to_string().contains("unit `größe`"), "{error}");
}

/// Five policies with two units, and a shadow policy.
const SIX: [&str; 6] = [
    "minute: fixed-window 60/1m",
    "trial: fixed-window 1/1m shadow",
    "hour: fixed-window 100/1h",
    "tokens: fixed-window 20000/1m",
    "day: fixed-window 1000/1d",
    "day-tokens: fixed-window 500000/1d",
];

fn six_by(scope: FieldScope, policies: &[Policy]) -> FieldWriter {
    let writer = FieldWriter::builder().unit("tokens", "tokens").unit("day-tokens", "tokens");
    writer.scope(scope).build(policies).unwrap()
}

#[test]
fn slots_have_their_own_unit_and_neither_a_window_nor_a_reset() {
    let policies = policies(&["slots: concurrent 10 lease 30s", "api: fixed-window 100/1m"]);
    let decision = Decision::new([admission(10, 4, secs(30)), admission(100, 50, secs(60))]);
    let writer = FieldWriter::builder().build(&policies).unwrap();
    assert_eq!(
        written_by(&writer, &policies, &decision),
        [
            r#"ratelimit-policy: "slots";q=10;qu="concurrent-requests", "api";q=100;w=60"#,
            r#"ratelimit: "slots";r=4, "api";r=50;t=60"#,
        ]
    );
}

#[test]
fn a_decision_on_more_than_four_policies_writes_the_tightest_of_each_unit() {
    let policies = policies(&SIX);
    let verdicts = [
        admission(60, 50, secs(60)),
        refusal(1, 0, secs(1), secs(1)).in_shadow(),
        admission(100, 3, secs(1800)),
        admission(20_000, 19_000, secs(60)),
        admission(1000, 3, secs(9)),
        admission(500_000, 100, secs(70_000)),
    ];
    let fields = |scope, count: usize| {
        let decision = Decision::new(verdicts[..count].iter().copied());
        written_by(&six_by(scope, &policies[..count]), &policies[..count], &decision)
    };
    // `hour` and `day` have the same remaining amount, so the later reset counts: `hour` is
    // tighter.
    assert_eq!(
        fields(FieldScope::Auto, 6),
        [
            r#"ratelimit-policy: "hour";q=100;w=3600, "day-tokens";q=500000;qu="tokens";w=86400"#,
            r#"ratelimit: "hour";r=3;t=1800, "day-tokens";r=100;t=70000"#,
        ]
    );
    // Shadow policies are not counted.
    assert_eq!(fields(FieldScope::Auto, 5), fields(FieldScope::All, 5));
    assert_eq!(
        fields(FieldScope::Tightest, 5)[1],
        r#"ratelimit: "hour";r=3;t=1800, "tokens";r=19000;t=60"#
    );
    assert_eq!(fields(FieldScope::Tightest, 1), fields(FieldScope::All, 1));
    assert_eq!(fields(FieldScope::All, 6)[1].matches(";r=").count(), 5);
    assert_eq!(six_by(FieldScope::Auto, &policies).scope(), FieldScope::Auto);
}

#[test]
fn a_refusal_writes_the_longest_wait_of_each_unit() {
    let policies = policies(&SIX);
    let decision = Decision::new([
        refusal(60, 1, secs(7), secs(60)),
        refusal(1, 0, secs(9999), secs(9999)).in_shadow(),
        refusal(100, 2, secs(1800), secs(1800)),
        admission(20_000, 19_000, secs(60)),
        admission(1000, 0, secs(9)),
        admission(500_000, 100, secs(70_000)),
    ]);
    let writer = six_by(FieldScope::Auto, &policies);
    assert_eq!(
        written_by(&writer, &policies, &decision),
        [
            r#"ratelimit-policy: "hour";q=100;w=3600, "day-tokens";q=500000;qu="tokens";w=86400"#,
            r#"ratelimit: "hour";r=2;t=1800, "day-tokens";r=100"#,
            "retry-after: 1800",
        ]
    );
    // A refusal without a sufficient wait is tighter than a refusal with any wait.
    let never = Verdict::new(Outcome::Denied, 60).with_remaining(60).with_retry_after(None);
    let verdicts = decision.verdicts().iter().skip(1).copied();
    let decision = Decision::new(std::iter::once(never).chain(verdicts));
    let fields = written_by(&writer, &policies, &decision);
    assert_eq!(fields[1], r#"ratelimit: "minute";r=60, "day-tokens";r=100"#);

    let lines = |format| written_by(&writer.clone().with_format(format), &policies, &decision);
    let envoy = r#"x-ratelimit-limit: 60, 60;w=60;name="minute", 500000;w=86400;name="day-tokens""#;
    assert_eq!(lines(FieldFormat::EnvoyDraft03)[0], envoy);
    assert_eq!(lines(FieldFormat::Ietf06)[1], "ratelimit-policy: 60;w=60, 500000;w=86400");
    let all = writer.with_scope(FieldScope::All).with_format(FieldFormat::Ietf06);
    assert_eq!(written_by(&all, &policies, &decision)[1].matches(";w=").count(), 5);
}

/// The limits of `examples/llm-gateway`.
#[test]
fn the_tightest_of_twelve_policies_take_a_third_of_the_bytes_of_all() {
    let rates = [
        ("requests", "token-bucket 60/1m", 59),
        ("tokens", "token-bucket 20000/1m", 18_997),
        ("day", "fixed-window 500000/1d", 498_997),
        ("spend", "fixed-window 5000000/1d", 4_995_998),
    ];
    let mut texts = vec![];
    let mut verdicts = vec![];
    let mut builder = FieldWriter::builder();
    for whose in ["key", "user", "team"] {
        for (what, rate, remaining) in rates {
            let name = format!("{whose}-{what}");
            texts.push(format!("{name}: {rate}"));
            verdicts.push(admission(remaining + 1_003, remaining, secs(86_400)));
            builder = match what {
                "requests" => builder,
                "spend" => builder.unit(name, "microdollars"),
                _ => builder.unit(name, "tokens"),
            };
        }
    }
    let policies = policies(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let decision = Decision::new(verdicts);
    let bytes = |scope| {
        let writer = builder.clone().scope(scope).build(&policies).unwrap();
        let lines = written_by(&writer, &policies, &decision);
        // In HTTP/1.1, two more bytes (CR and LF) end each line.
        lines.iter().map(|line| line.len() + 2).sum::<usize>()
    };
    assert_eq!((bytes(FieldScope::All), bytes(FieldScope::Auto)), (861, 233));
}

#[test]
fn a_partition_is_told_in_the_current_syntax_and_in_no_other() {
    let policies = policies(&[
        "user: fixed-window 10/1m",
        "trial: fixed-window 1/1m shadow",
        "all: fixed-window 99/1s",
    ]);
    let decision = Decision::new([
        admission(10, 9, secs(7)),
        admission(1, 0, secs(7)).in_shadow(),
        admission(99, 98, secs(1)),
    ]);
    let keys: [Option<&[u8]>; 3] = [Some(b"trial121323"), Some(b"shadow"), None];
    let fields = |format, keys: [Option<&'static [u8]>; 3]| {
        let writer = FieldWriter::builder().format(format).build(&policies).unwrap();
        let mut headers = HeaderMap::new();
        let verdicts = decision.verdicts_of(&policies).zip(keys);
        writer.write_partitioned(verdicts, &decision, &mut headers);
        headers
    };
    let headers = fields(FieldFormat::Ietf11, keys);
    assert_eq!(
        shown(&headers),
        [
            r#"ratelimit-policy: "user";q=10;w=60, "all";q=99;w=1"#,
            r#"ratelimit: "user";r=9;t=7;pk=:dHJpYWwxMjEzMjM=:, "all";r=98;t=1"#,
        ]
    );
    let announced = ServerLimits::read(&headers, SystemTime::now());
    let read = announced.limits().iter().map(ServerLimit::partition_key);
    assert_eq!(read.collect::<Vec<_>>(), [keys[0], None]);

    // A partition key can have any length and any bytes.
    let long: &'static [u8] = &[0xff; 10_000];
    let headers = fields(FieldFormat::Ietf11, [Some(b""), None, Some(long)]);
    let announced = ServerLimits::read(&headers, SystemTime::now());
    let read = announced.limits().iter().map(ServerLimit::partition_key);
    assert_eq!(read.collect::<Vec<_>>(), [Some(&b""[..]), Some(long)]);

    for format in ALL_FORMATS.into_iter().filter(|format| *format != FieldFormat::Ietf11) {
        assert_eq!(fields(format, keys), fields(format, [None; 3]), "{format:?}");
    }
}

#[test]
fn policies_of_a_request_are_written_whatever_the_writer_was_built_for() {
    let known = policies(&["ip: fixed-window 100/1m", "all: gcra 1000/s burst 1000"]);
    let plan = policies(&["user: token-bucket 5/s burst 20", "fixed-window 3/1m"]);
    let writer = FieldWriter::new(&known).unwrap();
    let (ip, user, unnamed) = (known[0].clone(), plan[0].clone(), plan[1].clone());
    let decision = Decision::new([
        admission(20, 19, ms(200)),
        admission(3, 2, secs(9)),
        admission(100, 9, secs(8)),
    ]);
    assert_eq!(
        written_by(&writer, &[user, unnamed, ip], &decision),
        [
            r#"ratelimit-policy: "user";q=20;w=4, "fixed-window 3/1m";q=3;w=60, "ip";q=100;w=60"#,
            r#"ratelimit: "user";r=19;t=1, "fixed-window 3/1m";r=2;t=9, "ip";r=9;t=8"#,
        ]
    );
}

#[test]
fn numbers_beyond_15_digits_are_the_largest() {
    let most = 1_u64 << 52;
    let policies = policies(&[&format!("big: fixed-window {most}/1h")]);
    let decision = Decision::one(admission(most, most - 1, secs(1)));
    let fields = written(FieldFormat::Ietf11, &policies, &decision);
    assert_eq!(fields[0], r#"ratelimit-policy: "big";q=999999999999999;w=3600"#);
    assert_eq!(fields[1], r#"ratelimit: "big";r=999999999999999;t=1"#);
}

#[test]
fn two_layers_both_tell_their_lists_and_single_values_are_of_the_outer_one() {
    let [inner, outer] =
        ["route: fixed-window 20/1m", "all: fixed-window 300/1m"].map(|text| policies(&[text]));
    let decisions =
        [Decision::one(admission(20, 1, secs(60))), Decision::one(admission(300, 200, secs(60)))];
    let both = |format| {
        let mut headers = HeaderMap::new();
        for (policies, decision) in [&inner, &outer].into_iter().zip(&decisions) {
            let writer = FieldWriter::builder().format(format).build(policies).unwrap();
            writer.write(decision.verdicts_of(policies), decision, &mut headers);
        }
        shown(&headers)
    };
    assert_eq!(
        both(FieldFormat::Ietf11),
        [
            r#"ratelimit-policy: "all";q=300;w=60"#,
            r#"ratelimit-policy: "route";q=20;w=60"#,
            r#"ratelimit: "all";r=200;t=60"#,
            r#"ratelimit: "route";r=1;t=60"#,
        ]
    );
    assert_eq!(both(FieldFormat::XRateLimit)[1], "x-ratelimit-remaining: 200");
}

#[test]
fn a_full_map_of_headers_stays_as_it_is() {
    let policies = policies(&["api: fixed-window 5/1s"]);
    let decision = Decision::one(refusal(5, 0, secs(1), secs(1)));
    let mut headers = HeaderMap::new();
    let mut number = 0;
    while let Ok(name) = http::HeaderName::try_from(format!("x-{number}"))
        && headers.try_insert(name, HeaderValue::from_static("1")).is_ok()
    {
        number += 1;
    }
    let before = headers.len();
    for format in ALL_FORMATS {
        let writer = FieldWriter::builder().format(format).build(&policies).unwrap();
        writer.write(decision.verdicts_of(&policies), &decision, &mut headers);
        assert_eq!(headers.len(), before);
    }
}

#[test]
fn the_problem_of_each_kind_is_json_with_the_registered_type() {
    let policies = policies(&["a: fixed-window 5/1s", "b: fixed-window 5/1m block 1h"]);
    let refused = refusal(5, 0, secs(1), secs(1));
    let blocked = Verdict::new(Outcome::Blocked, 5)
        .with_retry_after(Some(Duration::from_micros(9)))
        .with_block(Duration::from_micros(9));
    let down = Degraded::new(DegradedAnswer::FailedClosed, ErrorKind::Timeout);
    let cases = [
        (Decision::one(refused), "quota-exceeded", 429, r#","violated-policies":["a"]"#),
        (
            Decision::new([refused, blocked]),
            "abnormal-usage-detected",
            429,
            r#","violated-policies":["a","b"]"#,
        ),
        (Decision::one(refused).degraded_by(down), "temporary-reduced-capacity", 503, ""),
    ];
    for (decision, word, status, violated) in cases {
        let problem = Problem::new(decision.verdicts_of(&policies), &decision).unwrap();
        let json = problem.to_json();
        let title = problem.kind().title();
        assert_eq!(
            json,
            format!(
                r#"{{"type":"https://iana.org/assignments/http-problem-types#{word}","title":"{title}","status":{status}{violated}}}"#
            )
        );
    }
}

/// The older formats describe only windows.
#[test]
fn the_older_formats_do_not_write_slots() {
    let policies = policies(&["slots: concurrent 100 lease 30s", "api: fixed-window 100/1m"]);
    let decision = Decision::new([admission(100, 4, secs(30)), admission(100, 50, secs(60))]);
    let fields = |format, count: usize| {
        let writer = FieldWriter::builder().format(format).build(&policies[..count]).unwrap();
        let decision = Decision::new(decision.verdicts()[..count].iter().copied());
        written_by(&writer, &policies[..count], &decision)
    };
    for format in [FieldFormat::Ietf07, FieldFormat::Ietf06] {
        let both = fields(format, 2);
        assert!(both.iter().any(|field| field == "ratelimit-policy: 100;w=60"), "{both:?}");
        let alone = fields(format, 1);
        assert!(!alone.iter().any(|field| field.contains("30")), "{format:?}: {alone:?}");
    }
    let envoy = fields(FieldFormat::EnvoyDraft03, 2).join("; ");
    assert!(!envoy.contains("slots") && envoy.contains("w=60"), "{envoy}");
}
