//! Tests how files of limits are read, and the errors for invalid files.

use tidegate_server::limits::config::{Config, ConfigFile, MAX_FILE_BYTES, SameDomain};

use crate::scene::{Scene, limit, read};

fn error(text: &str) -> String {
    let error = read(text).unwrap_err();
    assert_eq!(error.file(), "limits.yaml");
    error.to_string()
}

/// The tests of envoyproxy/ratelimit contain the same error messages.
#[test]
fn errors_have_the_texts_of_envoyproxy_ratelimit() {
    for (text, expected) in [
        ("descriptors: []", "limits.yaml:1:1: config file cannot have empty domain"),
        ("", "limits.yaml:1:1: config file cannot have empty domain"),
        (
            "domain: d\n---\n# another file\ndomain: d",
            "limits.yaml:2:9: duplicate domain 'd' in config file",
        ),
        ("domain: d\ndescriptors:\n  - value: v", "limits.yaml:3:5: descriptor has empty key"),
        (
            "domain: d\ndescriptors:\n  - {key: a, value: b}\n  - {key: a, value: b}",
            "limits.yaml:4:11: duplicate descriptor composite key 'd.a_b'",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: foo",
            "limits.yaml:5:13: invalid rate limit unit 'foo'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {requests_per_unit: 1}}]",
            "limits.yaml:2:36: invalid rate limit unit ''",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: day}}]",
            "limits.yaml:2:60: should not specify rate limit unit when unlimited",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, replaces: [{name: ''}]}}]",
            "limits.yaml:2:59: should not have an empty replaces entry",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, name: x, replaces: [{name: x}]}}]",
            "limits.yaml:2:68: replaces should not contain name of same descriptor",
        ),
        (
            "domain: d\ndescriptors: [{key: k, value: v, share_threshold: true}]",
            "limits.yaml:2:51: share_threshold can only be used with wildcard values (containing \
             '*'), but found key 'k_v'",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    ratelimit: {}",
            "limits.yaml:4:5: config error, unknown key 'ratelimit'",
        ),
        ("domain: d\n0.25: x", "limits.yaml:2:1: config error, key is not of type string: 0.25"),
        (
            "domain: d\ndescriptors:\n  - a",
            "limits.yaml:3:5: config error, yaml file contains list of type other than map: a",
        ),
        (
            "domain: d\ndescriptors:\n  -",
            "limits.yaml:3:4: config error, yaml file contains list of type other than map: <nil>",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1.5}}]",
            "limits.yaml:2:67: error checking config: 1.5",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn other_errors_name_what_is_wrong_and_where() {
    for (text, expected) in [
        ("domain: [", ":2:1: error loading config file: yaml: "),
        ("domain: 'a", ": error loading config file: yaml: "),
        ("a", ":1:1: error loading config file: the file is not a map"),
        (
            "domain: d\n...\n--- \ndomain: e",
            ":3:1: error loading config file: there is a second document",
        ),
        ("domain: {a: b}", ":1:10: config error, unknown key 'a'"),
        ("domain: {key: b}", ":1:9: error loading config file: 'domain' is not a text"),
        (
            "domain: d\ndescriptors: 5",
            ":2:14: error loading config file: 'descriptors' is not a list",
        ),
        ("domain: d\n? [a]\n: b", ": config error, key is not of type string: a list or a map"),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: 5}]",
            ":2:36: error loading config file: 'rate_limit' is not a map",
        ),
        (
            "domain: d\ndescriptors: [{key: a, shadow_mode: 5}]",
            ":2:37: error loading config file: 'shadow_mode' is neither true nor false",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: -1}}]",
            ":2:67: error loading config file: 'requests_per_unit' is not a whole number from 0 to",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 4294967296}}]",
            "'requests_per_unit' is not a whole number from 0 to 4294967295",
        ),
        (
            "domain: d\ndescriptors: [{key: a, metadata: 5}]",
            ":2:34: error loading config file: 'metadata' is not a map",
        ),
        ("domain: &a d\n<<: *a", "map merge requires map or sequence of maps as the value"),
        (
            "domain: d\ndescriptors: &a [{key: a, descriptors: *a}]",
            "the anchor's value contains itself",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn errors_of_our_own_keys_point_at_the_word() {
    for (text, expected) in [
        (
            "domain: d\ndescriptors:\n  - key: a\n    policy: gcra 10/s brust 100",
            "limits.yaml:4:23: invalid policy: `brust` is not an option of gcra, did you mean `burst`?",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    policy: \"gcro 10/s\"",
            "limits.yaml:4:14: invalid policy: `gcro` is not an algorithm",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    policy: |\n      gcro 10/s",
            "invalid policy: `gcro` is not an algorithm",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    policy: concurrent 10 lease 30s",
            "limits.yaml:4:13: invalid policy: a request takes slots (`concurrent`) under an id; they \
             need `hold_id: true`, and a descriptor whose value is the id, such as `x-request-id`",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 10 lease 30s, hold_id: false}]",
            ":2:66: invalid policy: a request takes slots (`concurrent`) under an id",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 10, hold_id: true}]",
            ":2:45: invalid policy: there must be `lease` and a span of time, such as `lease 30s`",
        ),
        (
            "domain: d\ndescriptors: [{key: a, value: x, policy: concurrent 10 lease 30s, hold_id: true}]",
            ":2:31: 'hold_id' cannot be combined with 'value': each request has its own id",
        ),
        (
            "domain: d\ndescriptors: [{key: a, value: '*', policy: concurrent 10 lease 30s, hold_id: true}]",
            ":2:31: 'hold_id' cannot be combined with 'value'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s, hold_id: true}]",
            ":2:51: 'hold_id' is only possible with a policy of slots (`concurrent`)",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}, hold_id: true}]",
            ":2:58: 'hold_id' is only possible with a 'policy'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, hold_id: true}}]",
            ":2:48: the key 'hold_id' has no effect here",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 1 lease 1s, hold_id: true, refunds: true}]",
            "'refunds' cannot be combined with slots (`concurrent`): the end of a request frees its slots",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 1 lease 1s, hold_id: true, charge_afterwards: true}]",
            "'charge_afterwards' cannot be combined with slots (`concurrent`): a request takes its slots",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 1 lease 1s, hold_id: true, detailed_metric: true}]",
            "'detailed_metric' cannot be combined with slots (`concurrent`): each id would have its own",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 1 lease 1s, hold_id: true, value_to_metric: true}]",
            "'value_to_metric' cannot be combined with slots (`concurrent`): each id would have its own",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 1 lease 1s, hold_id: true, quota_mode: true}]",
            "'quota_mode' cannot be combined with 'policy'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 1 lease 1s, hold_id: true, lease: true}]",
            "the limit cannot be leased: slots are taken and freed in the store",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 8 lease 1s shards 4, hold_id: true}]",
            ":2:32: invalid policy: unsupported: `policy: concurrent 8 lease 1s shards 4` cannot be held and settled",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 100/s shards 4, one_of: b}]",
            "is in a list of alternatives, and its requests can be routed to any shard",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: fair-pool 10/1m}]",
            ":2:32: invalid policy: a fair pool needs a name, as in `pool: fair-pool 10/1m`",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: 'p: fair-pool 10/1m', charge_afterwards: true}]",
            "'charge_afterwards' cannot be combined with a fair pool",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s, one_of: ''}]",
            ":2:50: 'one_of' is empty; it must be the name of a list of alternatives",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s block 1m, one_of: b}]",
            ":2:59: 'one_of' cannot be combined with `block`",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s, shadow_mode: true, one_of: b}]",
            "'one_of' cannot be combined with a shadow",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s, charge_afterwards: true, one_of: b}]",
            "'one_of' cannot be combined with 'charge_afterwards'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s, lease: true, one_of: b}]",
            "the limit cannot be leased: the store chooses one of several alternatives",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: concurrent 1 lease 1s, hold_id: true, one_of: b}]",
            "'one_of' cannot be combined with slots (`concurrent`)",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}, one_of: b}]",
            "'one_of' is only possible with a 'policy'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: [a]}]",
            "yaml file contains list of type other than map: a",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: {key: a}}]",
            ":2:32: error loading config file: 'policy' is not a text",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s, rate_limit: {unit: day}}]",
            ":2:32: a descriptor has either 'rate_limit' or 'policy', not both",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: gcra 1/s, quota_mode: true}]",
            ":2:54: 'quota_mode' cannot be combined with 'policy'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, refunds: true}]",
            ":2:33: 'refunds' is only possible with a 'policy'",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}, charge_afterwards: true}]",
            "'charge_afterwards' is only possible with a 'policy'",
        ),
        ("domain: d\npolicy: gcra 1/s", ":2:1: the key 'policy' has no effect here"),
        (
            "domain: d\ndescriptors: [{key: a, period: 1m}]",
            ":2:24: the key 'period' has no effect here",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {period: 1x}}]",
            ":2:45: invalid period: `1x` is not a span of time",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {period: 1m, unit: day}}]",
            ":2:45: a limit has either 'unit' or 'period', not both",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {period: 1m, unlimited: true}}]",
            "should not specify rate limit unit when unlimited",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {period: 1m, calendar: in UTC}}]",
            ":2:59: a limit has either 'period' or 'calendar', not both",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {calendar: in UTC}}]",
            "'calendar' needs a unit: day, week, month or year",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, calendar: in UTC}}]",
            ":2:59: invalid calendar: `hour` is not a unit of the calendar",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, calendar: in Paris}}]",
            ":2:58: invalid calendar: `Paris` is not",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: week, calendar: in UTC}}]",
            ":2:59: invalid calendar: ",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, calendar: in UTC shadow}}]",
            ":2:58: invalid calendar: only `in`, `from`, `at` and `anchored` are possible",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, calendar: in UTC}}]",
            "should not specify rate limit unit when unlimited",
        ),
        (
            "domain: d\ndescriptors: [{key: a, policy: 'x: gcra 1/s', replaces: [{name: x}]}]",
            "replaces should not contain name of same descriptor",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn domains_merge_if_they_are_to() {
    let file = |text: &str| ConfigFile { name: "limits.yaml".into(), text: text.into() };
    let one = file("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}}]");
    let other = file("domain: d\ndescriptors: [{key: b, rate_limit: {unit: day}}]");
    let merged = Config::from_files(&[one.clone(), other], SameDomain::Merge).unwrap();
    assert_eq!((merged.domains(), merged.limits()), (vec!["d"], 2));
    let error = Config::from_files(&[one.clone(), one], SameDomain::Merge).unwrap_err();
    assert_eq!(error.message(), "duplicate descriptor composite key 'd.a'");
    assert_eq!((error.line(), error.column()), (Some(2), Some(21)));
}

#[test]
fn yaml_of_all_kinds_is_read() {
    let scene = Scene::new(
        r#"%YAML 1.1
--- # the only document
"domain": d
descriptors:
  - &limit
    key: a
    value: 010          # a text, as it is written
    rate_limit: &daily {unit: "DAY", requests_per_unit: 0x10}
  - <<: *limit
    key: b
  - {key: c, value: yes, rate_limit: *daily}
  - {key: d, value: ~, shadow_mode: yes, rate_limit: {<<: *daily, requests_per_unit: 1_0}}
  - {key: e, rate_limit: ~, descriptors: ~}
"#,
    );
    for (key, value, expected) in [
        ("a", "010", "16/DAY"),
        ("b", "010", "16/DAY"),
        ("c", "yes", "16/DAY"),
        ("d", "anything", "10/DAY"),
        ("a", "8", ""),
        ("e", "", ""),
    ] {
        assert_eq!(limit(&scene.status("d", &[(key, value)])), expected, "{key} {value}");
    }
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let config = read(
        "domain: d\ndescriptors:\n  - key: a\n    unit: day\n    rate_limit: {unit: day, \
         shadow_mode: true}\n    key: b\n",
    )
    .unwrap();
    let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "limits.yaml:4:5: the key 'unit' has no effect here",
            "limits.yaml:6:5: the key 'key' occurs again in this map, and only its last value has an effect",
            "limits.yaml:5:29: the key 'shadow_mode' has no effect here",
        ]
    );
}

