//! What the span of an observed call says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{Call, Charge, ErrorKind, Limiter, ManualClock, Policy, Store, StoreExt};
use tidegate_memory::MemoryStore;
use tidegate_testkit::faults::{Fault, FaultyStore};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Writes down the name of each span and what it says, and how often spans are entered.
#[derive(Debug, Clone, Default)]
struct Notes {
    lines: Arc<Mutex<Vec<String>>>,
    entered: Arc<AtomicU64>,
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tidegate" && *metadata.level() == Level::DEBUG
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut lines = self.lines.lock().unwrap();
        let mut line = attributes.metadata().name().to_owned();
        attributes.record(&mut Line(&mut line));
        lines.push(line);
        Id::from_u64(lines.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let place = usize::try_from(id.into_u64()).unwrap() - 1;
        values.record(&mut Line(&mut self.lines.lock().unwrap()[place]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {}
}

/// What the spans say that are made by `run`.
fn spans<F: Future<Output = ()>>(run: impl FnOnce() -> F) -> Vec<String> {
    let notes = Notes::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tracing::subscriber::with_default(notes.clone(), || runtime.block_on(run()));
    assert!(notes.entered.load(Ordering::Relaxed) >= 1, "nothing happened within a span");
    notes.lines.lock().unwrap().clone()
}

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::builder().clock(ManualClock::default()).build()
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

#[test]
fn a_span_names_the_policies_and_says_what_came_of_the_call() {
    let spans = spans(|| async {
        let all = [policy("a: fixed-window 1/1m"), policy("b: fixed-window 5/1d")];
        let limiter = Limiter::new(memory().observed(), all).unwrap();
        let _ = limiter.acquire("alice").await.unwrap();
        let _ = limiter.acquire("alice").await.unwrap();
        let _ = limiter.subject("alice").cost(9).acquire().await.unwrap();
    });
    assert_eq!(
        spans,
        [
            r#"tidegate.decide operation="acquire" policies=a,b outcome="allowed""#,
            r#"tidegate.decide operation="acquire" policies=a,b outcome="denied" retry_after=60s"#,
            r#"tidegate.decide operation="acquire" policies=a,b outcome="denied" retry_after="never""#,
        ]
    );
}

#[test]
fn a_span_says_how_long_to_wait_for_a_place_that_was_booked() {
    let spans = spans(|| async {
        let limiter = Limiter::new(memory().observed(), [policy("a: token-bucket 1/1s")]).unwrap();
        for _ in 0..2 {
            let _ = limiter.subject("alice").reserve(Duration::from_secs(5)).await.unwrap();
        }
    });
    let booked = r#"tidegate.decide operation="reserve" policies=a outcome="allowed" wait=1s"#;
    assert_eq!(spans[1], booked);
}

#[test]
fn a_span_is_around_the_wait_and_says_the_kind_of_an_error_but_not_its_message() {
    let spans = spans(|| async {
        let store = FaultyStore::new(memory(), vec![Fault::After(ErrorKind::Timeout)]).observed();
        let limiter = Limiter::new(store, [policy("a: fixed-window 1/1m")]).unwrap();
        assert!(limiter.acquire("alice").await.is_err());
    });
    let failed =
        r#"tidegate.decide operation="acquire" policies=a outcome="failed" error="timeout""#;
    assert_eq!(spans, [failed]);
}

#[test]
fn a_batch_has_one_span_that_counts_what_came_of_its_calls() {
    let spans = spans(|| async {
        let store = memory().observed();
        let policy = policy("a: fixed-window 2/1m");
        let charges = [Charge::new(&policy, "alice").tenant("acme")];
        let _ = store.decide_many(&[Call::acquire(&charges); 3]).await;
    });
    assert_eq!(spans, ["tidegate.decide_many calls=3 allowed=2 denied=1 failed=0 degraded=0"]);
}

#[test]
fn without_a_listener_a_span_allocates_nothing() {
    let (store, policy) = (memory().observed(), policy("a: fixed-window 1000/1m"));
    let charges = [Charge::new(&policy, "alice")];
    let decide = || store.decide(Call::acquire(&charges)).into_ready().unwrap().unwrap();
    let _ = decide();
    let allocated = allocation_counter::measure(|| (0..100).for_each(|_| drop(decide())));
    assert_eq!(allocated.count_total, 0);
}
