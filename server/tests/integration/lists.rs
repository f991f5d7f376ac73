//! Lists that allow and deny, in requests of Envoy, in `/v1` and in files.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::{DenyCache, Lists, PolicyLists};
use tidegate_server::envoy::decide::Behaviour;

use crate::http::client::Client;
use crate::json::call;
use crate::program::{program, serving, settings};
use crate::scene::{Scene, descriptor, hits, is_ok, is_over, refund, request};

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: ip, policy: 'ip: fixed-window 1/1m'}\n\
    - {key: counted, rate_limit: {name: ip, unit: minute, requests_per_unit: 1}}\n\
    - {key: refunded, refunds: true, policy: 'ip: fixed-window 1/1m'}\n\
    - {key: other, policy: 'other: fixed-window 4/1m'}\n\
    - {key: used, policy: 'ip: fixed-window 4/1m', charge_afterwards: true}\n\
    - {key: shadow, shadow_mode: true, policy: 'ip: fixed-window 1/1m'}\n\
    - key: user\n  descriptors:\n  - {key: id, policy: 'ip: concurrent 1 lease 30s', hold_id: true}\n";

fn scene(behaviour: Behaviour) -> Scene {
    let Scene { clock, decider } = Scene::with(CONFIG, behaviour);
    let lists = "deny 10.0.0.0/8\nallow 10.0.0.1".parse().unwrap();
    Scene { clock, decider: decider.with_lists(PolicyLists::new().with("ip", lists)) }
}

#[test]
fn a_descriptor_that_a_list_allows_is_counted_beyond_its_limit() {
    let scene = scene(Behaviour::default());
    for key in ["ip", "counted"] {
        for _ in 0..4 {
            let status = scene.status("d", &[(key, "10.0.0.1")]);
            assert!(!is_over(&status), "{key}");
            assert_eq!(
                (status.limit_remaining, status.current_limit.unwrap().requests_per_unit),
                (0, 1)
            );
        }
        // Its tally has no hits over the limit.
        assert_eq!(scene.tally("d", &[(key, "10.0.0.1")]).over, 0);
        assert!(!is_over(&scene.status("d", &[(key, "11.0.0.1")])));
        assert!(is_over(&scene.status("d", &[(key, "11.0.0.1")])));
    }
    for id in ["1", "2", "3"] {
        let slots = [("user", "::ffff:10.0.0.1"), ("id", id)];
        assert!(!is_over(&scene.status_of("d", hits(&slots, 2))));
    }
    for id in ["1", "2", "3"] {
        scene.ask(&request("d", vec![refund(&[("user", "::ffff:10.0.0.1"), ("id", id)], 2)]));
    }
    let free = scene.status_of("d", hits(&[("user", "::ffff:10.0.0.1"), ("id", "4")], 0));
    assert_eq!(free.limit_remaining, 1);
}

/// Quotas refuse a request only if all of them are exceeded, but a list refuses it alone.
#[test]
fn a_list_refuses_a_request_although_another_quota_is_not_exceeded() {
    let mut behaviour = Behaviour::default();
    behaviour.all_are_quotas = true;
    let scene = scene(behaviour);
    let other = [("counted", "203.0.113.9")];
    for (value, passes) in [("10.0.0.2", false), ("203.0.113.8", true)] {
        let both = [&[("counted", value)][..], &other];
        assert_eq!(scene.passes("d", &both), passes, "{value}");
    }
}

#[test]
fn a_descriptor_that_a_list_denies_is_refused_and_the_other_policies_are_not_charged() {
    let scene = scene(Behaviour::default());
    for entries in [
        &[("ip", "10.0.0.2")][..],
        &[("counted", "10.0.0.2")],
        &[("user", "10.0.0.2"), ("id", "7")],
    ] {
        for _ in 0..3 {
            let other = descriptor(&[("other", "")]);
            let response = scene.ask(&request("d", vec![other, descriptor(entries)]));
            assert!(!is_ok(&response), "{entries:?}");
            let [other, denied] = &response.statuses[..] else { panic!() };
            assert!(!is_over(other) && other.limit_remaining == 4, "{other:?}");
            assert!(is_over(denied) && denied.duration_until_reset.is_none(), "{denied:?}");
            // A request without hits is refused too.
            assert!(is_over(&scene.status_of("d", hits(entries, 0))), "{entries:?}");
        }
    }
    let tally = scene.tally("d", &[("counted", "10.0.0.2")]);
    assert_eq!((tally.over, tally.within), (1, 0));
    // Hits that have already happened are charged.
    assert_eq!(scene.status_of("d", hits(&[("used", "10.0.0.2")], 3)).limit_remaining, 1);
    assert!(is_over(&scene.status_of("d", hits(&[("used", "10.0.0.2")], 0))));
    assert!(!is_over(&scene.status("d", &[("shadow", "10.0.0.2")])));
}

