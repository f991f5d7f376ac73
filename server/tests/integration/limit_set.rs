//! Limit sets, in requests of Envoy, in RESP and `/v1`, in files and in the store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Answer, CurrentLimits, Error, LimitSet, OverrideSource, Timestamp};
use tidegate_server::envoy::decide::Behaviour;
use tidegate_test_servers::{Redis, eventually};
use tokio::process::Child;

use crate::http::client::Client;
use crate::json::call;
use crate::page::program::{Server, get, start_with};
use crate::program::{program, serving, settings};
use crate::scene::{Scene, hits, is_over, refund, request};

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: plan, policy: 'plan: fixed-window 2/1h'}\n\
    - {key: named, name: plan, policy: 'own: gcra 2/1h burst 2'}\n\
    - {key: counted, rate_limit: {name: plan, unit: hour, requests_per_unit: 2}}\n\
    - {key: used, policy: 'plan: fixed-window 2/1h', charge_afterwards: true}\n\
    - {key: shadow, shadow_mode: true, policy: 'plan: fixed-window 2/1h'}\n\
    - {key: quota, quota_mode: true, rate_limit: {name: plan, unit: hour, requests_per_unit: 2}}\n\
    - {key: unlimited, rate_limit: {name: plan, unlimited: true}}\n\
    - key: user\n  descriptors:\n  - {key: id, name: slots, policy: 'jobs: concurrent 1 lease 30s', hold_id: true}\n";

fn scene(limits: &CurrentLimits) -> Scene {
    let Scene { clock, decider } = Scene::with(CONFIG, Behaviour::default());
    Scene { clock, decider: decider.with_limits(limits.clone()) }
}

/// Returns the limit and the remaining hits of a descriptor, and whether it is over the limit,
/// after one hit.
fn hit(scene: &Scene, key: &str, value: &str) -> (u32, u32, bool) {
    let status = scene.status("d", &[(key, value)]);
    let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    (limit, status.limit_remaining, is_over(&status))
}

#[test]
fn an_override_replaces_the_limit_of_each_kind_and_keeps_the_usage() {
    let limits = CurrentLimits::default();
    let scene = scene(&limits);
    for (key, rule) in [
        ("plan", "fixed-window 4/1h"),
        ("named", "gcra 4/1h burst 4"),
        ("counted", "fixed-window 4/1h"),
        ("used", "fixed-window 4/1h"),
    ] {
        limits.replace("".parse().unwrap());
        assert_eq!(hit(&scene, key, "alice"), (2, 1, false), "{key}");
        limits.replace(format!("plan: {rule} for subject alice").parse().unwrap());
        assert_eq!(hit(&scene, key, "alice"), (4, 2, false), "{key}");
        assert_eq!(hit(&scene, key, "bob"), (2, 1, false), "{key}");
        for _ in 0..2 {
            assert!(!hit(&scene, key, "alice").2, "{key}");
        }
        let status =
            scene.status_of("d", hits(&[(key, "alice")], if key == "used" { 0 } else { 1 }));
        assert!(is_over(&status), "{key}");
    }
    limits.replace("plan: fixed-window 4/1h".parse().unwrap());
    for _ in 0..5 {
        assert!(!hit(&scene, "shadow", "alice").2);
        assert!(!is_over(&scene.status("d", &[("unlimited", "alice")])));
    }
    assert_eq!(hit(&scene, "quota", "alice").0, 4);
    // A quota cannot have another window, because it counts all hits.
    limits.replace("plan: fixed-window 4/1m".parse().unwrap());
    assert_eq!(hit(&scene, "quota", "alice").0, 2);
}

/// Returns all lines, as a server with the limit set does.
#[derive(Debug)]
struct Source(LimitSet);

impl OverrideSource for Source {
    fn read<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Result<Vec<String>, Error>> {
        let lines = self.0.lines();
        Answer::ready(Ok(keys.iter().map(|key| lines[key].clone()).collect()))
    }
}

