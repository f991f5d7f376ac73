//! Compares the reports of warnings with the reports around the core.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_redis::{Call, Charge, ManualClock, Operation, Store, StoreExt, Warning, Warnings};
use tidegate_testkit::ModelStore;

use crate::common::{policy, store_at};

/// Makes calls through two layers around one store, as two processes do. Returns the numbers of the
/// steps with a report.
async fn reports(store: impl Store, text: &str, clock: ManualClock) -> Vec<usize> {
    let (policy, store) = (policy(text), Arc::new(store));
    let steps = Arc::new(Mutex::new((0, Vec::new())));
    let layer = || {
        let steps = Arc::clone(&steps);
        let report = move |_: &Warning<'_>| {
            let (step, reported) = &mut *steps.lock().unwrap();
            reported.push(*step);
        };
        Arc::clone(&store).warned(Warnings::new(report).clock(clock.clone()))
    };
    let processes = [layer(), layer()];
    let charge = [Charge::new(&policy, "alice").tenant("t")];
    for step in 0..60 {
        steps.lock().unwrap().0 = step;
        let operation = if step % 4 == 3 { Operation::Refund } else { Operation::Acquire };
        let _ = processes[step % 2].decide(Call::new(operation, &charge)).await.unwrap();
        clock.advance(Duration::from_secs(180));
    }
    let reported = steps.lock().unwrap().1.clone();
    assert!(!reported.is_empty(), "{text}");
    reported
}

#[tokio::test]
async fn a_subject_is_reported_as_around_the_core() {
    for text in [
        "a: fixed-window 5/1h warn 40%",
        "a: fixed-window 5/1h anchored warn 40%",
        "a: sliding-log 5/1h warn 40%",
        "a: gcra 5/1h burst 5 warn 40%",
        "a: quota 5/day in UTC warn 40%",
        "a: credits 5 warn 40%",
    ] {
        let clock = ManualClock::default();
        let on_redis = reports(store_at(&clock).await, text, clock).await;
        let clock = ManualClock::default();
        let by_core = reports(ModelStore::new(clock.clone()), text, clock).await;
        assert_eq!(on_redis, by_core, "{text}");
    }
}