#[test]
fn bombs_are_refused_at_once() {
    // Each level is a list of ten aliases of the previous level, so the file expands to more than
    // 10^30 values.
    let mut bomb = "domain: d\nmetadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("  a{level}: &a{level} [{inner}]\n"));
    }
    let deep = format!("domain: d\nmetadata: {{a: {}}}", "[".repeat(100_000));
    let deep_blocks: String = (0..100).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    let wide = format!("domain: d\nmetadata: {{a: [{}]}}", "x,".repeat(600_000));
    for (text, expected) in [
        (&bomb, "the file has more than 500000 values"),
        (&deep, "recursion limit exceeded"),
        (&deep_blocks, "nested more than 64 deep"),
        (&wide, "the file has more than 500000 values"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{error}");
        assert!(error.len() < 300, "{error}");
    }
}

#[test]
fn depth_and_number_of_values_are_bounded_exactly() {
    // `maps` is the number of nested maps, including the map of the file and the map of the
    // metadata.
    let nested = |maps: usize| -> String {
        let maps = (1..maps).map(|depth| format!("{}a:\n", " ".repeat(depth)));
        format!("domain: d\nmetadata:\n{}", maps.collect::<String>())
    };
    read(&nested(64)).unwrap();
    assert!(error(&nested(65)).contains("nested more than 64 deep"));

    // The list has `values - 7` values. The file has seven other values: two maps, three keys, the
    // domain and the list itself.
    let wide = |values: usize| format!("domain: d\nmetadata: {{a: [{}]}}", "x,".repeat(values - 7));
    read(&wide(500_000)).unwrap();
    assert!(error(&wide(500_001)).contains("more than 500000 values"));
}