/// The hits of a denied request were never charged, so a refund gives nothing back.
#[test]
fn the_hits_that_a_list_denies_are_not_refunded() {
    for key in ["refunded", "counted"] {
        let lists = PolicyLists::new();
        let Scene { clock, decider } = Scene::new(CONFIG);
        let scene = Scene { clock, decider: decider.with_lists(lists.clone()) };
        let entries = [(key, "10.0.0.2")];
        assert!(!is_over(&scene.status("d", &entries)), "{key}");
        lists.replace([("ip".to_owned(), "deny 10.0.0.2".parse().unwrap())]);
        for others in [vec![], vec![descriptor(&[("other", "")])]] {
            let mut descriptors = vec![descriptor(&entries)];
            descriptors.extend(others);
            assert!(!is_ok(&scene.ask(&request("d", descriptors))), "{key}");
            scene.ask(&request("d", vec![refund(&entries, 1)]));
        }
        lists.replace([("ip".to_owned(), Lists::new())]);
        assert!(is_over(&scene.status("d", &entries)), "{key}");
    }
}

#[test]
fn all_or_none_decides_by_the_lists_too() {
    let mut behaviour = Behaviour::default();
    behaviour.all_or_none = true;
    let scene = scene(behaviour);
    for _ in 0..3 {
        assert!(scene.passes("d", &[&[("counted", "10.0.0.1")]]));
        assert!(!scene.passes("d", &[&[("counted", "10.0.0.2")]]));
    }
}

#[test]
fn a_cached_denial_has_the_same_statuses_also_for_a_descriptor_that_a_list_allows() {
    for only_policies in [false, true] {
        let Scene { clock, decider } = scene(Behaviour::default());
        let cache = DenyCache::new().clock(clock.clone());
        let decider = match only_policies {
            true => decider.with_deny_cache_for_policies(cache),
            false => decider.with_deny_cache(&cache),
        };
        let scene = Scene { clock, decider };
        let both = vec![descriptor(&[("ip", "10.0.0.1")]), descriptor(&[("other", "")])];
        let both = request("d", both);
        for _ in 0..4 {
            assert!(is_ok(&scene.ask(&both)));
        }
        let denied = scene.ask(&both);
        assert!(!is_ok(&denied));
        for _ in 0..3 {
            assert_eq!(scene.ask(&both).statuses, denied.statuses);
        }
    }
}

async fn take(address: SocketAddr, subject: &str) -> (u16, String) {
    let body = format!(r#"{{"policy": "ip: fixed-window 1/365d", "subject": "{subject}"}}"#);
    let mut client = Client::connect(address).await;
    let fields = "Content-Type: application/json\r\n";
    let answer = client.call("POST", "/v1/acquire", fields, &body).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn the_program_reads_lists_again_and_keeps_the_last_valid_version() {
    let directory = tempfile::tempdir().unwrap();
    let (limits, lists) = (directory.path().join("limits"), directory.path().join("lists"));
    fs::create_dir(&limits).unwrap();
    fs::create_dir(&lists).unwrap();
    fs::write(lists.join("ip.txt"), "deny 10.0.0.0/8\nallow 10.0.0.1\n").unwrap();
    let mut program = program();
    let text = format!(
        "[limits]\ndirectory = {limits:?}\nlists = {lists:?}\n[http]\nwithout_password = true\n"
    );
    settings(&mut program, &text);
    let (_child, address) = serving(program).await;
    for _ in 0..3 {
        assert_eq!(take(address, "10.0.0.1").await.0, 200);
        let (status, body) = take(address, "10.0.0.2").await;
        assert_eq!(status, 429);
        assert!(
            body.contains(r#""outcome":"deny-listed""#)
                && body.contains(r#""retry_after_ms":null"#),
            "{body}"
        );
    }
    // A file that is not valid changes nothing.
    fs::write(lists.join("ip.txt"), "deny 10.0.0.0/33\n").unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(take(address, "10.0.0.2").await.0, 429);
    fs::write(lists.join("ip.txt"), "deny subject x\n").unwrap();
    let mut is_changed = false;
    for _ in 0..100 {
        is_changed = take(address, "10.0.0.2").await.0 == 200;
        if is_changed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_changed);
    assert_eq!(take(address, "x").await.0, 429);
    let metrics = call(address, "GET", "/metrics", "").await.1;
    assert!(metrics.contains(r#"tidegate_listed_total{policy="ip",list="allow"} 3"#), "{metrics}");
}

#[tokio::test]
async fn lists_that_are_not_valid_stop_the_start_and_the_check() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("ip.txt"), "deny 10.0.0.1/8").unwrap();
    for arguments in [&["check"][..], &[]] {
        let mut program = program();
        program.args(arguments);
        let lists = directory.path();
        settings(&mut program, &format!("[limits]\ndirectory = {lists:?}\nlists = {lists:?}\n"));
        program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
        let output = program.output().await.unwrap();
        assert!(!output.status.success());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.contains("ip.txt: line 1: the address `10.0.0.1` has bits after"),
            "{stderr}"
        );
    }
}
