//! Tests the layers between the server and its Redis: leases (`lease: true`), the deny cache, and
//! the fallback that gives the server a share of each limit while Redis is down.

use serde_json::{Value, json};
use tidegate_core::{Call, Charge, Operation, Policy};
use tidegate_server::store::{StoreSettings, open};
use tidegate_test_servers::Redis;

use crate::http::client::Client;
use crate::page::program::{Server, get, start_with};
use crate::program::settings;
use crate::scene::read;
use tokio::process::Command;

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: policy, lease: true, policy: 'p: fixed-window 100000/365d'}\n\
    - {key: word, policy: 'w: gcra 1000000/365d burst 100000 leased'}\n\
    - {key: count, lease: true, rate_limit: {unit: year, requests_per_unit: 100000}}\n\
    - {key: plain, policy: 'n: fixed-window 100000/365d'}\n\
    - {key: never, lease: false, policy: 'f: fixed-window 100000/365d'}\n";
const REQUESTS: u64 = 1_000;

/// Returns the number of script calls since the previous call of this function, and resets the
/// statistics of Redis.
async fn script_calls(redis: &Redis) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]).await.unwrap().text();
    redis.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
    let count = |command: &str| -> u64 {
        let calls = stats.split(&format!("cmdstat_{command}:calls=")).nth(1);
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    };
    count("eval") + count("evalsha")
}

#[tokio::test]
async fn leased_limits_cost_few_calls_and_their_unspent_costs_return_at_the_end() {
    let redis = Redis::start().await.unwrap();
    let mut server = start_with(CONFIG, |program| {
        program.args(["--store", &redis.url()]);
        // With this span, a lease stays open until the program ends.
        settings(program, "[store]\nlease_span = '1h'");
    })
    .await;
    let mut client = Client::connect(server.json).await;
    for (key, is_leased) in
        [("policy", true), ("word", true), ("count", true), ("plain", false), ("never", false)]
    {
        script_calls(&redis).await;
        for _ in 0..REQUESTS {
            let entry = json!({"key": key, "value": "a"});
            let body = json!({"domain": "d", "descriptors": [{"entries": [entry]}]});
            let answer = client.call("POST", "/json", "", &body.to_string()).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        let calls = script_calls(&redis).await;
        assert_eq!(calls < REQUESTS / 2, is_leased, "{calls} calls for {key}");
    }
    let (_, activity) = get(server.page, "/activity").await;
    let activity: Value = serde_json::from_str(&activity).unwrap();
    let leases = &activity["stores"][0]["leases"];
    assert_eq!(leases["subjects"], 3, "{leases}");
    let numbers = [&leases["local"], &leases["passed"]].map(|number| number.as_u64().unwrap());
    assert_eq!(numbers[0] + numbers[1], 3 * REQUESTS);

    let id = server.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    assert!(server.child.wait().await.unwrap().success());
    let store = open(&redis.url(), &StoreSettings::default()).unwrap();
    for (policy, key) in [
        ("p: fixed-window 100000/365d", "policy"),
        ("rate_limit: fixed-window 100000/365d", "count"),
        ("n: fixed-window 100000/365d", "plain"),
    ] {
        let policy: Policy = policy.parse().unwrap();
        let subject = format!("d|{key}=a");
        let charges = [Charge::new(&policy, &subject).cost(0)];
        let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 100_000 - REQUESTS, "{policy}");
    }
}

const SMALL: &str = "domain: d\ndescriptors: [{key: a, policy: 'p: fixed-window 9/365d'}]";

/// Sends requests to the limit in [`SMALL`], and returns the number of admitted requests.
async fn admitted(server: &Server, requests: usize) -> usize {
    let mut client = Client::connect(server.json).await;
    let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;
    let mut admitted = 0;
    for _ in 0..requests {
        let answer = client.call("POST", "/json", "", body).await;
        assert!([200, 429].contains(&answer.status), "{}", answer.body);
        admitted += usize::from(answer.status == 200);
    }
    admitted
}