#[test]
fn messages_repeat_no_long_or_unprintable_text() {
    let long = "x".repeat(10_000);
    for text in [
        format!("domain: d\n{long}: 1"),
        format!("domain: d\ndescriptors: [{long}]"),
        format!("domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: {long}}}}}]"),
        "domain: d\n\"\\e[31m\": 1".to_owned(),
    ] {
        let error = error(&text);
        assert!(error.len() < 300, "{error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }
}

#[test]
fn any_text_is_read_or_refused() {
    use proptest::prelude::*;
    let word = prop::sample::select(vec![
        "domain",
        "descriptors",
        "key",
        "value",
        "rate_limit",
        "policy",
        "unit",
        "day",
        ":",
        ": ",
        "\n",
        "\n  ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&a ",
        "*a ",
        "<<",
        "'",
        "\"",
        "|",
        ">",
        "? ",
        "---",
        "...",
        "!!str ",
        "%",
        "~",
        "1",
        "0.5",
        "*",
        "a",
        "é",
        "\t",
        "\u{0}",
        "#",
        "!",
        "@",
    ]);
    let text = prop::collection::vec(word, 0..40).prop_map(|words| words.concat());
    proptest!(ProptestConfig::with_cases(4096), |(text in text)| {
        let _ = read(&text);
    });
    const { assert!(MAX_FILE_BYTES >= 1 << 20) };
}
