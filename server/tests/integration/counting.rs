//! Tests behavior for which envoyproxy/ratelimit has a defect or has no test.

use envoy_types::pb::google::protobuf::value::Kind;
use serde_json::Value;
use tidegate_server::envoy::decide::{Behaviour, MAX_DESCRIPTORS};
use tidegate_server::envoy::json::ShownStruct;

use crate::scene::{
    Scene, descriptor, hits, is_ok, is_over, limit, refund, request, reset, with_limit,
};

#[test]
fn metadata_stays_where_a_metric_has_values() {
    for flag in ["detailed_metric", "value_to_metric"] {
        let mut behaviour = Behaviour::default();
        behaviour.has_metadata = true;
        let scene = Scene::with(
            &format!(
                "domain: d\ndescriptors:\n- {{key: a, {flag}: true, metadata: {{backend: one}}, \
                 rate_limit: {{unit: minute, requests_per_unit: 1}}}}\n"
            ),
            behaviour,
        );
        let response = scene.ask(&request("d", vec![descriptor(&[("a", "x")])]));
        let fields = response.dynamic_metadata.unwrap().fields;
        assert!(matches!(fields["metadata"].kind, Some(Kind::StructValue(_))), "{flag}");
    }
}

#[test]
fn metadata_has_the_request_and_merges_what_has_passed() {
    let mut behaviour = Behaviour::default();
    behaviour.has_metadata = true;
    let scene = Scene::with(
        "domain: d\ndescriptors:\n\
         - {key: a, metadata: {x: {a: 1}, y: first, z: [1, yes, null]}, rate_limit: {unit: day, requests_per_unit: 1}}\n\
         - {key: b, metadata: {x: {a: 2, b: 2}, y: second}, rate_limit: {unit: day, requests_per_unit: 1}}\n\
         - {key: c, metadata: {over: true}, rate_limit: {unit: day, requests_per_unit: 0}}\n",
        behaviour,
    );
    let mut asked = request(
        "d",
        vec![
            descriptor(&[("a", "1")]),
            hits(&[("b", "2"), ("c", "")], 3),
            descriptor(&[("c", "")]),
        ],
    );
    asked.descriptors[1] = hits(&[("b", "2")], 1);
    asked.descriptors[2].limit = with_limit(&[], 0, 3).limit;
    asked.hits_addend = 1;
    let metadata = scene.ask(&asked).dynamic_metadata.unwrap();
    let text = serde_json::to_string(&ShownStruct(&metadata)).unwrap();
    assert!(text.starts_with(r#"{"descriptors":[{"entries":["a=1"]}"#), "sorted by key: {text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        shown,
        serde_json::json!({
            "domain": "d",
            "descriptors": [
                {"entries": ["a=1"]},
                {"entries": ["b=2"], "hitsAddend": 1.0},
                {"entries": ["c="], "limit": "requests_per_unit:0 unit:HOUR"},
            ],
            "hitsAddend": 1.0,
            "metadata": {"x": {"a": 1.0, "b": 2.0}, "y": "first", "z": [1.0, true, null]},
        })
    );
}

#[test]
fn limits_that_warn_are_in_a_header_and_in_the_metadata() {
    let mut behaviour = Behaviour::default();
    behaviour.has_metadata = true;
    let scene = Scene::with(
        "domain: d\ndescriptors:\n\
         - {key: a, policy: fixed-window 4/1h warn 50%}\n\
         - {key: b, name: 'the \"plan\" é', policy: fixed-window 4/1h warn 50% shadow}\n\
         - {key: c, rate_limit: {unit: hour, requests_per_unit: 9}}\n",
        behaviour,
    );
    let ask = || {
        let descriptors = ["a", "b", "c"].map(|key| hits(&[(key, "x")], 1)).to_vec();
        let response = scene.ask(&request("d", descriptors));
        let headers = response.response_headers_to_add.iter();
        let headers: Vec<_> =
            headers.map(|header| (header.key.clone(), header.value.clone())).collect();
        let metadata = ShownStruct(response.dynamic_metadata.as_ref().unwrap());
        let metadata: Value = serde_json::to_value(metadata).unwrap();
        (headers, metadata["warnings"].clone())
    };
    assert_eq!(ask(), (vec![], Value::Null));
    let value = r#""d.a", "the \"plan\" ?""#.to_owned();
    let names = serde_json::json!(["d.a", "the \"plan\" é"]);
    assert_eq!(ask(), (vec![("RateLimit-Warning".to_owned(), value)], names));
}

#[test]
fn b70_descriptors_that_look_alike_when_joined_share_no_count() {
    let scene = Scene::new(
        "domain: d\ndescriptors:\n\
         - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n\
         - {key: a_b, rate_limit: {unit: minute, requests_per_unit: 1}}\n",
    );
    assert!(!is_over(&scene.status("d", &[("a", "b_c")])));
    assert!(!is_over(&scene.status("d", &[("a_b", "c")])));
    assert!(is_over(&scene.status("d", &[("a_b", "c")])));
}

#[test]
fn b71_hits_that_were_spared_do_not_spoil_statistics() {
    let mut behaviour = Behaviour::default();
    behaviour.spares_others_when_over = true;
    let scene = Scene::with(
        "domain: d\ndescriptors:\n\
         - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n\
         - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}\n",
        behaviour,
    );
    let decided =
        scene.decided(&request("d", vec![hits(&[("a", "")], 3), descriptor(&[("none", "")])]));
    let tally = &decided.unwrap().tallies[0];
    assert_eq!((tally.total, tally.over, tally.near, tally.within), (3, 0, 0, 3));
    assert_eq!(scene.status_of("d", hits(&[("a", "")], 0)).limit_remaining, 10);
}

#[test]
fn windows_are_those_of_the_clock() {
    let unit = |unit: &str| {
        Scene::new(&format!(
            "domain: d\ndescriptors:\n- {{key: a, rate_limit: {{unit: {unit}, requests_per_unit: 9}}}}\n"
        ))
    };
    // The scene begins 48 s after the start of a Monday, the day 19,723 since 1970-01-01, which was
    // a Thursday. All windows are aligned to 1970-01-01.
    for (name, until_reset) in [
        ("second", 1),
        ("Minute", 12),
        ("HOUR", 3_552),
        ("day", 86_352),
        ("week", 3 * 86_400 - 48),
        ("month", 17 * 86_400 - 48),
        ("year", 352 * 86_400 - 48),
    ] {
        let scene = unit(name);
        // The time until the reset is the same for a request without hits and a request with a hit.
        assert_eq!(reset(&scene.status_of("d", hits(&[("a", "")], 0))), until_reset, "{name}");
        assert_eq!(reset(&scene.status("d", &[("a", "")])), until_reset, "{name}");
    }
}

#[test]
fn a_calendar_has_the_windows_of_a_time_zone() {
    // The scene begins at 00:00:48 UTC on Monday, 2024-01-01.
    for (unit, calendar, until_reset) in [
        ("DAY", "in Asia/Tokyo at 05:00", 20 * 3_600 - 48),
        ("WEEK", "from monday in UTC", 7 * 86_400 - 48),
        ("MONTH", "in Asia/Tokyo", 30 * 86_400 + 15 * 3_600 - 48),
        ("YEAR", "in America/New_York", 5 * 3_600 - 48),
    ] {
        let scene = Scene::new(&format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{unit: {unit}, \
             requests_per_unit: 2, calendar: {calendar}}}\n"
        ));
        // The time until the reset is the same for a request without hits and a request with a hit.
        assert_eq!(reset(&scene.status_of("d", hits(&[("a", "")], 0))), until_reset, "{unit}");
        let passed: Vec<bool> = (0..3).map(|_| scene.passes("d", &[&[("a", "")]])).collect();
        assert_eq!(passed, [true, true, false]);
        let status = scene.status("d", &[("a", "")]);
        assert_eq!((limit(&status), reset(&status)), (format!("2/{unit}"), until_reset));
        scene.advance(until_reset.cast_unsigned());
        assert!(scene.passes("d", &[&[("a", "")]]));
    }
}