#[test]
fn an_override_that_is_not_in_memory_is_loaded() {
    let limits = CurrentLimits::default();
    let scene = scene(&limits);
    let text: String = (0..9).fold(String::new(), |text, number| {
        text + &format!("plan: fixed-window {}/1h for subject s{number}\n", number + 10)
    });
    let mut set = LimitSet::new().with_max_loaded(NonZeroUsize::MIN);
    text.lines().for_each(|line| drop(set.set_line(line).unwrap()));
    limits.replace_partly(set, Arc::new(Source(text.parse().unwrap())));
    for number in 0..9 {
        let limit = number + 10;
        assert_eq!(hit(&scene, "plan", &format!("s{number}")), (limit, limit - 1, false));
    }
    assert_eq!(hit(&scene, "plan", "bob"), (2, 1, false));
    // A request that needs several.
    let all =
        scene.ask(&request("d", vec![hits(&[("plan", "s3")], 1), hits(&[("used", "s4")], 1)]));
    let all: Vec<_> =
        all.statuses.iter().filter_map(|status| status.current_limit.as_ref()).collect();
    assert_eq!(all.iter().map(|limit| limit.requests_per_unit).collect::<Vec<_>>(), [13, 14]);
}

#[test]
fn a_rate_limit_with_another_window_decides_as_a_policy() {
    let limits = CurrentLimits::default();
    let scene = scene(&limits);
    limits.replace("plan: sliding-log 3/2h".parse().unwrap());
    for remaining in [2, 1, 0] {
        assert_eq!(hit(&scene, "counted", "alice"), (3, remaining, false));
    }
    assert!(hit(&scene, "counted", "alice").2);
}

/// The setting for all limits makes each `rate_limit:` a quota, like `quota_mode` of a descriptor.
#[test]
fn a_quota_by_the_setting_for_all_limits_decides_as_a_quota() {
    let limits = CurrentLimits::default();
    let mut behaviour = Behaviour::default();
    behaviour.all_are_quotas = true;
    behaviour.all_or_none = true;
    let Scene { clock, decider } = Scene::with(CONFIG, behaviour);
    let scene = Scene { clock, decider: decider.with_limits(limits.clone()) };
    limits.replace("plan: fixed-window 4/1m".parse().unwrap());
    assert_eq!(hit(&scene, "counted", "alice").0, 2);
    let both = [&[("counted", "alice")][..], &[("counted", "bob")]];
    for _ in 0..3 {
        scene.status("d", both[0]);
    }
    // The quota of alice is exceeded, and the quota of bob is not.
    assert!(scene.passes("d", &both));
}

#[test]
fn a_refund_reaches_the_state_of_the_override() {
    let limits = CurrentLimits::default();
    let scene = scene(&limits);
    // The override has its own state, because it has another algorithm.
    limits.replace("plan: sliding-log 4/1h for subject alice".parse().unwrap());
    for _ in 0..3 {
        assert!(!hit(&scene, "used", "alice").2);
    }
    scene.ask(&request("d", vec![refund(&[("used", "alice")], 2)]));
    let status = scene.status_of("d", hits(&[("used", "alice")], 0));
    assert_eq!(status.limit_remaining, 3);
    // A `rate_limit:` accepts refunds with any policy, but not of hits that were refused.
    for _ in 0..3 {
        assert!(!hit(&scene, "counted", "alice").2);
    }
    assert!(is_over(&scene.status_of("d", hits(&[("counted", "alice")], 2))));
    scene.ask(&request("d", vec![refund(&[("counted", "alice")], 3)]));
    let status = scene.status_of("d", hits(&[("counted", "alice")], 0));
    assert_eq!(status.limit_remaining, 2);
}

#[test]
fn slots_have_overrides_of_slots_only() {
    let limits = CurrentLimits::default();
    let scene = scene(&limits);
    let take = |id: &str| is_over(&scene.status_of("d", hits(&[("user", "alice"), ("id", id)], 1)));
    limits.replace("slots: concurrent 2 lease 30s for subject alice".parse().unwrap());
    assert!(!take("1"));
    assert!(!take("2"));
    assert!(take("3"));
    // The slots are freed after their limit has changed again.
    limits.replace("slots: fixed-window 9/1h".parse().unwrap());
    for id in ["1", "2"] {
        scene.ask(&request("d", vec![refund(&[("user", "alice"), ("id", id)], 1)]));
    }
    assert!(!take("4"));
    assert!(take("5"));
}

