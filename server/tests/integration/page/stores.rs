//! Stores and the configuration, as the page shows them.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tidegate_core::{Answer, Breaker, Call, Decision, Error, ErrorKind, StoreExt};
use tidegate_server::activity::WatchedStore;
use tidegate_server::config::ConfigError;
use tidegate_server::service::OnStoreError;

use super::*;

/// A store that answers, or does not.
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
            true => Err(Error::new(ErrorKind::Unavailable, "it is \u{1b}[31mdown")),
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
    assert_eq!(activity.snapshot()["stores"][0]["answers"], Value::Null);
    let after = |seconds: u64| {
        let activity = Arc::clone(&activity);
        async move {
            // The clock goes on when all tasks wait.
            tokio::time::sleep(Duration::from_millis(seconds * 1_000 + 10)).await;
            activity.snapshot()["stores"].clone()
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
    assert!(error.contains("it is \\u{1b}[31mdown"), "{error}");
    let since = stores[0]["since_ms"].clone();
    assert_eq!(after(2).await[0]["since_ms"], since);

    store.is_silent.store(true, Ordering::Relaxed);
    let stores = after(3).await;
    assert_eq!(stores[0]["error"], "no answer within 1s");
    assert_eq!((&stores[1]["answers"], &stores[1]["error"]), (&json!(true), &Value::Null));
    store.is_silent.store(false, Ordering::Relaxed);
    store.is_down.store(false, Ordering::Relaxed);
    assert_eq!(after(3).await[0]["answers"], true);
    // A second each, since the start.
    let samples = activity.snapshot()["totals"]["admitted_history"].as_array().unwrap().len();
    assert!((9..=11).contains(&samples), "{samples}");
    running.abort();
}

#[tokio::test]
async fn the_state_of_the_circuit_breaker_is_shown() {
    let store = Switched::default().breaker(Breaker::new());
    let watch = store.watch();
    let store: Arc<dyn Store> = Arc::new(store);
    let mut settings = ActivitySettings::default();
    settings.on_store_error = OnStoreError::Allow;
    let stores = vec![WatchedStore::new("store", "redis://a", Arc::clone(&store), Some(watch))];
    let activity = Activity::new(settings, stores, Instant::now());
    let shown = || activity.snapshot()["stores"][0].clone();
    assert_eq!((&shown()["breaker"], &shown()["breaker_opened"]), (&json!("closed"), &json!(0)));
    let calls = Calls::new(store);
    let policy = calls.policies().parse("gcra 1/s").unwrap();
    for _ in 0..50 {
        let charge = ChargeRequest::new(policy.clone(), Bytes::new());
        assert!(calls.decide(&CallRequest::new(Operation::Acquire, [charge])).await.is_err());
    }
    assert_eq!((&shown()["breaker"], &shown()["breaker_opened"]), (&json!("open"), &json!(1)));
    assert_eq!(activity.snapshot()["on_store_error"], "allow");
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
    // A directory that cannot be read, and an error of any length.
    let missing = tidegate_server::config::read_directory(std::path::Path::new("/nowhere"));
    let missing: ConfigError = missing.unwrap_err();
    assert!(watched.service.load(Err(&missing)).is_err());
    assert!(shown()["refused"]["error"].as_str().unwrap().contains("/nowhere"));
    let long = LIMITS.replace("shop", &"x".repeat(5_000)).replace("policy:", "polcy:");
    assert!(
        watched.service.load(Ok(&[ConfigFile { name: "y".repeat(5_000), text: long }])).is_err()
    );
    assert_eq!(shown()["refused"]["error"].as_str().unwrap().chars().count(), 1_001);

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
