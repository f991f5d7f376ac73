//! The fields that servers send.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_http::fields::ServerLimits;

use crate::bounds;

/// The time at which each response arrives: Thu, 26 Mar 2026 16:00:00 GMT.
const NOW: Duration = Duration::from_secs(1_774_540_800);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + NOW
}

/// Converts lines of `name: value` to fields.
fn headers(lines: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        let value = HeaderValue::from_bytes(value.trim().as_bytes()).unwrap();
        headers.append(HeaderName::from_bytes(name.trim().as_bytes()).unwrap(), value);
    }
    headers
}

/// Returns the limits and the wait in one line: each limit as `name remaining/limit window
/// partition unit reset`, and then `wait` with the time before the next request, or `go` if there
/// is no wait.
fn shown(headers: &HeaderMap) -> String {
    let announced = ServerLimits::read(headers, now());
    let wait = |time: SystemTime| time.duration_since(now()).unwrap();
    let mut text = String::new();
    for limit in announced.limits() {
        let number =
            |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
        let name = limit.name().map_or("-".to_owned(), |name| format!("{name:?}"));
        write!(text, "{name} {}/{}", number(limit.remaining()), number(limit.limit())).unwrap();
        if let Some(window) = limit.window() {
            write!(text, " w={window:?}").unwrap();
        }
        if let Some(key) = limit.partition_key() {
            write!(text, " pk={}", key.escape_ascii()).unwrap();
        }
        if let Some(unit) = limit.unit() {
            write!(text, " {unit}").unwrap();
        }
        if let Some(reset) = limit.resets_at() {
            write!(text, " t={:?}", wait(reset)).unwrap();
        }
        text.push_str(", ");
    }
    match announced.not_before() {
        Some(time) => write!(text, "wait {:?}", wait(time)).unwrap(),
        None => text.push_str("go"),
    }
    text
}

fn check(vectors: &[(&str, &str)]) {
    for (lines, expected) in vectors {
        let headers = headers(lines);
        assert_eq!(shown(&headers), *expected, "{lines}");
        bounds::check(&headers);
    }
}