#[test]
fn a_period_is_a_window_of_any_length() {
    let scene = Scene::new(
        "domain: d\ndescriptors:\n\
         - {key: a, rate_limit: {period: 15m, requests_per_unit: 2}}\n\
         - {key: b, rate_limit: {period: 60s, requests_per_unit: 2}}\n",
    );
    let passed: Vec<bool> = (0..3).map(|_| scene.passes("d", &[&[("a", "")]])).collect();
    assert_eq!(passed, [true, true, false]);
    let status = scene.status("d", &[("a", "")]);
    // Envoy's protocol has no unit for a window of 15 minutes, so the server returns an unknown
    // unit.
    assert_eq!((&*limit(&status), reset(&status)), ("2/UNKNOWN", 900 - 48));
    assert_eq!(limit(&scene.status("d", &[("b", "")])), "2/MINUTE");
}

#[test]
fn a_refund_is_taken_off_the_count_and_never_below_zero() {
    let scene = Scene::new(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n",
    );
    let entries = &[("a", "")][..];
    let remaining = |descriptor| scene.status_of("d", descriptor).limit_remaining;
    assert_eq!(remaining(refund(entries, 5)), 10, "nothing was counted");
    assert_eq!(remaining(hits(entries, 12)), 0);
    assert_eq!(remaining(refund(entries, 5)), 3, "refused hits were counted too");
    assert_eq!(remaining(refund(entries, 100)), 10);
    assert_eq!(remaining(hits(entries, 1)), 9);
    // A refund is never refused, and statistics do not count it as a hit.
    scene.status_of("d", hits(entries, 20));
    let decided = scene.decided(&request("d", vec![refund(entries, 1)])).unwrap();
    assert!(is_ok(&decided.response) && decided.tallies.is_empty());
}

