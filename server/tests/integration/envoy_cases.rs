//! Repeats the test cases of envoyproxy/ratelimit, with the requests that Envoy would send. Other
//! files contain the cases that need a real Envoy, a changing file, xDS or TLS.

use crate::scene::{Scene, descriptor, hits, is_ok, is_over, limit, request, reset, with_limit};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::google::protobuf::value::Kind;
use tidegate_server::envoy::decide::{Behaviour, HeaderNames};

/// The example configuration of envoyproxy/ratelimit.
const EXAMPLE: &str = r"
domain: rl
descriptors:
- {key: category, value: account, rate_limit: {unit: minute, requests_per_unit: 4,
    replaces: [{name: bkthomps}, {name: fake_name}]}}
- key: source_cluster
  value: proxy
  descriptors:
  - {key: destination_cluster, value: bkthomps, rate_limit: {unit: minute, requests_per_unit: 2,
      replaces: [{name: bkthomps}]}}
  - {key: destination_cluster, value: mock, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: destination_cluster, value: override, rate_limit: {unit: minute, requests_per_unit: 2,
      replaces: [{name: banned_limit}]}}
  - {key: destination_cluster, value: fake, rate_limit: {name: fake_name, unit: minute,
      requests_per_unit: 2}}
- key: foo
  rate_limit: {unit: minute, requests_per_unit: 2}
  descriptors:
  - {key: bar, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: bar, value: bkthomps, rate_limit: {name: bkthomps, unit: minute, requests_per_unit: 1}}
  - {key: bar, value: banned, rate_limit: {name: banned_limit, unit: minute, requests_per_unit: 0}}
  - {key: baz, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: baz, value: not-so-shady, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: baz, value: shady, rate_limit: {unit: minute, requests_per_unit: 3}, shadow_mode: true}
  - {key: bay, rate_limit: {unlimited: true}}
- {key: unspec, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: qux, rate_limit: {unlimited: true}}
- {key: service, value: service_1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1},
    metadata: {service_with_quota: {name: service_1}}}
- {key: service, value: service_2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2},
    metadata: {service_with_quota: {name: service_2}}}
";