#[test]
fn a_request_uses_one_version_and_an_override_ends() {
    let limits = CurrentLimits::default();
    let scene = scene(&limits);
    let set = "plan: fixed-window 9/1h until 2030-01-01T00:00:00Z for subject alice";
    limits.replace(set.parse().unwrap());
    assert_eq!(hit(&scene, "plan", "alice").0, 9);
    limits.synchronize(Timestamp::from_micros(1_893_456_000_000_000));
    assert_eq!(hit(&scene, "plan", "alice").0, 2);
}

/// Returns the limit of a subject under the policy `plan`, whose limit is 1 without a limit set.
async fn limit(address: SocketAddr, subject: &str) -> u64 {
    let body = format!(r#"{{"policy": "plan: fixed-window 1/365d", "subject": "{subject}"}}"#);
    let mut client = Client::connect(address).await;
    let fields = "Content-Type: application/json\r\n";
    let answer = client.call("POST", "/v1/peek", fields, &body).await.body;
    let limit = answer.split_once(r#""limit":"#).and_then(|(_, rest)| rest.split_once(','));
    limit.unwrap_or_else(|| panic!("{answer}")).0.parse().unwrap()
}

/// Starts a server with a limit set in a file. Returns the process, the address of its HTTP
/// listener, and the path of the file.
async fn serving_set(directory: &Path, text: &str) -> (Child, SocketAddr, PathBuf) {
    let (limits, set) = (directory.join("limits"), directory.join("limits.txt"));
    fs::create_dir(&limits).unwrap();
    fs::write(&set, text).unwrap();
    let mut program = program();
    let text = format!(
        "[limits]\ndirectory = {limits:?}\nlimit_set = {set:?}\n[http]\nwithout_password = true\n"
    );
    settings(&mut program, &text);
    let (child, address) = serving(program).await;
    (child, address, set)
}

#[tokio::test]
async fn the_maximum_hold_is_that_of_the_set() {
    let directory = tempfile::tempdir().unwrap();
    let set = "t: fixed-window 1000/365d max-hold 1/2 for subject alice\n";
    let (_child, address, _) = serving_set(directory.path(), set).await;
    let hold = async |subject: &str, cost: u64, more: &str| {
        let policy = "t: fixed-window 100/365d max-hold 1/2";
        let id = format!("{subject} {cost}");
        let body = format!(
            r#"{{"policy":"{policy}","subject":"{subject}","cost":{cost},"id":"{id}","ttl_ms":60000{more}}}"#
        );
        let fields = "Content-Type: application/json\r\n";
        Client::connect(address).await.call("POST", "/v1/hold", fields, &body).await.body
    };
    for (subject, max) in [("alice", 500), ("bob", 50)] {
        let refused = hold(subject, max + 1, "").await;
        let limit = format!(r#""outcome":"too-large","limit":{}"#, 2 * max);
        assert!(refused.contains(&limit), "{refused}");
        let refused = hold(subject, 9_000, &format!(r#","min":{}"#, max + 1)).await;
        assert!(refused.contains(&limit), "{refused}");
        let up_to = hold(subject, 9_000, r#","min":1"#).await;
        assert!(up_to.contains(&format!(r#""amount":{max}"#)), "{up_to}");
        let held = hold(subject, max, "").await;
        assert!(held.contains(r#""outcome":"allowed""#), "{held}");
    }
}

#[tokio::test]
async fn the_program_reads_the_set_again_and_keeps_the_last_valid_version() {
    let directory = tempfile::tempdir().unwrap();
    let set = "plan: fixed-window 3/365d for subject alice\n";
    let (_child, address, set) = serving_set(directory.path(), set).await;
    assert_eq!(limit(address, "alice").await, 3);
    assert_eq!(limit(address, "bob").await, 1);
    // A file that is not valid changes nothing.
    fs::write(&set, "plan: fixed-window 0/365d for\n").unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(limit(address, "alice").await, 3);
    fs::write(&set, "plan: fixed-window 7/365d\n").unwrap();
    let mut is_changed = false;
    for _ in 0..100 {
        is_changed = limit(address, "bob").await == 7;
        if is_changed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_changed);
}

#[tokio::test]
async fn a_set_that_is_not_valid_stops_the_start_and_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let set = directory.path().join("limits.txt");
    fs::write(&set, "\nplan: gcra 1/s for alice").unwrap();
    for arguments in [&["check"][..], &[]] {
        let mut program = program();
        program.args(arguments);
        let folder = directory.path();
        settings(&mut program, &format!("[limits]\ndirectory = {folder:?}\nlimit_set = {set:?}\n"));
        program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
        let output = program.output().await.unwrap();
        assert!(!output.status.success());
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            message.contains("limits.txt: line 2: `alice` follows `for`; it must be"),
            "{message}"
        );
    }
}

/// Runs `tidegate-server limits` on a store. Returns the standard output, or the standard error if
/// the command fails.
async fn limits(store: &str, arguments: &[&str]) -> Result<String, String> {
    let output = program()
        .args(["limits", "--store", store])
        .args(arguments)
        .env("USER", "carol")
        .output()
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[tokio::test]
async fn servers_follow_the_set_in_the_store_that_the_commands_change() {
    let redis = Redis::start().await.unwrap();
    let store = redis.url();
    let directory = tempfile::tempdir().unwrap();
    let (limits_of_envoy, set) = (directory.path().join("limits"), directory.path().join("l.txt"));
    fs::create_dir(&limits_of_envoy).unwrap();
    let run = async |arguments: &[&str]| limits(&store, arguments).await;

    fs::write(&set, "plan: fixed-window 3/365d\nplan: fixed-window 5/365d for subject alice")
        .unwrap();
    let set_path = set.to_str().unwrap();
    let reason = ["--reason", "a test"];
    let dry = run(&["set", set_path, "--dry-run", "--reason", "x"]).await.unwrap();
    assert!(dry.ends_with("+ plan: fixed-window 5/365d for subject alice\nnothing was changed\n"));
    assert_eq!(run(&["show"]).await.unwrap(), "# version 0\n");
    let made = run(&[&["set", set_path][..], &reason].concat()).await.unwrap();
    assert!(made.ends_with("for subject alice\nversion 1\n"), "{made}");

    // A server that starts now has the set when it serves.
    let text = format!(
        "[store]\nurl = {store:?}\n[limits]\ndirectory = {limits_of_envoy:?}\nlimit_set = \"store\"\n\
         [http]\nwithout_password = true\n"
    );
    let (mut first, mut second) = (program(), program());
    settings(&mut first, &text);
    // The second server has at most one override in memory.
    settings(&mut second, &text.replace("[http]", "max_overrides = 1\n[http]"));
    let ((_one, first), (_two, second)) = (serving(first).await, serving(second).await);
    assert_eq!(limit(first, "alice").await, 5);
    assert_eq!(limit(second, "bob").await, 3);

    let policy = "plan: fixed-window 8/365d";
    let made = run(&["override", policy, "--subject", "bob", "--for", "1h", "--reason", "x"]).await;
    assert!(made.unwrap().ends_with("Z for subject bob\nversion 2\n"));
    for server in [first, second] {
        eventually(Duration::from_secs(20), "version 2", async || {
            (limit(server, "bob").await == 8).then_some(())
        })
        .await
        .unwrap();
        for (subject, expected) in [("alice", 5), ("bob", 8), ("alice", 5), ("carol", 3)] {
            assert_eq!(limit(server, subject).await, expected);
        }
    }
    let metrics = call(second, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("tidegate_server_limit_set_version 2"), "{metrics}");
    assert!(metrics.contains("tidegate_server_limit_set_unread_seconds 0"), "{metrics}");

    assert_eq!(run(&["list"]).await.unwrap(), "plan: fixed-window 3/365d (2 overrides)\n");
    let removed = run(&["remove", "plan", "--subject", "alice", "--reason", "x"]).await.unwrap();
    assert_eq!(removed, "- plan: fixed-window 5/365d for subject alice\nversion 3\n");
    let error = run(&["remove", "plan", "--subject", "alice", "--reason", "x"]).await.unwrap_err();
    assert!(error.contains("the limit set has no `plan for subject alice`"), "{error}");
    let error = run(&["override", "plan: gcra 0/1d", "--reason", "x"]).await.unwrap_err();
    assert!(error.contains("the rate is 0; it must be at least 1"), "{error}");
    let back = run(&["rollback", "1", "--author", "dave", "--reason", "oh no"]).await.unwrap();
    assert!(
        back.ends_with("version 4\n") && back.contains("+ plan: fixed-window 5/365d"),
        "{back}"
    );
    let shown = run(&["show"]).await.unwrap();
    let expected =
        "# version 4\nplan: fixed-window 3/365d\nplan: fixed-window 5/365d for subject alice\n";
    assert_eq!(shown, expected);
    let history = run(&["history", "--last", "2"]).await.unwrap();
    assert!(
        history.starts_with("version 3, 20") && history.contains(", carol: x\n- plan"),
        "{history}"
    );
    assert!(
        history.contains("\nversion 4, 20") && history.contains(", dave: oh no\n"),
        "{history}"
    );

    // While the set is not valid, the last version stays in force, and a health check says so.
    eventually(Duration::from_secs(20), "version 4", async || {
        let metrics = call(first, "GET", "/metrics", "").await.1;
        metrics.contains("tidegate_server_limit_set_version 4").then_some(())
    })
    .await
    .unwrap();
    let health = async |expected: &str| {
        eventually(Duration::from_secs(20), expected, async || {
            let (status, text) = call(first, "GET", "/healthcheck", "").await;
            assert_eq!(status, 200, "{text}");
            text.starts_with(expected).then_some(text)
        })
        .await
        .unwrap()
    };
    assert_eq!(health("OK").await, "OK");
    let keys = redis.command(&["KEYS", "*%limits:{limits}"]).await.unwrap();
    let key = keys.list()[0].text();
    let version = redis.command(&["HGET", &key, "%version"]).await.unwrap().text();
    redis.command(&["HSET", &key, "%version", "broken"]).await.unwrap();
    let text = health("OK\nversion 4 of the limit set stays in force: ").await;
    assert!(text.contains("`broken`"), "{text}");
    assert_eq!(limit(first, "alice").await, 5);
    redis.command(&["HSET", &key, "%version", &version]).await.unwrap();
    eventually(Duration::from_secs(20), "the newest version", async || {
        let text = call(first, "GET", "/healthcheck", "").await.1;
        (text == "OK").then_some(())
    })
    .await
    .unwrap();

    // The same applies while the store is away.
    redis.stop().await.unwrap();
    eventually(Duration::from_secs(20), "the metric", async || {
        let metrics = call(first, "GET", "/metrics", "").await.1;
        let unread = metrics
            .lines()
            .find_map(|line| line.strip_prefix("tidegate_server_limit_set_unread_seconds "));
        unread.filter(|seconds| seconds.parse::<f64>().unwrap() > 0.0).map(drop)
    })
    .await
    .unwrap();
    let error = run(&["show"]).await.unwrap_err();
    assert!(error.starts_with("tidegate-server: "), "{error}");
}

/// Writes a program with the name `tidegate` that prints its arguments and the two limit sets. The
/// tests of `tidegate replay` use the same options.
fn replay_in(folder: &Path, code: u8) {
    let text = format!("#!/bin/sh\necho \"$@\"\n/bin/cat \"$3\" \"$5\"\nexit {code}\n");
    let path = folder.join("tidegate");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_set_is_tried_on_a_log_before_it_is_set() {
    let redis = Redis::start().await.unwrap();
    let store = redis.url();
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("limits.txt");
    let set_path = set.to_str().unwrap();
    let try_it = async |path: &Path| {
        let mut program = program();
        program.args(["limits", "--store", &store, "set", set_path, "--reason", "x"]);
        program.args(["--try", "access.log", "--try-by", "user"]).env("PATH", path);
        let output = program.output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let path = folder.path().join("bin");
    fs::create_dir(&path).unwrap();
    replay_in(&path, 0);
    fs::write(&set, "plan: gcra 1/s").unwrap();
    let (is_done, printed, _) = try_it(&path).await;
    assert!(is_done && printed.ends_with("version 1\n"), "{printed}");
    fs::write(&set, "plan: gcra 2/s").unwrap();
    let (is_done, printed, _) = try_it(&path).await;
    let mut lines = printed.lines();
    let arguments: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let expected =
        ["replay", "--limit-set", "--limit-set-before", "--by", "user", "--", "access.log"];
    let is_file = |word: &&&str| word.ends_with("before.txt") || word.ends_with("after.txt");
    let options: Vec<&str> = arguments.iter().filter(|word| !is_file(word)).copied().collect();
    assert_eq!(options, expected);
    let rest: Vec<&str> = lines.collect();
    let [after, before] = ["plan: gcra 2/1s burst 2", "plan: gcra 1/1s burst 1"];
    assert_eq!(rest[..2], [after, before], "{printed}");
    assert!(is_done && printed.ends_with("version 2\n"), "{printed}");

    // If the replay fails, nothing is changed.
    replay_in(&path, 1);
    fs::write(&set, "plan: gcra 3/s").unwrap();
    let (is_done, _, error) = try_it(&path).await;
    assert!(!is_done && error.contains("nothing was changed"), "{error}");
    assert_eq!(limits(&store, &["show"]).await.unwrap(), format!("# version 2\n{after}\n"));
}

#[tokio::test]
async fn a_store_in_memory_keeps_no_set() {
    let error = limits("memory", &["show"]).await.unwrap_err();
    assert!(error.contains("the store is `memory`, which cannot keep a limit set"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let mut program = program();
    let folder = directory.path();
    settings(&mut program, &format!("[limits]\ndirectory = {folder:?}\nlimit_set = \"store\"\n"));
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    let output = program.output().await.unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("limits.limit_set is `store`, but store.url is `memory`"),
        "{message}"
    );
}

/// A client of `/limits`.
struct Admin {
    address: SocketAddr,
    fields: String,
}

impl Admin {
    fn new(address: SocketAddr, token: &str) -> Self {
        let fields = format!(
            "Authorization: Bearer {token}\r\nTidegate-Author: erin\r\nTidegate-Reason: a test\r\n"
        );
        Self { address, fields }
    }

    /// Sends a request with further fields. Returns the status, the field `ETag` and the body.
    async fn send(
        &self,
        method: &str,
        path: &str,
        more: &str,
        body: &str,
    ) -> (u16, String, String) {
        let mut client = Client::connect(self.address).await;
        let answer = client.call(method, path, &format!("{}{more}", self.fields), body).await;
        let tag = answer.field("etag").unwrap_or_default().to_owned();
        (answer.status, tag, answer.body)
    }
}

#[tokio::test]
async fn clients_with_a_token_show_and_change_the_set() {
    let redis = Redis::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("token");
    fs::write(&token_file, "writer\n").unwrap();
    let text = format!(
        "[store]\nurl = {:?}\n[limits]\nlimit_set = \"store\"\n\
         [page]\nlimits_read_token = \"reader\"\nlimits_write_token_file = {token_file:?}\n",
        redis.url(),
    );
    let Server { page, child: _child, .. } =
        start_with(CONFIG, |program| settings(program, &text)).await;
    let (reader, writer) = (Admin::new(page, "reader"), Admin::new(page, "writer"));
    let stranger = Admin::new(page, "stranger");

    for (method, path) in [
        ("GET", "/limits"),
        ("GET", "/limits/history"),
        ("PUT", "/limits"),
        ("PATCH", "/limits"),
        ("POST", "/limits/rollback/1"),
    ] {
        assert_eq!(stranger.send(method, path, "", "").await.0, 401, "{method} {path}");
        let may_read = method == "GET";
        assert_eq!(reader.send(method, path, "", "").await.0 == 401, !may_read, "{method} {path}");
    }
    let (status, tag, body) = writer.send("GET", "/limits", "", "").await;
    assert_eq!((status, &*tag, &*body), (200, "\"0-0\"", ""));

    let set = "plan: fixed-window 3/1d\nplan: fixed-window 5/1d for subject alice\n";
    let (status, _, body) = writer.send("PUT", "/limits", "", set).await;
    assert_eq!(status, 428, "{body}");
    let if_match = |tag: &str| format!("If-Match: {tag}\r\n");
    let (status, _, body) = writer.send("PUT", "/limits", &if_match(&tag), set).await;
    assert_eq!((status, &*body), (200, "version 1\n"));
    let (status, _, body) = writer.send("PUT", "/limits", &if_match(&tag), set).await;
    assert_eq!(status, 412, "{body}");
    let (_, tag, body) = reader.send("GET", "/limits", "", "").await;
    assert_eq!(body, set);

    let change = "- plan: gcra 1/s for subject alice\n+ plan: fixed-window 4/1d for subject bob\n";
    let (status, _, body) = writer.send("PATCH", "/limits", &if_match(&tag), change).await;
    assert_eq!((status, &*body), (200, "version 2\n"));
    let (status, _, body) = writer.send("PATCH", "/limits", "", change).await;
    assert_eq!((status, &*body), (400, "line 1: the limit set has no such limit\n"));
    for (change, message) in [
        ("plan: gcra 1/s", "line 1: it must begin with `+` or `-`\n"),
        (
            "\n+ plan: gcra 1/s for bob",
            "line 2: `bob` follows `for`; it must be `tenant` or `subject`\n",
        ),
    ] {
        let (status, _, body) = writer.send("PATCH", "/limits", "", change).await;
        assert_eq!((status, &*body), (400, message));
    }
    assert_eq!(writer.send("POST", "/limits/rollback/1", "", "").await.2, "version 3\n");
    assert_eq!(writer.send("POST", "/limits/rollback/9", "", "").await.0, 400);
    assert_eq!(writer.send("POST", "/limits/rollback/x", "", "").await.0, 400);
    assert_eq!(reader.send("GET", "/limits", "", "").await.2, set);
    let history = reader.send("GET", "/limits/history", "", "").await.2;
    assert!(
        history.starts_with("version 1\ntime ") && history.contains("author erin\n"),
        "{history}"
    );

    let nameless = Admin { address: page, fields: "Authorization: Bearer writer\r\n".into() };
    let (status, _, body) = nameless.send("PATCH", "/limits", "", "+ plan: gcra 1/s").await;
    assert_eq!((status, body.contains("`tidegate-author` is missing")), (400, true), "{body}");
    // The page itself needs no token. It shows the version.
    eventually(Duration::from_secs(20), "version 3", async || {
        let (status, activity) = get(page, "/activity").await;
        assert_eq!(status, 200);
        activity.contains(r#""limit_set_version":3"#).then_some(())
    })
    .await
    .unwrap();
    redis.stop().await.unwrap();
    assert_eq!(writer.send("GET", "/limits", "", "").await.0, 503);
    eventually(Duration::from_secs(20), "the problem", async || {
        let problem = "The limit set cannot be updated, and version 3 stays in force";
        get(page, "/activity").await.1.contains(problem).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_change_of_single_limits_does_not_read_the_others() {
    let redis = Redis::start().await.unwrap();
    let store = redis.url();
    let text = format!("[store]\nurl = {store:?}\n[page]\nlimits_write_token = \"writer\"\n");
    let Server { page, child: _child, .. } =
        start_with(CONFIG, |program| settings(program, &text)).await;
    let writer = Admin::new(page, "writer");
    let run = async |arguments: &[&str]| limits(&store, arguments).await;

    // If a command reads this limit, it fails.
    let others = ["HSET", "tidegate:%limits:{limits}", "plan for subject zoe", "nonsense"];
    redis.command(&others).await.unwrap();
    assert!(run(&["show"]).await.unwrap_err().contains("`plan for subject zoe`"));
    assert_eq!(writer.send("GET", "/limits", "", "").await.0, 503);

    let alice = ["--subject", "alice", "--reason", "x"];
    let made = run(&[&["override", "plan: gcra 2/1s burst 1"], &alice[..]].concat()).await;
    assert_eq!(made.unwrap(), "+ plan: gcra 2/1s burst 1 for subject alice\nversion 1\n");
    let change = "+ plan: gcra 3/1s burst 1 for subject alice\n+ plan: gcra 4/1s for subject bob";
    let (status, tag, body) = writer.send("PATCH", "/limits", "", change).await;
    assert_eq!((status, &*tag, &*body), (200, "", "version 2\n"));
    let (status, _, body) = writer.send("PATCH", "/limits", "If-Match: \"1-0\"\r\n", change).await;
    assert_eq!(status, 412, "{body}");
    let made = run(&[&["remove", "plan"], &alice[..]].concat()).await;
    assert_eq!(made.unwrap(), "- plan: gcra 3/1s burst 1 for subject alice\nversion 3\n");
    let history = run(&["history"]).await.unwrap();
    let lines = "- plan: gcra 2/1s burst 1 for subject alice\n\
                 + plan: gcra 3/1s burst 1 for subject alice\n\
                 + plan: gcra 4/1s burst 4 for subject bob\n";
    assert!(history.contains(lines), "{history}");
    let back = run(&["rollback", "1", "--reason", "x"]).await.unwrap();
    let lines = "- plan: gcra 4/1s burst 4 for subject bob\nversion 4\n";
    assert_eq!(back, format!("+ plan: gcra 2/1s burst 1 for subject alice\n{lines}"));
    assert_eq!(writer.send("POST", "/limits/rollback/0", "", "").await.2, "version 5\n");
    let missing = run(&[&["remove", "plan"], &alice[..]].concat()).await.unwrap_err();
    assert!(missing.contains("the limit set has no `plan for subject alice`"), "{missing}");

    // An override that has already ended would only remove the override that is in force.
    let past = ["override", "plan: gcra 9/1s", "--until", "2020-01-01T00:00:00Z"];
    let error = run(&[&past[..], &alice[..]].concat()).await.unwrap_err();
    assert!(error.contains("the override ends at 2020-01-01T00:00:00Z; it must"), "{error}");
    let change = "+ plan: gcra 9/1s until 2020-01-01T00:00:00Z for subject bob";
    let (status, _, body) = writer.send("PATCH", "/limits", "", change).await;
    assert_eq!(status, 400, "{body}");
    assert!(body.starts_with("line 1: "), "{body}");
    let history = run(&["history"]).await.unwrap();
    assert!(history.contains("version 5, ") && !history.contains("version 6, "), "{history}");
}

#[tokio::test]
async fn without_tokens_no_client_can_see_the_set() {
    let redis = Redis::start().await.unwrap();
    let text = format!("[store]\nurl = {:?}\n[limits]\nlimit_set = \"store\"\n", redis.url());
    let Server { page, child: _child, .. } =
        start_with(CONFIG, |program| settings(program, &text)).await;
    for path in ["/limits", "/limits/history"] {
        assert_eq!(get(page, path).await.0, 404, "{path}");
    }
}

/// The store admits what only a shadow would refuse, so the response must be the same.
#[test]
fn an_override_with_shadow_refuses_nothing() {
    for (key, admitted) in [("plan", 9), ("counted", 9)] {
        let limits = CurrentLimits::default();
        let scene = scene(&limits);
        limits.replace("plan: fixed-window 2/1h shadow for subject alice".parse().unwrap());
        for _ in 0..admitted {
            assert!(scene.passes("d", &[&[(key, "alice")]]), "{key}");
        }
        limits.replace("plan: fixed-window 2/1h for subject alice".parse().unwrap());
        assert!(!scene.passes("d", &[&[(key, "alice")]]), "{key}");
    }
}

/// A counter can neither block nor warn, so the limit decides like a policy.
#[test]
fn an_override_of_a_counter_can_block_and_warn() {
    let limits = CurrentLimits::new(
        "plan: fixed-window 2/1h block 1d for subject alice\nplan: fixed-window 2/1h warn 50% for subject bob"
            .parse()
            .unwrap(),
    );
    let scene = scene(&limits);
    let passes = || scene.passes("d", &[&[("counted", "alice")]]);
    assert_eq!([(); 3].map(|()| passes()), [true, true, false]);
    scene.advance(3_600);
    assert!(!passes());
    let response = scene.ask(&request("d", vec![hits(&[("counted", "bob")], 2)]));
    let names: Vec<_> =
        response.response_headers_to_add.iter().map(|header| &*header.key).collect();
    assert!(names.contains(&"RateLimit-Warning"), "{names:?}");
}

#[test]
fn a_limit_that_cannot_be_an_alternative_or_a_pool_has_no_effect() {
    let config = "domain: d\ndescriptors:\n\
        - {key: own, policy: 'own: fixed-window 1/1h', one_of: capacity}\n\
        - {key: all, policy: 'all: fixed-window 1/1h', one_of: capacity}\n\
        - {key: pool, policy: 'pool: fair-pool 2/1h'}\n";
    for set in ["own: fixed-window 1/1h block 1m", "own: fixed-window 1/1h shadow", ""] {
        let Scene { clock, decider } = Scene::with(config, Behaviour::default());
        let limits = CurrentLimits::new(format!("pool: fixed-window 9/1h\n{set}").parse().unwrap());
        let scene = Scene { clock, decider: decider.with_limits(limits) };
        let both = [&[("own", "acme")][..], &[("all", "x")]];
        let admitted = [true, true, false].map(|_| scene.passes("d", &both));
        assert_eq!(admitted, [true, true, false], "{set}");
        let admitted = [true, true, false].map(|_| scene.passes("d", &[&[("pool", "a")]]));
        assert_eq!(admitted, [true, true, false], "{set}");
    }
}
