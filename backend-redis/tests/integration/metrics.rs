//! Tests the metrics that the store records about its script calls.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tidegate_redis::{ErrorKind, Limiter, RedisStore, StoreExt, names};
use tidegate_testkit::Recorder;

/// Returns the scripts with recorded round trips, and the number of round trips of each script.
fn times(recorder: &Recorder) -> Vec<(&'static str, u64)> {
    let count = |script| {
        let series = format!("{}{{script={script:?}}}", names::SCRIPT_SECONDS.name);
        recorder.times(&series).filter(|times| *times > 0).map(|times| (script, times))
    };
    tidegate_redis::protocol::scripts::Script::NAMES.into_iter().filter_map(count).collect()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_time_of_each_round_trip_is_taken_by_the_script() {
    let recorder = Recorder::new();
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            let bucket = crate::common::policy("a: token-bucket 5/1m");
            let store = crate::common::builder().await.build().unwrap().observed();
            let limiter = Limiter::new(&store, [bucket.clone()]).unwrap();
            // On a new server, the first call finds no script and needs two round trips.
            let _ = limiter.acquire("alice").await.unwrap();
            let first = times(&recorder)[0].1;
            assert!(first <= 2);
            let _ = limiter.acquire("alice").await.unwrap();
            assert_eq!(times(&recorder), [("token_bucket", first + 1)]);
            let both = [bucket, crate::common::policy("b: sliding-log 5/1m")];
            let limiter = Limiter::new(&store, both).unwrap();
            let _ = limiter.acquire("alice").await.unwrap();
            assert!(matches!(times(&recorder)[..], [("token_bucket", _), ("batch", 1 | 2)]));
        });
    });
    // The layer `observed` around the store has recorded three calls, too.
    assert_eq!(recorder.times(r#"tidegate_store_seconds{operation="acquire"}"#), Some(3));
    assert_eq!(recorder.help()[names::SCRIPT_SECONDS.name], names::SCRIPT_SECONDS.help);
}

#[test]
fn a_call_that_was_never_sent_has_no_script_time() {
    let recorder = Recorder::new();
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            // No server listens on this port.
            let store = RedisStore::new("redis://127.0.0.1:1").unwrap().observed();
            let limiter = Limiter::new(store, [crate::common::policy("a: gcra 5/1m")]).unwrap();
            let error = limiter.acquire("alice").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        });
    });
    assert_eq!(times(&recorder), []);
    let error = r#"tidegate_store_errors_total{kind="unavailable"}"#;
    assert_eq!(recorder.counter(error), Some(1));
}