const BASIC: &str = r"
domain: basic
descriptors:
- {key: key1, rate_limit: {unit: second, requests_per_unit: 50}}
---
domain: another
descriptors:
- {key: key2, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: key3, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: key4, rate_limit: {unit: day, requests_per_unit: 20}}
---
domain: share-threshold-test
descriptors:
- {key: files, value: files/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: files_no_share, value: files_no_share/*, rate_limit: {unit: hour, requests_per_unit: 10}}
---
domain: test-domain
descriptors:
- key: key1
  value: value1
  descriptors:
  - {key: subkey1, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: subkey1, value: subvalue1, rate_limit: {unit: second, requests_per_unit: 10}}
- {key: key2, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: key2, value: value2, rate_limit: {unit: minute, requests_per_unit: 30}}
- {key: key2, value: value3}
- {key: key6, rate_limit: {unlimited: true}}
- {key: shady, shadow_mode: true, rate_limit: {name: shady, unit: minute, requests_per_unit: 1}}
- {key: wild, value: foo*, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: midWild, value: bar*b, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: multiWild, value: foo*bar*baz, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: nestedWild, value: val1, descriptors: [
    {key: wild, value: goo*, rate_limit: {unit: minute, requests_per_unit: 20}}]}
";

/// Returns the number of admitted requests of `count` equal requests. Fails if a request is
/// admitted after a refused request.
fn passing(scene: &Scene, count: usize, descriptors: &[&[(&str, &str)]]) -> usize {
    let passed: Vec<bool> = (0..count).map(|_| scene.passes("rl", descriptors)).collect();
    assert!(passed.is_sorted_by(|a, b| a >= b), "{passed:?}");
    passed.iter().filter(|passed| **passed).count()
}

#[test]
fn e01_a_shadow_admits() {
    assert!(Scene::new(EXAMPLE).passes("rl", &[&[("foo", "test"), ("baz", "shady")]]));
}

#[test]
fn e02_three_of_four_pass() {
    let scene = Scene::new(EXAMPLE);
    assert_eq!(passing(&scene, 4, &[&[("foo", "pelle"), ("baz", "not-so-shady")]]), 3);
}

#[test]
fn e03_a_shadow_counts_what_it_would_refuse() {
    let scene = Scene::new(EXAMPLE);
    let entries = [("foo", "pelle"), ("baz", "shady")];
    let statuses: Vec<_> = (0..3).map(|_| scene.status("rl", &entries)).collect();
    assert_eq!(statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>(), [2, 1, 0]);
    let tallies: Vec<_> = (0..3).map(|_| scene.tally("rl", &entries)).collect();
    assert!(
        tallies.iter().all(|tally| (tally.shadow, tally.over, tally.within) == (1, 1, 0)),
        "{tallies:?}"
    );
    let status = scene.status("rl", &entries);
    assert_eq!((status.code(), status.limit_remaining), (Code::Ok, 0));
}

#[test]
fn e04_a_request_passes_while_one_quota_has_something_left() {
    let scene = Scene::new(EXAMPLE);
    let quotas = [&[("service", "service_1")][..], &[("service", "service_2")]];
    assert_eq!(passing(&scene, 3, &quotas), 2);
    scene.advance(60);
    assert!(scene.passes("rl", &quotas));
}

#[test]
fn e05_a_charge_past_the_limit_is_counted() {
    let scene = Scene::new(EXAMPLE);
    let entries = [("service", "service_2")];
    let ask = || is_ok(&scene.ask(&request("rl", vec![hits(&entries, 0)])));
    let mut passed = Vec::new();
    for _ in 0..4 {
        passed.push(ask());
        // At the end of a stream, Envoy sends a request with the hits of the stream, even if the
        // stream was refused.
        scene.ask(&request("rl", vec![hits(&entries, 1)]));
    }
    assert_eq!(passed, [true, true, true, false]);
    scene.advance(60);
    assert!(ask());
}

#[test]
fn e06_metadata_names_the_services_with_quota() {
    let mut behaviour = Behaviour::default();
    behaviour.has_metadata = true;
    let scene = Scene::with(EXAMPLE, behaviour);
    let (first, second) = ([("service", "service_1")], [("service", "service_2")]);
    let mut chosen = Vec::new();
    for _ in 0..6 {
        let response = scene.ask(&request("rl", vec![hits(&first, 0), hits(&second, 0)]));
        let fields = response.dynamic_metadata.clone().unwrap().fields;
        let Some(Kind::StructValue(metadata)) =
            fields.get("metadata").and_then(|value| value.kind.clone())
        else {
            assert!(!is_ok(&response));
            chosen.push(String::new());
            continue;
        };
        let Some(Kind::StructValue(quota)) = metadata.fields["service_with_quota"].kind.clone()
        else {
            panic!("{metadata:?}");
        };
        let Some(Kind::StringValue(name)) = quota.fields["name"].kind.clone() else {
            panic!("{quota:?}");
        };
        scene.ask(&request("rl", vec![hits(&[("service", &name)], 1)]));
        chosen.push(name);
    }
    let [one, two] = ["service_1", "service_2"];
    assert_eq!(chosen, [one, one, two, two, two, ""]);
}

#[test]
fn e07_to_e15_limits_that_replace_others() {
    let scene = Scene::new(EXAMPLE);
    let passing = |count, descriptors: &[&[(&str, &str)]]| passing(&scene, count, descriptors);
    let banned = &[("foo", "bkthomps"), ("bar", "banned")][..];
    let my_foo = &[("foo", "my_foo"), ("bar", "bkthomps")][..];
    let mock = &[("source_cluster", "proxy"), ("destination_cluster", "mock")][..];
    let over = &[("source_cluster", "proxy"), ("destination_cluster", "override")][..];
    let bkthomps = &[("source_cluster", "proxy"), ("destination_cluster", "bkthomps")][..];
    let not_bkthomps = &[("source_cluster", "proxy"), ("destination_cluster", "not_bkthomps")][..];
    let fake = &[("source_cluster", "proxy"), ("destination_cluster", "fake")][..];
    let account = &[("category", "account")][..];

    assert_eq!(passing(1, &[banned]), 0, "E07");
    assert_eq!(passing(1, &[banned, mock]), 0, "E08");
    assert_eq!(passing(3, &[banned, over]), 2, "E09");
    assert_eq!(passing(3, &[my_foo, bkthomps]), 2, "E10");
    assert_eq!(passing(2, &[my_foo, not_bkthomps]), 1, "E11");
    assert_eq!(passing(1, &[my_foo, bkthomps]), 0, "E12");
    assert_eq!(passing(5, &[my_foo, fake, account]), 4, "E13");
    assert_eq!(passing(2, &[&[("foo", "foo_2"), ("bar", "bkthomps")]]), 1, "E14");
    assert_eq!(passing(3, &[&[("foo", "foo_3"), ("bar", "bar_3")], fake]), 2, "E15");
    assert_eq!(passing(1, &[my_foo, fake, account]), 0, "E15, E13 once more");
}

#[test]
fn e16_a_detailed_metric_has_the_value() {
    let scene = Scene::new(EXAMPLE);
    let entries = &[("unspec", "unspecified_value")][..];
    assert_eq!(passing(&scene, 2, &[entries]), 2);
    let tally = scene.tally("rl", entries);
    assert_eq!((tally.key.name(), tally.over), ("rl.unspec_unspecified_value", 1));
}

#[test]
fn g01_an_unknown_domain_has_no_limits() {
    let scene = Scene::new(BASIC);
    let decided = scene.decided(&request("foo", vec![descriptor(&[("hello", "world")])])).unwrap();
    assert!(!decided.is_domain_known);
    let status = &decided.response.statuses[0];
    assert_eq!((status.code(), status.limit_remaining), (Code::Ok, 0));
    assert_eq!(status.current_limit, None);
    assert!(is_ok(&decided.response));
}

#[test]
fn g02_a_limit_per_second() {
    let scene = Scene::new(BASIC);
    let status = scene.status("basic", &[("key1", "foo")]);
    assert_eq!((&*limit(&status), status.limit_remaining, reset(&status)), ("50/SECOND", 49, 1));
    assert_eq!(scene.tally("basic", &[("key1", "foo")]).total, 1);
}

#[test]
fn g03_twenty_of_twenty_five_pass() {
    let scene = Scene::new(BASIC);
    for sent in 1..=25 {
        let decided = scene.decided(&request("another", vec![descriptor(&[("key2", "rnd")])]));
        let decided = decided.unwrap();
        let status = &decided.response.statuses[0];
        assert_eq!(status.limit_remaining, 20_u32.saturating_sub(sent));
        assert_eq!(is_over(status), sent > 20);
        assert_eq!(decided.tallies[0].over, u64::from(sent > 20));
        assert_eq!(decided.tallies[0].within, u64::from(sent <= 20));
    }
}

#[test]
fn g04_each_of_two_limits_counts_by_itself() {
    for spares in [false, true] {
        let mut behaviour = Behaviour::default();
        behaviour.spares_others_when_over = spares;
        let scene = Scene::with(BASIC, behaviour);
        for sent in 1..=15 {
            let response = scene.ask(&request(
                "another",
                vec![descriptor(&[("key2", "r")]), descriptor(&[("key3", "r")])],
            ));
            let [first, second] = &response.statuses[..] else { panic!("{response:?}") };
            let counted = if spares { sent.min(10) } else { sent };
            assert_eq!((first.code(), first.limit_remaining), (Code::Ok, 20 - counted));
            assert_eq!(is_over(second), sent > 10);
            assert_eq!(second.limit_remaining, 10_u32.saturating_sub(sent));
            assert_eq!(is_ok(&response), sent <= 10);
        }
    }
}

#[test]
fn g05_the_time_until_reset_falls_by_what_has_passed() {
    let scene = Scene::new(BASIC);
    let before = reset(&scene.status("another", &[("key4", "a")]));
    scene.advance(2);
    let after = reset(&scene.status("another", &[("key4", "a")]));
    assert_eq!((before, after), (86_400 - 48, 86_400 - 50));
}

#[test]
fn g07_values_of_a_pattern_share_a_count() {
    let scene = Scene::new(BASIC);
    let ask = |file| scene.status("share-threshold-test", &[("files", file)]);
    for _ in 0..10 {
        assert!(!is_over(&ask("files/a.pdf")));
    }
    let status = ask("files/b.csv");
    assert_eq!((is_over(&status), status.limit_remaining), (true, 0));
}

#[test]
fn g08_without_the_flag_each_value_has_its_count() {
    let scene = Scene::new(BASIC);
    for file in ["files_no_share/a", "files_no_share/b"] {
        let status = scene.status("share-threshold-test", &[("files_no_share", file)]);
        assert_eq!(status.limit_remaining, 9, "{file}");
    }
}

#[test]
fn g09_the_limit_is_that_of_as_many_entries() {
    let scene = Scene::new(BASIC);
    let found = |entries| limit(&scene.status("test-domain", entries));
    assert_eq!(found(&[("key1", "value1")]), "");
    assert_eq!(found(&[("key1", "value1"), ("subkey1", "x")]), "5/SECOND");
    assert_eq!(found(&[("key1", "value1"), ("subkey1", "subvalue1")]), "10/SECOND");
    assert_eq!(found(&[("key2", "x")]), "20/MINUTE");
    assert_eq!(found(&[("key2", "value2")]), "30/MINUTE");
    assert_eq!(found(&[("key2", "value3")]), "");
    assert_eq!(found(&[("key2", "value2"), ("subkey", "x")]), "");
    assert_eq!(found(&[]), "");
    let unlimited = scene.status("test-domain", &[("key6", "foo")]);
    assert_eq!((unlimited.limit_remaining, unlimited.current_limit), (u32::MAX, None));
}

#[test]
fn g10_values_of_a_pattern_share_a_limit_and_statistics_but_no_count() {
    let scene = Scene::new(BASIC);
    let key = |entries: &[(&str, &str)]| {
        let decided = scene.decided(&request("test-domain", vec![descriptor(entries)])).unwrap();
        let remaining = decided.response.statuses[0].limit_remaining;
        decided.tallies.first().map(|tally| (tally.key.to_string(), remaining))
    };
    let wild = || Some(("test-domain.wild_foo*".to_owned(), 19));
    assert_eq!([key(&[("wild", "foo1")]), key(&[("wild", "foo2")])], [wild(), wild()]);
    assert_eq!(key(&[("wild", "bar")]), None);
    for (value, fits) in
        [("barab", true), ("bar123b", true), ("barb", true), ("bara", false), ("xbarb", false)]
    {
        assert_eq!(key(&[("midWild", value)]).is_some(), fits, "{value}");
    }
    for (value, fits) in
        [("foo123bar456baz", true), ("foobarbaz", true), ("foo123baz", false), ("bar456baz", false)]
    {
        assert_eq!(key(&[("multiWild", value)]).is_some(), fits, "{value}");
    }
    let nested = key(&[("nestedWild", "val1"), ("wild", "goo1")]).unwrap().0;
    assert_eq!(nested, "test-domain.nestedWild_val1.wild_goo*");
}

#[test]
fn g11_the_limit_of_a_request_is_used_as_it_is() {
    let scene = Scene::new(BASIC);
    let entries = &[("shady", "x")][..];
    for (number, unit) in [
        (1, "SECOND"),
        (2, "MINUTE"),
        (3, "HOUR"),
        (4, "DAY"),
        (5, "MONTH"),
        (6, "YEAR"),
        (7, "WEEK"),
    ] {
        let status = scene.status_of("test-domain", with_limit(entries, 10, number));
        assert_eq!(limit(&status), format!("10/{unit}"));
        assert_eq!(status.current_limit.unwrap().name, "");
    }
    assert!(is_over(&scene.status_of("test-domain", with_limit(entries, 0, 2))));
    assert_eq!(limit(&scene.status_of("unknown", with_limit(entries, 10, 2))), "");
    for unit in [0, 8, -1] {
        let request = request("test-domain", vec![with_limit(entries, 10, unit)]);
        let error = scene.decided(&request).unwrap_err().to_string();
        assert!(error.contains(&format!("the unit {unit}; it must be from 1 to 7")), "{error}");
    }
}

#[test]
fn g12_an_empty_domain_and_an_empty_list_are_errors() {
    let scene = Scene::new(BASIC);
    let error = |request| scene.decided(&request).unwrap_err().to_string();
    assert_eq!(
        error(request("", vec![descriptor(&[("a", "b")])])),
        "rate limit domain must not be empty"
    );
    assert_eq!(error(request("basic", vec![])), "rate limit descriptor list must not be empty");
}

#[test]
fn g13_one_of_two_descriptors_is_unlimited() {
    let scene = Scene::new(BASIC);
    let response = scene.ask(&request(
        "test-domain",
        vec![descriptor(&[("key6", "a")]), descriptor(&[("key2", "a")])],
    ));
    assert_eq!(response.statuses[0].limit_remaining, 4_294_967_295);
    assert_eq!(limit(&response.statuses[1]), "20/MINUTE");
    assert!(is_ok(&response));
}

#[test]
fn g14_a_server_in_shadow_passes_what_its_statuses_refuse() {
    let mut behaviour = Behaviour::default();
    behaviour.is_shadow = true;
    let scene = Scene::with(EXAMPLE, behaviour);
    let request = request("rl", vec![descriptor(&[("foo", "bkthomps"), ("bar", "banned")])]);
    let decided = scene.decided(&request).unwrap();
    assert!(is_ok(&decided.response) && is_over(&decided.response.statuses[0]));
    assert!(decided.is_shadowed);
}

#[test]
fn g15_quotas_refuse_when_all_are_over() {
    let config = r"
domain: d
descriptors:
- {key: five, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: three, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
";
    let scene = Scene::new(config);
    let quotas = [&[("five", "")][..], &[("three", "")]];
    let passed: Vec<bool> = (0..6).map(|_| scene.passes("d", &quotas)).collect();
    assert_eq!(passed, [true, true, true, true, true, false]);
    let scene = Scene::new(config);
    assert!(!scene.passes("d", &[quotas[0], quotas[1], &[("none", "")]]));
    // A request whose quotas are all exceeded is refused, even if another descriptor, `other`, has
    // no limit.
    assert!(
        !Scene::new(&config.replace("requests_per_unit: 5", "requests_per_unit: 0"))
            .passes("d", &[quotas[0], &[("other", "")]])
    );
}

#[test]
fn g16_headers_of_the_limit_that_refuses() {
    let config = r"
domain: d
descriptors:
- {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: many, rate_limit: {unit: hour, requests_per_unit: 100}}
- {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
";
    let mut behaviour = Behaviour::default();
    behaviour.headers = Some(HeaderNames::default());
    let scene = Scene::with(config, behaviour);
    let headers = |descriptors| {
        let response = scene.ask(&request("d", descriptors));
        let headers = response.response_headers_to_add.into_iter();
        headers.map(|header| (header.key, header.value)).collect::<Vec<_>>()
    };
    let expected = |limit: &str, remaining: &str, reset: &str| {
        [("Limit", limit), ("Remaining", remaining), ("Reset", reset)]
            .map(|(name, value)| (format!("RateLimit-{name}"), value.to_owned()))
            .to_vec()
    };
    let [ten, many] = [[("ten", "a")], [("many", "a")]];
    // The `RateLimit-` headers describe the limit with the smallest remaining amount.
    assert_eq!(headers(vec![descriptor(&many), descriptor(&ten)]), expected("10", "9", "12"));
    assert_eq!(headers(vec![hits(&ten, 9), hits(&many, 1)]), expected("10", "0", "12"));
    // The `RateLimit-` headers describe the limit `ten`, because it refuses. The limit `many` is
    // exhausted too, but does not refuse.
    assert_eq!(headers(vec![hits(&ten, 1), hits(&many, 98)]), expected("10", "0", "12"));
    // An exceeded quota does not refuse the request, so the `RateLimit-` headers do not describe
    // it.
    let quota = [("quota", "a")];
    assert_eq!(headers(vec![hits(&ten, 1), hits(&quota, 9)]), expected("10", "0", "12"));
    assert_eq!(headers(vec![descriptor(&[("other", "")])]), []);
}

#[test]
fn g20_two_limits_of_one_request() {
    let scene = Scene::new(
        "domain: d\ndescriptors:\n\
         - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n\
         - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}\n",
    );
    let request = request("d", vec![descriptor(&[("a", "")]), descriptor(&[("b", "")])]);
    assert!(is_ok(&scene.ask(&request)));
    let response = scene.ask(&request);
    assert!(!is_ok(&response));
    let [first, second] = &response.statuses[..] else { panic!("{response:?}") };
    assert_eq!((is_over(first), &*limit(first), reset(first)), (true, "1/MINUTE", 12));
    assert_eq!((is_over(second), &*limit(second), reset(second)), (false, "2/MINUTE", 12));
}