#[test]
fn the_hits_of_a_descriptor_precede_those_of_the_request() {
    let scene = Scene::new(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n",
    );
    let mut asked = request("d", vec![descriptor(&[("a", "1")]), hits(&[("a", "2")], 0)]);
    asked.hits_addend = 3;
    let response = scene.ask(&asked);
    let remaining: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(remaining, [7, 10]);
    // `u64::MAX` hits exceed the largest possible count, so the request is refused.
    let status = scene.status_of("d", hits(&[("a", "3")], u64::MAX));
    assert!(is_over(&status) && status.limit_remaining == 0);
    assert!(is_over(&scene.status_of("d", hits(&[("a", "3")], u64::MAX))));
}

#[test]
fn one_descriptor_twice_counts_twice() {
    let scene = Scene::new(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n",
    );
    let entries = &[("a", "")][..];
    scene.ask(&request("d", vec![descriptor(entries), descriptor(entries)]));
    assert_eq!(scene.status_of("d", hits(entries, 0)).limit_remaining, 8);
}

#[test]
fn statistics_have_the_values_that_are_asked_for() {
    let config = "domain: d\ndescriptors:\n\
         - {key: by, value_to_metric: true, descriptors: [\n\
             {key: m, rate_limit: {unit: day, requests_per_unit: 9}}]}\n\
         - {key: pat, value: 'x*', value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}\n\
         - {key: share, value: 'x*', value_to_metric: true, share_threshold: true, descriptors: [\n\
             {key: m, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 9}},\n\
             {key: n, rate_limit: {unit: day, requests_per_unit: 9}}]}\n\
         - {key: two, value: '*', descriptors: [\n\
             {key: m, value: v, rate_limit: {unit: day, requests_per_unit: 9}}]}\n";
    let scene = Scene::new(config);
    for (entries, key) in [
        (&[("by", "v1"), ("m", "x")][..], "d.by_v1.m"),
        (&[("by", ""), ("m", "x")], "d.by.m"),
        (&[("pat", "x1")], "d.pat_x1"),
        (&[("share", "x1"), ("m", "v")], "d.share_x*.m_v"),
        (&[("share", "x1"), ("n", "v")], "d.share_x*.n"),
        (&[("two", "x1"), ("m", "v")], "d.two_*.m_v"),
    ] {
        assert_eq!(scene.tally("d", entries).key.name(), key);
    }
}

#[test]
fn requests_without_bounds_are_refused_before_anything_is_counted() {
    let scene = Scene::new(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n",
    );
    let one = || descriptor(&[("a", "")]);
    let many = vec![one(); MAX_DESCRIPTORS + 1];
    let error = scene.decided(&request("d", many)).unwrap_err().to_string();
    assert_eq!(error, "the request has 1001 descriptors; at most 1000 are possible");

    let huge = "x".repeat(1 << 20);
    let error = scene.decided(&request("d", vec![one(), descriptor(&[("a", &huge)])]));
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("bytes; at most 1048576 are possible"), "{error}");
    assert_eq!(scene.status_of("d", hits(&[("a", "")], 0)).limit_remaining, 10);
    // No limit matches the key `other`, so the server does not count the descriptor, and its size
    // does not matter.
    assert!(scene.passes("d", &[&[("other", &huge)]]));
}