#[test]
fn drafts_08_to_11() {
    check(&[
        (r#"RateLimit: "default";r=50;t=30"#, r#""default" 50/? t=30s, go"#),
        (r#"RateLimit: "default";r=0;t=30"#, r#""default" 0/? t=30s, wait 30s"#),
        (
            r#"RateLimit: "default";r=999;pk=:dHJpYWwxMjEzMjM=:"#,
            r#""default" 999/? pk=trial121323, go"#,
        ),
        (r#"RateLimit: "dayLimit";r=100;t=36000"#, r#""dayLimit" 100/? t=36000s, go"#),
        (
            r#"RateLimit-Policy: "permin";q=50;w=60,"perhr";q=1000;w=3600"#,
            r#""permin" ?/50 w=60s, "perhr" ?/1000 w=3600s, go"#,
        ),
        (
            r#"RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400
               RateLimit: "burst";r=50;t=30"#,
            r#""burst" 50/100 w=60s t=30s, "daily" ?/1000 w=86400s, go"#,
        ),
        (
            r#"RateLimit-Policy: "peruser";q=100;w=60;pk=:cHsdsRa894==:
               RateLimit: "peruser";r=0;t=7;pk=:cHsdsRa894==:"#,
            r#""peruser" 0/100 w=60s pk=p{\x1d\xb1\x16\xbc\xf7 t=7s, wait 7s"#,
        ),
        (
            r#"RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:"#,
            r#""peruser" ?/65535 w=10s pk=\xb1\xd7\xe3,\x95\x0eP content-bytes, go"#,
        ),
        // Three policies: with the default unit, with a unit of the server, and without a window.
        (r#"RateLimit-Policy: "a";q=1;qu="requests""#, r#""a" ?/1, go"#),
        (r#"RateLimit-Policy: "a";q=1;qu="tokens";w=1"#, r#""a" ?/1 w=1s tokens, go"#),
        (r#"RateLimit-Policy: "a";q=0"#, r#""a" ?/0, go"#),
        // The field has several lines, and its parameters have any order. Unknown parameters are
        // ignored. If a parameter occurs twice, the last one counts.
        (
            r#"RateLimit: "b";t=9;r=0;tidegate-burst=4
               RateLimit: "a";r=3;r=0;t=5;t=8, "c";r=1
               RateLimit-Policy: "a";q=10, "c";w=60;q=30;x=?1"#,
            r#""b" 0/? t=9s, "a" 0/10 t=8s, "c" 1/30 w=60s, wait 9s"#,
        ),
        (r#"RateLimit:   "a";r=1 ,	"b";r=2  "#, r#""a" 1/?, "b" 2/?, go"#),
        (r#"RateLimit: "a\"b\\c";r=1"#, r#""a\"b\\c" 1/?, go"#),
        (r#"RateLimit: "";r=1"#, r#""" 1/?, go"#),
        // The limit is exhausted, but the client need not wait, because the server announces no
        // reset.
        (r#"RateLimit: "a";r=0"#, r#""a" 0/?, go"#),
        (r#"RateLimit: "a";r=999999999999999;t=0"#, r#""a" 999999999999999/? t=0ns, go"#),
        // An empty list counts as an absent field.
        ("RateLimit:\nX-RateLimit-Remaining: 4", "- 4/?, go"),
    ]);
}

#[test]
fn a_limit_has_the_policy_of_its_name_and_of_no_other_partition() {
    check(&[
        // `a`, `b` and `c` in base64 are YQ==, Yg== and Yw==.
        (
            r#"RateLimit-Policy: "user";q=5;pk=:YQ==:, "user";q=9;pk=:Yg==:, "ip";q=3;pk=:YQ==:
               RateLimit: "user";r=8;pk=:Yg==:, "ip";r=1"#,
            r#""user" 8/9 pk=b, "ip" 1/3 pk=a, "user" ?/5 pk=a, go"#,
        ),
        (
            r#"RateLimit-Policy: "user";q=5;w=1
               RateLimit: "user";r=1;pk=:YQ==:, "user";r=2;pk=:Yg==:"#,
            r#""user" 1/5 w=1s pk=a, "user" 2/5 w=1s pk=b, go"#,
        ),
        (
            r#"RateLimit-Policy: "user";q=5;pk=:YQ==:
               RateLimit: "user";r=1;pk=:Yg==:"#,
            r#""user" 1/? pk=b, "user" ?/5 pk=a, go"#,
        ),
        (
            r#"RateLimit-Policy: "user";q=5;pk=:YQ==:, "user";q=7;pk=:YQ==:
               RateLimit: "user";r=1;pk=:YQ==:"#,
            r#""user" 1/5 pk=a, go"#,
        ),
        (r#"RateLimit: "user";r=1;pk=::"#, r#""user" 1/? pk=, go"#),
    ]);
}

#[test]
fn draft_07() {
    check(&[
        ("RateLimit: limit=100, remaining=50, reset=5", "- 50/100 t=5s, go"),
        ("RateLimit: limit=100, remaining=0, reset=50", "- 0/100 t=50s, wait 50s"),
        ("RateLimit: limit=10, reset=1", "- ?/10 t=1s, go"),
        (
            "RateLimit-Policy: 100;w=60\nRateLimit: limit=100, remaining=99, reset=50",
            "- 99/100 w=60s t=50s, go",
        ),
        (
            "RateLimit-Policy: 10;w=1, 50;w=60, 1000;w=3600;comment=\"x\"\nRateLimit: limit=50, reset=3",
            "- ?/50 w=60s t=3s, - ?/10 w=1s, - ?/1000 w=3600s, go",
        ),
        ("RateLimit: limit=10\nRateLimit: remaining=0, reset=1, x=(1 2)", "- 0/10 t=1s, wait 1s"),
        ("RateLimit: reset=5, limit=100, reset=6", "- ?/100 t=6s, go"),
    ]);
}

#[test]
fn drafts_00_to_06() {
    check(&[
        (
            "RateLimit-Limit: 5000\nRateLimit-Remaining: 4999\nRateLimit-Reset: 50\n\
             RateLimit-Policy: 1000;w=3600, 5000;w=86400",
            "- 4999/5000 w=86400s t=50s, - ?/1000 w=3600s, go",
        ),
        (
            "RateLimit-Limit: 100, 100;w=10\nRateLimit-Remaining: 0\nRateLimit-Reset: 5",
            "- 0/100 w=10s t=5s, wait 5s",
        ),
        (
            "RateLimit-Limit: 10, 10;w=1, 50;w=60\nRateLimit-Remaining: 9",
            "- 9/10 w=1s, - ?/50 w=60s, go",
        ),
        // Docker Hub.
        (
            "ratelimit-limit: 100;w=21600\nratelimit-remaining: 76;w=21600\n\
             docker-ratelimit-source: 203.0.113.9",
            "- 76/100 w=21600s, go",
        ),
        // Two policies have the number 10. The policy with the window of the limit (60 s) describes
        // the same limit, so the reader does not return it a second time.
        (
            "RateLimit-Limit: 10;w=60, 10;w=1\nRateLimit-Remaining: 9, 3;w=60\n\
             RateLimit-Policy: 10;w=60",
            "- 3/10 w=60s, - ?/10 w=1s, go",
        ),
        ("RateLimit-Limit: 10;x=1\nRateLimit-Remaining: 9;x=1", "- 9/10, go"),
        ("RateLimit-Limit: 10;w=0\nRateLimit-Remaining: 9;w=0, x", "go"),
        // Two policies have the same number as the limit. The limit has no window, so the reader
        // cannot know which of the two policies describes it, and returns three limits.
        (
            "RateLimit-Limit: 10, 10;w=1, 10;w=60\nRateLimit-Remaining: 9",
            "- 9/10, - ?/10 w=1s, - ?/10 w=60s, go",
        ),
        // The policy `"a"` has the syntax of newer drafts, and `RateLimit-Limit: 10` has the syntax
        // of older drafts. So the window of the policy does not apply to this limit.
        (
            "RateLimit-Limit: 10\nRateLimit-Remaining: 9\nRateLimit-Policy: \"a\";q=10;w=60",
            "- 9/10, \"a\" ?/10 w=60s, go",
        ),
        ("RateLimit-Limit: 10\nRateLimit-Remaining: 10\nRateLimit-Reset: 1", "- 10/10 t=1s, go"),
        // Kong.
        (
            "RateLimit-Limit: 6\nRateLimit-Remaining: 4\nRateLimit-Reset: 47\n\
             X-RateLimit-Remaining-Minute: 4\nX-RateLimit-Limit-Minute: 10",
            "- 4/6 t=47s, go",
        ),
        // GitLab.
        (
            "RateLimit-Limit: 60\nRateLimit-Name: throttle_authenticated_web\nRateLimit-Observed: 60\n\
             RateLimit-Remaining: 0\nRateLimit-Reset: 1774540860\n\
             RateLimit-ResetTime: Thu, 26 Mar 2026 16:02:00 GMT\nRetry-After: 60",
            r#""throttle_authenticated_web" 0/60 t=60s, wait 60s"#,
        ),
        (
            "RateLimit-Remaining: 0\nRateLimit-ResetTime: Thu, 26 Mar 2026 16:02:00 GMT",
            "- 0/? t=120s, wait 120s",
        ),
    ]);
}

#[test]
fn the_five_meanings_of_x_ratelimit_reset() {
    check(&[
        (
            // GitHub.
            "x-ratelimit-limit: 60\nx-ratelimit-remaining: 0\nx-ratelimit-used: 60\n\
             x-ratelimit-reset: 1774544400\nx-ratelimit-resource: core",
            r#""core" 0/60 t=3600s, wait 3600s"#,
        ),
        (
            // Reddit.
            "x-ratelimit-used: 2\nx-ratelimit-remaining: 598.0\nx-ratelimit-reset: 300",
            "- 598/? t=300s, go",
        ),
        (
            // Atlassian.
            "X-RateLimit-Limit: 350\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2026-03-26T16:20Z",
            "- 0/350 t=1200s, wait 1200s",
        ),
        (
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2026-03-26T16:00:10.5Z",
            "- 0/? t=10.5s, wait 10.5s",
        ),
        (
            // Cloudflare's documentation before 2025-09.
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: Thu, 26 Mar 2026 16:00:07 GMT",
            "- 0/? t=7s, wait 7s",
        ),
        (
            // Linear.
            "X-RateLimit-Requests-Limit: 1500\nX-RateLimit-Requests-Remaining: 0\n\
             X-RateLimit-Requests-Reset: 1774540815000\nX-RateLimit-Complexity-Limit: 250000\n\
             X-RateLimit-Complexity-Remaining: 249000",
            r#""requests" 0/1500 t=15s, "complexity" 249000/250000 complexity, wait 15s"#,
        ),
    ]);
}

#[test]
fn vendors() {
    check(&[
        (
            // Discord also sends `Reset-After`, a span that does not depend on the clock, so it
            // takes precedence.
            "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1774540999.123\n\
             X-RateLimit-Reset-After: 1.26\nX-RateLimit-Bucket: abcd1234\nX-RateLimit-Scope: user",
            r#""abcd1234" 0/5 t=2s, wait 2s"#,
        ),
        ("X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1774540801.123", "- 0/? t=2s, wait 2s"),
        (
            // OpenAI.
            "x-ratelimit-limit-requests: 60\nx-ratelimit-limit-tokens: 150000\n\
             x-ratelimit-remaining-requests: 59\nx-ratelimit-remaining-tokens: 0\n\
             x-ratelimit-reset-requests: 1s\nx-ratelimit-reset-tokens: 6m0s",
            r#""requests" 59/60 t=1s, "tokens" 0/150000 tokens t=360s, wait 360s"#,
        ),
        (
            "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 120ms",
            r#""requests" 0/? t=120ms, wait 120ms"#,
        ),
        (
            "anthropic-ratelimit-requests-limit: 50\nanthropic-ratelimit-requests-remaining: 49\n\
             anthropic-ratelimit-requests-reset: 2026-03-26T16:00:01Z\n\
             anthropic-ratelimit-input-tokens-limit: 30000\n\
             anthropic-ratelimit-input-tokens-remaining: 0\n\
             anthropic-ratelimit-input-tokens-reset: 2026-03-26T16:00:45Z",
            r#""requests" 49/50 t=1s, "input-tokens" 0/30000 tokens t=45s, wait 45s"#,
        ),
        ("X-Shopify-Shop-Api-Call-Limit: 32/40", "- 8/40, go"),
        ("X-Shopify-Shop-Api-Call-Limit: 40/40\nRetry-After: 2.0", "- 0/40, wait 2s"),
        ("X-Shopify-Shop-Api-Call-Limit: 39.5/40.0", "- 0/40, go"),
        (
            "X-Rate-Limit-Limit: 15\nX-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 9",
            "- 0/15 t=9s, wait 9s",
        ),
        (
            // Envoy.
            "X-Ratelimit-Limit: 3, 3;w=3600\nX-Ratelimit-Remaining: 2\nX-Ratelimit-Reset: 5",
            "- 2/3 w=3600s t=5s, go",
        ),
        (
            "x-ratelimit-limit: 10, 10;w=1;name=\"per-ip\", 1000;w=3600\nx-ratelimit-remaining: 0\n\
             x-ratelimit-reset: 1",
            r#""per-ip" 0/10 w=1s t=1s, - ?/1000 w=3600s, wait 1s"#,
        ),
        (
            "x-ratelimit-limit: 10, 10;w=1;name=\"a\", 10;w=60;name=\"b\"\nx-ratelimit-remaining: 4",
            r#"- 4/10, "a" ?/10 w=1s, "b" ?/10 w=60s, go"#,
        ),
        (
            "x-ratelimit-limit: 10, 10;w=1;name=ip;x=5, 20;w=60;name=\"\"\nx-ratelimit-remaining: 4",
            "- 4/10 w=1s, - ?/20 w=60s, go",
        ),
        ("x-ratelimit-limit: 10, 10;name=\"a\"\nx-ratelimit-remaining: 4", "- 4/?, go"),
        (
            // Kong.
            "X-RateLimit-Limit-Minute: 10\nX-RateLimit-Remaining-Minute: 4",
            r#""minute" 4/10, go"#,
        ),
        (
            // Cloudflare.
            "Ratelimit: \"default\";r=50;t=30\nRatelimit-Policy: \"burst\";q=100;w=60",
            r#""default" 50/? t=30s, "burst" ?/100 w=60s, go"#,
        ),
        (
            // Atlassian announces future limits in `Beta-` fields, which are ignored.
            "Beta-RateLimit: \"a\";r=0;t=60\nBeta-RateLimit-Policy: \"a\";q=1;w=60\nBeta-Retry-After: 60\n\
             Beta-X-RateLimit-Remaining: 0\nBeta-X-RateLimit-Reset: 60",
            "go",
        ),
    ]);
}

#[test]
fn retry_after_in_both_forms_and_as_it_occurs() {
    check(&[
        ("Retry-After: 120", "wait 120s"),
        ("Retry-After: 0", "wait 0ns"),
        ("Retry-After: 2.0", "wait 2s"),
        ("Retry-After: 1.2", "wait 2s"),
        ("Retry-After: Thu, 26 Mar 2026 16:00:30 GMT", "wait 30s"),
        ("Retry-After: Thursday, 26-Mar-26 16:00:30 GMT", "wait 30s"),
        ("Retry-After: Thu Mar 26 16:00:30 2026", "wait 30s"),
        ("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", "wait 0ns"),
        ("Retry-After: 5\nRetry-After: Thu, 26 Mar 2026 16:00:30 GMT\nRetry-After: 7", "wait 30s"),
        ("Retry-After: soon\nRetry-After: 7", "wait 7s"),
        ("Retry-After: -1", "go"),
        ("Retry-After:", "go"),
        ("Retry-After: 1774540830", "wait 30s"),
        // A number that is too large means the maximum wait of 71 years.
        ("Retry-After: 99999999999999999999999", "wait 2251799813.685248s"),
    ]);
}

#[test]
fn retry_after_takes_precedence_over_a_reset() {
    check(&[
        ("Retry-After: 5\nRateLimit: \"a\";r=0;t=60", r#""a" 0/? t=60s, wait 5s"#),
        ("Retry-After: 90\nRateLimit: \"a\";r=5;t=60", r#""a" 5/? t=60s, wait 90s"#),
        ("Retry-After: junk\nRateLimit: \"a\";r=0;t=60", r#""a" 0/? t=60s, wait 60s"#),
    ]);
}

#[test]
fn the_newest_form_that_is_well_formed_wins() {
    let (c, b7, a, x) = (
        "RateLimit: \"c\";r=1",
        "RateLimit: limit=7, remaining=2, reset=1",
        "RateLimit-Remaining: 3",
        "X-RateLimit-Remaining: 4",
    );
    let malformed = "RateLimit: c;r=1";
    let lines = |all: &[&str]| shown(&headers(&all.join("\n")));
    assert_eq!(lines(&[x, a, c]), r#""c" 1/?, go"#);
    assert_eq!(lines(&[a, b7, x]), "- 2/7 t=1s, go");
    assert_eq!(lines(&[x, a]), "- 3/?, go");
    assert_eq!(lines(&[x]), "- 4/?, go");
    assert_eq!(lines(&[a, malformed]), "- 3/?, go");
    assert_eq!(lines(&[x, "RateLimit-Remaining: many"]), "- 4/?, go");
    // If one of several lines is malformed, the whole field is malformed.
    assert_eq!(lines(&[c, b7, x]), "- 4/?, go");
    // `RateLimit-Policy` alone announces no remaining amount, so the older `X-RateLimit-Remaining`
    // counts.
    let policy = "RateLimit-Policy: \"a\";q=5;w=60";
    assert_eq!(lines(&[policy, x]), r#"- 4/?, "a" ?/5 w=60s, go"#);
}

#[test]
fn an_answer_from_a_cache_tells_nothing() {
    let fields = "RateLimit: \"a\";r=0;t=60\nRetry-After: 60";
    check(&[
        (&format!("Age: 1\n{fields}"), "go"),
        (&format!("Age: 0\nAge: 7\n{fields}"), "go"),
        (&format!("Age: 0\n{fields}"), r#""a" 0/? t=60s, wait 60s"#),
        (&format!("Age: old\n{fields}"), r#""a" 0/? t=60s, wait 60s"#),
    ]);
}

/// Appends each malformed member to a list with a valid limit. The whole list must then be ignored.
/// The members contain every violation of RFC 9651 that is possible in a list of limits.
#[test]
fn a_malformed_field_is_ignored_whole() {
    let members = [
        // These invalid examples are from the drafts.
        "quota;t=1",
        "quota;q=100;w=1",
        "429 Bad Request",
        // Each of the following texts has an invalid structure.
        ",",
        "\"b\";r=1,",
        ", \"b\";r=1",
        "\"b\";r=1,,\"c\";r=1",
        "\"b\";r=1 \"c\";r=1",
        "(\"b\");r=1",
        "(\"b\" \"c\";r=1",
        "\"b\";r=1;",
        "\"b\";;r=1",
        "\"b\" ;r=1",
        "\"b\";\tr=1",
        "\"b\";r =1",
        "\"b\";r= 1",
        "\"b\";R=1",
        "\"b\";1r=1",
        // Each of the following texts has an invalid string.
        "\"b",
        "\"b\\\";r=1",
        "\"b\\n\";r=1",
        "\"b\tc\";r=1",
        "'b';r=1",
        // Each of the following texts has an invalid name or value.
        "b;r=1",
        "1;r=1",
        "1.5;r=1",
        "?1;r=1",
        ":YQ==:;r=1",
        "@1659578233;r=1",
        "%\"b\";r=1",
        "\"b\"",
        "\"b\";r",
        "\"b\";r=",
        "\"b\";r=-1",
        "\"b\";r=+1",
        "\"b\";r=1.0",
        "\"b\";r=\"1\"",
        "\"b\";r=one",
        "\"b\";r=1000000000000000",
        "\"b\";r=1;t=-1",
        "\"b\";r=1;t=1.5",
        "\"b\";r=1;t",
        "\"b\";r=1;t=\"5\"",
        "\"b\";r=1;pk=5",
        "\"b\";r=1;pk=:a",
        "\"b\";r=1;pk=:*:",
        "\"b\";r=1;pk=\"a\"",
        "\"b\";r=1;x=(1)",
        "\"b\";r=1;x=1.2345",
        "\"b\";r=1;x=@1.5",
        "\"b\";r=1;x=%\"%zz\"",
        "\"b\";r=1;x=\u{e9}",
    ];
    for member in members {
        for lines in [
            format!("RateLimit: \"a\";r=0;t=60, {member}"),
            format!("RateLimit: \"a\";r=0;t=60\nRateLimit: {member}"),
        ] {
            assert_eq!(shown(&headers(&lines)), "go", "{lines}");
        }
    }
    let policies = [
        "\"b\"",
        "\"b\";w=1",
        "\"b\";q=-1",
        "\"b\";q=1.0",
        "\"b\";q=1;w=0",
        "\"b\";q=1;w=0.5",
        "\"b\";q=1;w=-1",
        "\"b\";q=1;qu=requests",
        "\"b\";q=1;qu=5",
        "\"b\";q=1;pk=\"x\"",
        "b;q=1",
        "100",
        "100;w=60",
        "(1 2)",
    ];
    for policy in policies {
        let lines = format!("RateLimit-Policy: \"a\";q=5;w=60, {policy}\nRateLimit: \"a\";r=1");
        assert_eq!(shown(&headers(&lines)), r#""a" 1/?, go"#, "{lines}");
    }
    let draft_07 = [
        "limit=100",
        "reset=5",
        "remaining=5, reset=5",
        "limit=100, remaining=x, reset=5",
        "limit=100, remaining=-1, reset=5",
        "limit=100, remaining, reset=5",
        "limit=1.5, reset=5",
        "limit=(1), reset=5",
        "limit=100, reset=5,",
        "Limit=100, reset=5",
        "limit=100; reset=5",
        "limit=\"100\", reset=5",
        "limit = 100, reset = 5",
        "limit=100 reset=5",
    ];
    for dictionary in draft_07 {
        assert_eq!(shown(&headers(&format!("RateLimit: {dictionary}"))), "go", "{dictionary}");
    }
    for policy in ["100", "100;w=0", "100;w=x", "x;w=1", "-1;w=1", "100;w=1, \"a\";q=1"] {
        let lines = format!("RateLimit-Policy: {policy}\nRateLimit: limit=100, reset=5");
        assert_eq!(shown(&headers(&lines)), "- ?/100 t=5s, go", "{lines}");
    }
    // Each of these fields contains one number. If one field is malformed, the other fields still
    // count.
    check(&[
        ("RateLimit-Limit: x\nRateLimit-Remaining: 0\nRateLimit-Reset: 5", "- 0/? t=5s, wait 5s"),
        ("RateLimit-Limit: 5, x\nRateLimit-Remaining: -1\nRateLimit-Reset: 5", "- ?/? t=5s, go"),
        ("RateLimit-Limit: 5;w=x\nRateLimit-Remaining: 1\nRateLimit-Reset: soon", "- 1/?, go"),
        ("RateLimit-Limit: 5, 5\nRateLimit-Remaining: 1e3", "go"),
        ("X-RateLimit-Limit: unlimited\nX-RateLimit-Remaining:\nX-RateLimit-Reset: ,", "go"),
        ("X-RateLimit-Remaining: 5\nX-RateLimit-Remaining: x", "go"),
        ("X-Shopify-Shop-Api-Call-Limit: 32", "go"),
        ("X-Shopify-Shop-Api-Call-Limit: /", "go"),
        ("X-Shopify-Shop-Api-Call-Limit: 1/2/3", "go"),
    ]);
}

#[test]
fn the_stricter_of_duplicates_counts() {
    check(&[
        (
            "X-RateLimit-Limit: 5\nX-RateLimit-Limit: 3\nX-RateLimit-Remaining: 5\nX-RateLimit-Remaining: 0\n\
             X-RateLimit-Reset: 9\nX-RateLimit-Reset: 5",
            "- 0/3 t=9s, wait 9s",
        ),
        ("RateLimit: \"a\";r=5;t=1, \"a\";r=0;t=9", r#""a" 5/? t=1s, "a" 0/? t=9s, wait 9s"#),
    ]);
}

#[test]
fn text_that_is_no_text_and_fields_that_are_too_long_are_malformed() {
    for name in
        ["ratelimit", "ratelimit-policy", "ratelimit-remaining", "x-ratelimit-reset", "retry-after"]
    {
        for bytes in [&b"\xff"[..], b"\"a\";r=0;t=5\xff", b"5\xfe", b"\xc3\xa9"] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_bytes(bytes).unwrap());
            assert_eq!(shown(&headers), "go", "{name} {bytes:?}");
        }
    }
    let name = "n".repeat(60_000);
    assert!(shown(&headers(&format!("RateLimit: \"{name}\";r=0;t=5"))).ends_with("wait 5s"));
    let long = format!("RateLimit: \"{name}{name}\";r=0;t=5");
    assert_eq!(shown(&headers(&long)), "go");
    // Each line is short, but all lines together exceed the maximum length of a field.
    let lines = "RateLimit: \"a\";r=0;t=5\n".repeat(5_000);
    assert_eq!(shown(&headers(&lines)), "go");
    // A field with the maximum number of members is read. A field with one more member is ignored.
    let members = |count| vec!["\"a\";r=0;t=5"; count].join(",");
    let most = headers(&format!("RateLimit: {}", members(1024)));
    assert_eq!(ServerLimits::read(&most, now()).limits().len(), 1024);
    assert_eq!(shown(&headers(&format!("RateLimit: {}", members(1025)))), "go");
}

#[test]
fn limits_named_by_their_fields_are_bounded() {
    let lines: String =
        (0..1_000).map(|number| format!("x-ratelimit-remaining-n{number}: 1\n")).collect();
    assert_eq!(ServerLimits::read(&headers(&lines), now()).limits().len(), 64);
    let long = format!("x-ratelimit-remaining-{}: 0", "n".repeat(129));
    assert_eq!(shown(&headers(&long)), "go");
    let long = format!("x-ratelimit-remaining: 0\nx-ratelimit-resource: {}", "n".repeat(129));
    assert_eq!(shown(&headers(&long)), "- 0/?, go");
}