#[tokio::test]
async fn refused_requests_cost_no_calls_unless_the_cache_is_off() {
    const REFUSED: usize = 20;
    for (age, of_the_cache) in [("1h", REFUSED), ("0s", 0)] {
        let redis = Redis::start().await.unwrap();
        let server = start_with(SMALL, |program| {
            program.args(["--store", &redis.url()]);
            settings(program, &format!("[store]\ndeny_cache_age = '{age}'"));
        })
        .await;
        assert_eq!(admitted(&server, 10).await, 9);
        assert_eq!(admitted(&server, REFUSED).await, 0);
        let mut client = Client::connect(server.json).await;
        let metrics = client.call("GET", "/metrics", "", "").await.body;
        let line = format!(
            "\nratelimit_service_rate_limit_over_limit_with_local_cache\
             {{domain=\"d\",key1=\"a\"}} {of_the_cache}\n"
        );
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test]
async fn without_the_store_the_server_decides_by_its_share() {
    let server = start_with(SMALL, |program| {
        // No server has this address.
        program.args(["--store", "redis://127.0.0.1:1", "--on-store-error", "share:1/3"]);
    })
    .await;
    assert_eq!(admitted(&server, 20).await, 3);
    let (_, activity) = get(server.page, "/activity").await;
    let activity: Value = serde_json::from_str(&activity).unwrap();
    assert_eq!(activity["on_store_error"], "share:1/3");

    let mut client = Client::connect(server.json).await;
    let mut send = async |route: &str, id: &str| {
        let policy = "slots: concurrent 6 lease 1h";
        let mut body = json!({"policy": policy, "subject": "a", "id": id});
        if route != "/v1/cancel" {
            body["ttl_ms"] = json!(3_600_000);
        }
        let json = "Content-Type: application/json\r\n";
        let answer = client.call("POST", route, json, &body.to_string()).await;
        let fields: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(fields["degraded"], "fell-back", "{route}: {}", answer.body);
        assert_eq!(fields["limit"], 2);
        (answer.status, fields["remaining"].as_u64().unwrap())
    };
    for (route, id, expected) in [
        ("/v1/hold", "1", (200, 1)),
        ("/v1/hold", "2", (200, 0)),
        ("/v1/hold", "3", (429, 0)),
        ("/v1/extend", "1", (200, 0)),
        ("/v1/cancel", "1", (200, 1)),
        ("/v1/hold", "3", (200, 0)),
    ] {
        assert_eq!(send(route, id).await, expected, "{route} {id}");
    }
}

#[test]
fn all_limits_can_be_leased_by_one_setting() {
    let text = "domain: d\ndescriptors:\n\
        - {key: a, policy: 'p: fixed-window 9/1m'}\n\
        - {key: b, rate_limit: {unit: minute, requests_per_unit: 9}}\n\
        - {key: c, lease: false, policy: 'n: fixed-window 9/1m'}\n\
        - {key: e, policy: 'l: sliding-log 9/1m'}\n\
        - {key: f, charge_afterwards: true, policy: 't: fixed-window 9/1m'}\n\
        - {key: g, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}\n\
        - {key: h, descriptors: [{key: i, value: 'x*', policy: gcra 9/1m}]}\n\
        - {key: j, policy: 'q: quota 9/month in UTC'}\n\
        - {key: k, policy: 'c: credits 9'}\n\
        - {key: l, lease: true, policy: 'r: quota 9/month in UTC'}\n";
    let limits: Vec<_> = read(text).unwrap().lease_all().list();
    let limits: Vec<_> = limits.iter().map(|limit| &*limit.limit).collect();
    assert_eq!(
        limits,
        [
            "p: fixed-window 9/1m leased",
            "9 per 1m leased",
            "n: fixed-window 9/1m",
            "l: sliding-log 9/1m",
            "t: fixed-window 9/1m",
            "9 per 1m quota",
            "policy: gcra 9/1m burst 9 leased",
            "q: quota 9/month in UTC",
            "c: credits 9",
            "r: quota 9/month in UTC leased",
        ]
    );
}

#[test]
fn a_limit_that_cannot_be_leased_is_an_error_with_the_reason() {
    for (limit, error) in [
        ("lease: true", "2:24: 'lease' is only possible with a 'rate_limit' or a 'policy'"),
        (
            "lease: 1, policy: gcra 9/1m",
            "2:24: error loading config file: 'lease' is neither true nor false",
        ),
        (
            "lease: true, policy: sliding-log 9/1m",
            "2:24: the limit cannot be leased: with a lease, a sliding window admits its limit in a \
             time shorter than the window",
        ),
        (
            "lease: true, policy: credits 9",
            "2:24: the limit cannot be leased: nothing refills the credits that a crash of the server loses",
        ),
        (
            "policy: fixed-window 9/1m block 1m leased",
            "2:25: the limit cannot be leased: `block` and a lease exclude each other: a refused lease \
             would block the subject",
        ),
        (
            "lease: true, charge_afterwards: true, policy: gcra 9/1m",
            "2:24: the limit cannot be leased: its hits are charged after they have happened",
        ),
        (
            "lease: true, rate_limit: {unlimited: true}",
            "2:24: the limit cannot be leased: it is unlimited",
        ),
        (
            "lease: true, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}",
            "2:24: the limit cannot be leased: a quota refuses no request",
        ),
    ] {
        let text = format!("domain: d\ndescriptors: [{{key: a, {limit}}}]");
        let found = read(&text).unwrap_err().to_string();
        assert!(found.contains(error.split_once(": ").unwrap().1), "{limit}: {found}");
        assert!(found.starts_with("limits.yaml:2:"), "{limit}: {found}");
    }
}
