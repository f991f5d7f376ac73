//! Tests the stores and the configuration on the page.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tidegate_core::layers::Layer;
use tidegate_core::{Answer, Breaker, Call, Decision, Error, ErrorKind, StoreExt};
use tidegate_server::limits::config::ConfigError;
use tidegate_server::observe::activity::{FollowedSet, WatchedStore};
use tidegate_server::store::OnStoreError;
use tidegate_testkit::decide_one_by_one;

use super::*;

/// A store that fails or does not answer when a test sets one of its switches.
#[derive(Debug, Default)]
struct Switched {
    is_down: AtomicBool,
    is_silent: AtomicBool,
}

impl Store for Switched {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "it is down")))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        if self.is_silent.load(Ordering::Relaxed) {
            return Answer::later(std::future::pending());
        }
        Answer::ready(match self.is_down.load(Ordering::Relaxed) {
            true => {
                let error = format!("it is \u{1b}[31mdown{}", " and down".repeat(100));
                Err(Error::new(ErrorKind::Unavailable, error))
            }
            false => Ok(Timestamp::from_micros(1)),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_shown_and_delays_no_other() {
    let (store, other) = (Arc::new(Switched::default()), Arc::new(Switched::default()));
    let stores = vec![
        WatchedStore::new("store", "redis://:S3CRET@a:6379", store.clone(), None),
        WatchedStore::new("limits per second", "memory", other.clone(), None),
    ];
    let activity = Arc::new(Activity::new(ActivitySettings::default(), stores, Instant::now()));
    let running = tokio::spawn({
        let activity = Arc::clone(&activity);
        async move { activity.run().await }
    });
    assert_eq!(activity.snapshot(&LimitsQuery::default())["stores"][0]["answers"], Value::Null);
    let after = |seconds: u64| {
        let activity = Arc::clone(&activity);
        async move {
            // The paused clock of tokio advances to the end of the sleep when all tasks wait.
            tokio::time::sleep(Duration::from_millis(seconds * 1_000 + 10)).await;
            activity.snapshot(&LimitsQuery::default())["stores"].clone()
        }
    };
    let stores = after(1).await;
    assert_eq!((&stores[0]["answers"], &stores[1]["answers"]), (&json!(true), &json!(true)));
    assert_eq!(
        (&stores[0]["role"], &stores[0]["url"]),
        (&json!("store"), &json!("redis://a:6379"))
    );
    assert_eq!((&stores[0]["breaker"], &stores[0]["error"]), (&Value::Null, &Value::Null));
    assert!(stores[0]["probe_us"].is_u64());

    store.is_down.store(true, Ordering::Relaxed);
    let stores = after(1).await;
    assert_eq!((&stores[0]["answers"], &stores[1]["answers"]), (&json!(false), &json!(true)));
    let error = stores[0]["error"].as_str().unwrap();
    assert!(error.contains("it is \\u{1b}[31mdown") && error.ends_with('…'), "{error}");
    assert!(error.len() < 320, "{error}");
    let since = stores[0]["since_ms"].clone();
    assert_eq!(after(2).await[0]["since_ms"], since);

    store.is_silent.store(true, Ordering::Relaxed);
    let stores = after(3).await;
    assert_eq!(stores[0]["error"], "no answer within 1s");
    assert_eq!((&stores[1]["answers"], &stores[1]["error"]), (&json!(true), &Value::Null));
    store.is_silent.store(false, Ordering::Relaxed);
    store.is_down.store(false, Ordering::Relaxed);
    assert_eq!(after(3).await[0]["answers"], true);
    // The activity has taken one sample per second, so ten seconds have ten samples.
    let samples = activity.snapshot(&LimitsQuery::default())["totals"]["admitted_history"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(samples, 10);
    running.abort();
}

#[tokio::test]
async fn the_state_of_the_circuit_breaker_is_shown() {
    let store = Switched::default().breaker(Breaker::new().open_for(Duration::from_secs(3_600)));
    let watch = store.watch();
    let store: Arc<dyn Store> = Arc::new(store);
    let mut settings = ActivitySettings::default();
    settings.on_store_error = OnStoreError::Allow;
    let stores = vec![WatchedStore::new("store", "redis://a", Arc::clone(&store), Some(watch))];
    let activity = Activity::new(settings, stores, Instant::now());
    let shown = || activity.snapshot(&LimitsQuery::default())["stores"][0].clone();
    assert_eq!((&shown()["breaker"], &shown()["breaker_opened"]), (&json!("closed"), &json!(0)));
    let calls = Calls::new(store);
    let policy = calls.policies().parse("gcra 1/s").unwrap();
    for _ in 0..50 {
        let charge = ChargeRequest::new(policy.clone(), Bytes::new());
        assert!(calls.decide(&CallRequest::new(Operation::Acquire, [charge])).await.is_err());
    }
    assert_eq!((&shown()["breaker"], &shown()["breaker_opened"]), (&json!("open"), &json!(1)));
    assert_eq!(activity.snapshot(&LimitsQuery::default())["on_store_error"], "allow");

    let store = Switched::default().breaker(Breaker::new().open_for(Duration::from_micros(1)));
    let watch = store.watch();
    let store: Arc<dyn Store> = Arc::new(store);
    let stores = vec![WatchedStore::new("store", "a\u{202e}b", Arc::clone(&store), Some(watch))];
    let activity = Activity::new(settings, stores, Instant::now());
    let calls = Calls::new(store);
    for _ in 0..5 {
        let charge = ChargeRequest::new(policy.clone(), Bytes::new());
        assert!(calls.decide(&CallRequest::new(Operation::Acquire, [charge])).await.is_err());
    }
    // The breaker is open for a microsecond, and then half-open.
    while activity.snapshot(&LimitsQuery::default())["stores"][0]["breaker"] == "open" {
        tokio::task::yield_now().await;
    }
    let shown = activity.snapshot(&LimitsQuery::default())["stores"][0].clone();
    assert_eq!((&shown["breaker"], &shown["url"]), (&json!("half-open"), &json!("a\\u{202e}b")));
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_has_to_see_first_is_a_list_of_problems() {
    let store = Arc::new(Switched::default());
    let broken = Switched::default().breaker(Breaker::new().open_for(Duration::from_secs(3_600)));
    let watch = broken.watch();
    let broken: Arc<dyn Store> = Arc::new(broken);
    let stores = vec![
        WatchedStore::new("store", "redis://:S3CRET@a", store.clone(), None),
        WatchedStore::new("limits per second", "redis://b", Arc::clone(&broken), Some(watch)),
    ];
    let activity = Arc::new(Activity::new(ActivitySettings::default(), stores, Instant::now()));
    let problems = || activity.snapshot(&LimitsQuery::default())["problems"].clone();
    assert_eq!(problems(), json!(["No limits are in force."]));

    let decider = Decider::new(Arc::clone(&broken), Behaviour::default());
    let service = Service::new(decider).activity(Some(Arc::clone(&activity)));
    service.load(Ok(&files(LIMITS))).unwrap();
    assert_eq!(problems(), json!([]));

    store.is_silent.store(true, Ordering::Relaxed);
    let request = request("shop", vec![descriptor(&[("user", "a")])]);
    for _ in 0..50 {
        assert!(service.should_rate_limit(&request).await.is_err());
    }
    assert!(service.load(Ok(&files("domain: ["))).is_err());
    let is_probed = tokio::time::sleep(Duration::from_millis(1_500));
    tokio::select! {
        () = activity.run() => {}
        () = is_probed => {}
    }
    let shown = problems();
    let shown: Vec<&str> =
        shown.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let [silent, breaker, configuration] = shown[..] else { panic!("{shown:?}") };
    assert_eq!(silent, "The store redis://a (store) does not answer: no answer within 1s");
    let expected = "The circuit breaker of the store redis://b (limits per second) is open.";
    assert_eq!(breaker, expected);
    let expected = "The last change of the limits is not in force: shop.yaml:";
    assert!(configuration.starts_with(expected), "{configuration}");

    service.load(Ok(&files(LIMITS))).unwrap();
    assert_eq!(problems().as_array().unwrap().len(), 2);

    for (version, text) in [
        (0, "The limit set is not in force: see the log."),
        (7, "The limit set cannot be updated, and version 7 stays in force: see the log."),
    ] {
        activity.limit_set(FollowedSet { version, is_current: false });
        assert_eq!(problems()[2], text);
    }
    activity.limit_set(FollowedSet { version: 8, is_current: true });
    assert_eq!(problems().as_array().unwrap().len(), 2);
    let snapshot = activity.snapshot(&LimitsQuery::default());
    assert_eq!(snapshot["configuration"]["limit_set_version"], 8);
}

#[test]
fn what_is_done_when_a_store_fails_is_shown() {
    for (on_store_error, text) in [
        (OnStoreError::Error, "error"),
        (OnStoreError::Allow, "allow"),
        (OnStoreError::Deny, "deny"),
    ] {
        let mut settings = ActivitySettings::default();
        settings.on_store_error = on_store_error;
        let activity = Activity::new(settings, Vec::new(), Instant::now());
        assert_eq!(activity.snapshot(&LimitsQuery::default())["on_store_error"], text);
    }
}

const DELAY: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Slow;

impl<S: Store> Layer<S> for Slow {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            tokio::time::sleep(DELAY).await;
            inner.decide(call).await
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }

    fn ready<'a>(&'a self, inner: &'a S) -> Answer<'a, Result<(), Error>> {
        Answer::later(async move {
            tokio::time::sleep(DELAY).await;
            inner.ready().await
        })
    }
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    since.as_millis().try_into().unwrap()
}

#[tokio::test]
async fn times_are_those_of_what_they_stand_at_and_in_their_units() {
    let (start, start_ms) = (Instant::now(), now_ms());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().layer(Slow));
    let stores = vec![WatchedStore::new("store", "memory", Arc::clone(&store), None)];
    let activity = Arc::new(Activity::new(ActivitySettings::default(), stores, start));
    let decider = Decider::new(Arc::clone(&store), Behaviour::default());
    let service = Service::new(decider).activity(Some(Arc::clone(&activity)));
    service.load(Ok(&files(LIMITS))).unwrap();
    assert!(service.load(Ok(&files("domain: ["))).is_err());
    let calls = Calls::new(store).activity(Source::V1, Some(Arc::clone(&activity)));
    let charge = ChargeRequest::new(calls.policies().parse("gcra 1/s").unwrap(), Bytes::new());
    let _ = calls.decide(&CallRequest::new(Operation::Acquire, [charge])).await.unwrap();
    let request = request("shop", vec![descriptor(&[("user", "a")])]);
    service.should_rate_limit(&request).await.unwrap();
    let is_probed = async {
        while activity.snapshot(&LimitsQuery::default())["stores"][0]["answers"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = activity.run() => {}
        () = is_probed => {}
    }
    let snapshot = activity.snapshot(&LimitsQuery::default());
    // The bounds allow for a change of the system clock during the test.
    let present = start_ms - 60_000..=now_ms() + 60_000;
    let times = [
        &snapshot["now_ms"],
        &snapshot["started_ms"],
        &snapshot["configuration"]["in_force"]["at_ms"],
        &snapshot["configuration"]["refused"]["at_ms"],
        &snapshot["stores"][0]["since_ms"],
        &snapshot["slow_calls"][0]["at_ms"],
        &snapshot["slow_calls"][1]["at_ms"],
    ];
    for (index, time) in times.iter().enumerate() {
        assert!(present.contains(&time.as_u64().unwrap()), "{index}: {snapshot}");
    }
    let spans = [
        &snapshot["stores"][0]["probe_us"],
        &snapshot["slow_calls"][0]["took_us"],
        &snapshot["slow_calls"][1]["took_us"],
    ];
    let possible = DELAY.as_micros()..=start.elapsed().as_micros();
    for (index, span) in spans.iter().enumerate() {
        assert!(possible.contains(&span.as_u64().unwrap().into()), "{index}: {snapshot}");
    }
    let slow = snapshot["slow_calls"].as_array().unwrap();
    let mut protocols: Vec<_> =
        slow.iter().map(|call| call["protocol"].as_str().unwrap()).collect();
    protocols.sort_unstable();
    assert_eq!(protocols, ["envoy", "v1"]);
}

#[tokio::test]
async fn the_configuration_in_force_and_the_last_one_that_was_not_are_shown() {
    let watched = Watched::new();
    let shown = || watched.snapshot()["configuration"].clone();
    let first = shown();
    assert_eq!((&first["loads"], &first["refused"]), (&json!(1), &Value::Null));
    assert_eq!(first["in_force"]["limits"], 3);
    assert_eq!(first["in_force"]["domains"], json!({"count": 1, "first": ["shop"]}));
    assert_eq!(first["in_force"]["files"], json!({"count": 1, "first": ["shop.yaml"]}));

    let broken = LIMITS.replace("policy:", "polcy:");
    assert!(watched.service.load(Ok(&files(&broken))).is_err());
    let refused = shown();
    assert_eq!((&refused["loads"], &refused["in_force"]), (&json!(1), &first["in_force"]));
    assert_eq!(refused["refused"]["is_last"], true);
    let error = refused["refused"]["error"].as_str().unwrap();
    assert_eq!(error, "shop.yaml:5:5: config error, unknown key 'polcy'");

    assert!(watched.service.load(Ok(&files(LIMITS))).is_ok());
    assert_eq!((&shown()["loads"], &shown()["refused"]["is_last"]), (&json!(2), &json!(false)));
    // The page shows the error for a directory that cannot be read. It cuts long errors after 1,000
    // characters.
    let missing = tidegate_server::limits::config::read_directory(std::path::Path::new("/nowhere"));
    let missing: ConfigError = missing.unwrap_err();
    assert!(watched.service.load(Err(&missing)).is_err());
    assert!(shown()["refused"]["error"].as_str().unwrap().contains("/nowhere"));
    let long = LIMITS.replace("shop", &"x".repeat(5_000)).replace("policy:", "polcy:");
    assert!(
        watched.service.load(Ok(&[ConfigFile { name: "y".repeat(5_000), text: long }])).is_err()
    );
    assert_eq!(shown()["refused"]["error"].as_str().unwrap().chars().count(), 1_001);

    // Names of files and limits may contain control characters. The snapshot escapes them, so that
    // they cannot change a terminal or a page.
    let text = "domain: \"d\\u202E\\e[31m\"\n\
                descriptors: [{key: \"k\\u202E\\e[31m\", policy: gcra 1/s}]\n";
    let hostile = |text: &str| {
        vec![ConfigFile { name: "f\u{202e}\u{1b}[31m.yaml".into(), text: text.into() }]
    };
    watched.service.load(Ok(&hostile(text))).unwrap();
    let entries = [("k\u{202e}\u{1b}[31m", "x")];
    let asked = request("d\u{202e}\u{1b}[31m", vec![descriptor(&entries)]);
    watched.service.should_rate_limit(&asked).await.unwrap();
    watched.activity.sample(watched.now + Duration::from_secs(1));
    let wrong = text.replace("policy", "\"po\\e[31mlicy\"");
    assert!(watched.service.load(Ok(&hostile(&wrong))).is_err());
    let snapshot = watched.snapshot();
    let shows = |of: &Value, text: &str| assert!(of.to_string().contains(text), "{text}: {of}");
    shows(&snapshot["configuration"]["in_force"]["domains"], "d\\\\u{202e}\\\\u{1b}[31m");
    shows(&snapshot["configuration"]["in_force"]["files"], "f\\\\u{202e}\\\\u{1b}[31m.yaml");
    shows(&snapshot["configuration"]["refused"], "f\\\\u{202e}\\\\u{1b}[31m.yaml:2:38: ");
    shows(&snapshot["limits"], "d\\\\u{202e}\\\\u{1b}[31m.k\\\\u{202e}");
    assert_eq!(snapshot["limits"].as_array().unwrap().len(), 1, "{snapshot}");
    strings(&snapshot, &|text| {
        assert!(
            !text.chars().any(|character| character.is_control() || character == '\u{202e}'),
            "{text:?}"
        );
    });

    let many: Vec<ConfigFile> = (0..60)
        .map(|index| ConfigFile {
            name: format!("{index:02}.yaml"),
            text: format!("{{domain: d{index:02}, descriptors: [{{key: a, policy: gcra 1/s}}]}}"),
        })
        .collect();
    watched.service.load(Ok(&many)).unwrap();
    for names in ["domains", "files"] {
        let names = &shown()["in_force"][names];
        assert_eq!((&names["count"], names["first"].as_array().unwrap().len()), (&json!(60), 50));
    }
}

/// Calls `see` with each string in a JSON value.
fn strings(value: &Value, see: &dyn Fn(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(values) => values.iter().for_each(|value| strings(value, see)),
        Value::Object(fields) => fields.values().for_each(|value| strings(value, see)),
        _ => {}
    }
}
