//! Tests statistics under the names of envoyproxy/ratelimit.

use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_core::DenyCache;
use tidegate_server::envoy::decide::Behaviour;
use tidegate_server::envoy::service::Service;
use tidegate_server::envoy::stats::{MAX_KEY_BYTES, MAX_KEYS};

use crate::scene::{Scene, block_on, descriptor, hits, request};

#[test]
fn limits_are_counted_by_domain_and_keys() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let scene = Scene::new(
            "domain: d\ndescriptors:\n\
             - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n\
             - {key: p, value: x, descriptors: [{key: q, policy: fixed-window 5/1m}]}\n\
             - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}\n\
             - {key: v, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}\n",
        );
        let service = Service::new(scene.decider);
        let ask = |request| block_on(service.should_rate_limit(&request));
        for _ in 0..4 {
            let descriptors = vec![hits(&[("a", "")], 3), hits(&[("p", "x"), ("q", "")], 2)];
            ask(request("d", descriptors)).unwrap();
        }
        ask(request("d", vec![descriptor(&[("s", "")])])).unwrap();
        ask(request("unknown", vec![descriptor(&[("a", "")])])).unwrap();
        ask(request("", vec![])).unwrap_err();
        for value in 0..MAX_KEYS + 10 {
            ask(request("d", vec![descriptor(&[("v", &value.to_string())])])).unwrap();
        }
    });
    let text = handle.render();
    let key_q = r#"{domain="d",key1="p_x",key2="q"}"#;
    for (name, labels, value) in [
        ("rate_limit_total_hits", r#"{domain="d",key1="a"}"#, 12),
        ("rate_limit_over_limit", r#"{domain="d",key1="a"}"#, 2),
        ("rate_limit_near_limit", r#"{domain="d",key1="a"}"#, 2),
        ("rate_limit_within_limit", r#"{domain="d",key1="a"}"#, 9),
        ("rate_limit_total_hits", key_q, 8),
        ("rate_limit_over_limit", key_q, 4),
        ("rate_limit_within_limit", key_q, 4),
        ("rate_limit_shadow_mode", r#"{domain="d",key1="s"}"#, 1),
        ("rate_limit_total_hits", r#"{domain="d",key1="v_5"}"#, 1),
        // The statistics keep `MAX_KEYS` names. Three names were known before, so 13 of the
        // `MAX_KEYS + 10` values are counted as `other`.
        ("rate_limit_total_hits", r#"{domain="other",key1="other"}"#, 13),
        ("should_rate_limit_error", r#"{err_type="service_error"}"#, 1),
        ("domain_not_found", "", 1),
    ] {
        let line = format!("ratelimit_service_{name}{labels} {value}\n");
        assert!(text.contains(&line), "{line}{}", &text[..3000]);
    }
}

#[test]
fn b96_labels_are_whole_values_with_their_dots() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let scene = Scene::new(
            "domain: shop.example\ndescriptors:\n\
             - {key: ip, detailed_metric: true, policy: fixed-window 5/1m}\n\
             - {key: path, value: /v1.0, descriptors: [\n\
                 {key: plan, value: a.b, rate_limit: {unit: minute, requests_per_unit: 10}}]}\n\
             - {key: path_/v1.0.plan, policy: fixed-window 5/1m}\n",
        );
        let service = Service::new(scene.decider);
        for (count, entries) in [
            (1, &[("ip", "10.0.0.1")][..]),
            (2, &[("ip", "10.0.0.2")]),
            (3, &[("path", "/v1.0"), ("plan", "a.b")]),
            // With its keys joined by dots, this limit would have the name of the previous limit.
            (4, &[("path_/v1.0.plan", "a.b")]),
        ] {
            let request = request("shop.example", vec![hits(entries, count)]);
            block_on(service.should_rate_limit(&request)).unwrap();
        }
    });
    let text = handle.render();
    for (keys, value) in [
        (r#"key1="ip_10.0.0.1""#, 1),
        (r#"key1="ip_10.0.0.2""#, 2),
        (r#"key1="path_/v1.0",key2="plan_a.b""#, 3),
        (r#"key1="path_/v1.0.plan""#, 4),
    ] {
        let labels = format!(r#"domain="shop.example",{keys}"#);
        let line = format!("ratelimit_service_rate_limit_total_hits{{{labels}}} {value}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn hits_that_the_cache_refuses_are_counted_separately() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let Scene { decider, clock } = Scene::new(
            "domain: d\ndescriptors:\n\
             - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n\
             - {key: b, policy: fixed-window 1/1m}\n",
        );
        let service = Service::new(decider.with_deny_cache(&DenyCache::new().clock(clock)));
        for _ in 0..5 {
            for key in ["a", "b"] {
                let request = request("d", vec![descriptor(&[(key, "")])]);
                block_on(service.should_rate_limit(&request)).unwrap();
            }
        }
    });
    let text = handle.render();
    for (name, value) in [("total_hits", 5), ("over_limit", 4), ("over_limit_with_local_cache", 3)]
    {
        for key in ["a", "b"] {
            let labels = format!("{{domain=\"d\",key1=\"{key}\"}}");
            let line = format!("ratelimit_service_rate_limit_{name}{labels} {value}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}

#[test]
fn b46_keys_of_any_length_are_counted_and_long_ones_not_kept() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let config =
            "domain: d\ndescriptors: [{key: v, detailed_metric: true, policy: gcra 9/s burst 9}]";
        let service = Service::new(Scene::new(config).decider);
        for len in [MAX_KEY_BYTES - 4, MAX_KEY_BYTES - 3, 1_000_000] {
            let request = request("d", vec![descriptor(&[("v", &"x".repeat(len))])]);
            block_on(service.should_rate_limit(&request)).unwrap();
        }
    });
    let text = handle.render();
    assert!(text.len() < 20_000, "{}", text.len());
    for (labels, value) in [
        (format!("domain=\"d\",key1=\"v_{}\"", "x".repeat(MAX_KEY_BYTES - 4)), 1),
        ("domain=\"other\",key1=\"other\"".to_owned(), 2),
    ] {
        let line = format!("ratelimit_service_rate_limit_total_hits{{{labels}}} {value}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn what_a_server_in_shadow_would_have_refused_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let mut behaviour = Behaviour::default();
        behaviour.is_shadow = true;
        let config = "domain: d\ndescriptors: [{key: a, policy: fixed-window 0/1m}]";
        let service = Service::new(Scene::with(config, behaviour).decider);
        let request = request("d", vec![descriptor(&[("a", "")])]);
        block_on(service.should_rate_limit(&request)).unwrap();
    });
    assert!(handle.render().contains("ratelimit_service_global_shadow_mode 1\n"));
}
