//! Tests of the spans of observed calls, and of the events that report an outage.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stubs::{Mood, Stub};
use tidegate_core::{
    Breaker, Call, Charge, Error, ErrorKind, Limiter, ManualClock, OnFailure, Policy, Store,
    StoreExt,
};
use tidegate_memory::MemoryStore;
use tidegate_testkit::faults::{Fault, Faults};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber that records the name and fields of each span, and counts how often spans are
/// entered.
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
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        values.record(&mut Line(&mut self.lines.lock().unwrap()[index]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {}
}

/// Returns the spans that `run` creates, with their fields.
fn spans<F: Future<Output = ()>>(run: impl FnOnce() -> F) -> Vec<String> {
    let notes = Notes::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tracing::subscriber::with_default(notes.clone(), || runtime.block_on(run()));
    assert!(notes.entered.load(Ordering::Relaxed) >= 1, "no span was entered");
    notes.lines.lock().unwrap().clone()
}

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::builder().clock(ManualClock::default()).build()
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

#[test]
fn a_span_contains_the_policies_and_the_outcome_of_the_call() {
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
fn a_span_contains_the_wait_of_a_reservation() {
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
fn a_span_covers_the_wait_and_contains_the_kind_of_an_error_but_not_its_message() {
    let spans = spans(|| async {
        let store = memory().layer(Faults::new(vec![Fault::After(ErrorKind::Timeout)])).observed();
        let limiter = Limiter::new(store, [policy("a: fixed-window 1/1m")]).unwrap();
        assert!(limiter.acquire("alice").await.is_err());
    });
    let failed =
        r#"tidegate.decide operation="acquire" policies=a outcome="failed" error="timeout""#;
    assert_eq!(spans, [failed]);
}

#[test]
fn a_batch_has_one_span_with_the_counts_of_its_outcomes() {
    let spans = spans(|| async {
        let store = memory().observed();
        let policy = policy("a: fixed-window 2/1m");
        let charges = [Charge::new(&policy, "alice").tenant("acme")];
        let _ = store.decide_many(&[Call::acquire(&charges); 3]).await;
    });
    assert_eq!(spans, ["tidegate.decide_many calls=3 allowed=2 denied=1 failed=0 degraded=0"]);
}

#[test]
fn without_a_subscriber_a_span_allocates_nothing() {
    let (store, policy) = (memory().observed(), policy("a: fixed-window 1000/1m"));
    let charges = [Charge::new(&policy, "alice")];
    let decide = || store.decide(Call::acquire(&charges)).into_ready().unwrap().unwrap();
    let _ = decide();
    let allocated = allocation_counter::measure(|| (0..100).for_each(|_| drop(decide())));
    assert_eq!(allocated.count_total, 0);
}

/// A subscriber that records the events for operators, which have level INFO or above.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Returns the events that were recorded since this function was last called.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tidegate" && metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut Line(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Runs a test in virtual time, with a log, a store that can fail, and the clock of this store.
fn logged<F: Future<Output = ()>>(run: impl FnOnce(Log, Stub, ManualClock) -> F) {
    let (log, clock) = (Log::default(), ManualClock::default());
    let stub = Stub::new(&clock);
    let run = run(log.clone(), stub, clock);
    let _guard = tracing::subscriber::set_default(log);
    crate::run(run);
}

/// Makes an acquire for a subject that must not be logged. Returns `true` if the decision is
/// degraded.
async fn acquire(store: &impl Store) -> Result<bool, Error> {
    let policy = policy("p: sliding-log 1000/1h");
    let charges = [Charge::new(&policy, "S3CRET").tenant("S3CRET")];
    store.decide(Call::acquire(&charges)).await.map(|decision| decision.degraded().is_some())
}

#[test]
fn a_ban_is_logged_with_its_reason_and_without_its_subject() {
    logged(|log, _, clock| async move {
        let store = MemoryStore::builder().clock(clock).build();
        let limiter = Limiter::new(store, [policy("login: sliding-log 5/15m")]).unwrap();
        let day = Duration::from_secs(86_400);
        limiter.by("login", "S3CRET").ban(day, "stolen passwords").await.unwrap();
        let banned = "INFO message=a subject is banned policy=\"login\" span=1d \
                      reason=\"stolen passwords\"";
        assert_eq!(log.take(), [banned]);
        limiter.by("login", "S3CRET").unban().await.unwrap();
        limiter.by("login", "S3CRET").ban(day, "").await.unwrap_err();
        assert_eq!(log.take(), [""; 0]);
    });
}

#[test]
fn opening_and_closing_a_circuit_is_logged() {
    logged(|log, stub, clock| async move {
        let breaker = Breaker::new().failures(3).clock(clock.clone());
        let store = stub.clone().breaker(breaker);
        acquire(&store).await.unwrap();
        stub.set(Mood::SlowlyDown(ErrorKind::Unavailable));
        for _ in 0..2 {
            acquire(&store).await.unwrap_err();
        }
        assert_eq!(log.take(), [""; 0], "the circuit is not open yet");
        for _ in 0..50 {
            acquire(&store).await.unwrap_err();
        }
        let opened = "WARN message=the circuit is open: the store is not called for a while \
                      reason=\"unavailable\" error=\"unavailable: down\" failures=3";
        assert_eq!(log.take(), [opened]);
        // Failed probes are not logged.
        for _ in 0..5 {
            clock.advance(Duration::from_secs(1));
            assert_eq!(acquire(&store).await.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        assert_eq!(log.take(), [""; 0]);
        stub.set(Mood::Up);
        clock.advance(Duration::from_secs(1));
        for _ in 0..5 {
            acquire(&store).await.unwrap();
        }
        assert_eq!(log.take(), ["INFO message=the circuit is closed: the store is called again"]);
    });
}

#[test]
fn an_outage_and_the_number_of_degraded_decisions_are_logged() {
    logged(|log, stub, clock| async move {
        let store = stub.clone().on_failure(OnFailure::open().clock(clock.clone()));
        assert!(!acquire(&store).await.unwrap());
        stub.set(Mood::Down(ErrorKind::Timeout));
        for _ in 0..20 {
            assert!(acquire(&store).await.unwrap());
        }
        let policy = policy("p: sliding-log 1000/1h");
        let charges = [Charge::new(&policy, "S3CRET")];
        let answers = store.decide_many(&[Call::acquire(&charges); 3]).await;
        assert!(answers.iter().all(Result::is_ok));
        let outage = "WARN message=the store fails; its fallback decides \
                          reason=\"timeout\" error=\"timeout: down\" answer=\"failed-open\"";
        assert_eq!(log.take(), [outage]);
        stub.set(Mood::Slow);
        for _ in 0..5 {
            assert!(!acquire(&store).await.unwrap());
        }
        assert_eq!(log.take(), ["INFO message=the store decides again decisions=23"]);
        // The answer to a batch also ends an outage.
        clock.advance(Duration::from_secs(60));
        stub.set(Mood::Down(ErrorKind::Timeout));
        assert!(acquire(&store).await.unwrap());
        stub.set(Mood::Up);
        let answers = store.decide_many(&[Call::acquire(&charges); 3]).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(log.take()[1..], ["INFO message=the store decides again decisions=1"]);
    });
}

#[test]
fn a_store_that_fails_now_and_then_does_not_log_a_line_per_call() {
    logged(|log, stub, clock| async move {
        let store = stub.clone().on_failure(OnFailure::closed().clock(clock.clone()));
        for call in 0..2_000 {
            stub.set(if call % 2 == 0 { Mood::Down(ErrorKind::Busy) } else { Mood::Up });
            assert_eq!(acquire(&store).await.unwrap(), call % 2 == 0);
            clock.advance(Duration::from_millis(10));
        }
        // The test takes 20 s, and an outage is logged at most every 10 s, so two outages are
        // logged. The last line counts all degraded decisions since the end of the first outage.
        let lines = log.take();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[3], "INFO message=the store decides again decisions=500");
        // A long outage is logged, even if it began less than 10 s after the previous outage was
        // logged.
        stub.set(Mood::Down(ErrorKind::Busy));
        for _ in 0..20 {
            acquire(&store).await.unwrap();
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(log.take().len(), 1);
    });
}

/// A foreign value affects only one subject. So it is not an outage, and no line is logged.
#[test]
fn a_foreign_value_under_one_key_is_not_an_outage() {
    logged(|log, stub, clock| async move {
        let store = stub.clone().on_failure(OnFailure::open().clock(clock));
        stub.set(Mood::Down(ErrorKind::ForeignValue));
        assert!(acquire(&store).await.unwrap());
        stub.set(Mood::Up);
        assert!(!acquire(&store).await.unwrap());
        assert_eq!(log.take(), [""; 0]);
    });
}

/// A store that fails with the text of a server's reply. This text possibly quotes a key.
#[derive(Debug)]
struct Quoting(ErrorKind);

impl Store for Quoting {
    fn decide<'a>(
        &'a self,
        _: Call<'a>,
    ) -> tidegate_core::Answer<'a, Result<tidegate_core::Decision, Error>> {
        let error = Error::new(self.0, "Redis at a:1 refuses").with_source("no access to S3CRET");
        tidegate_core::Answer::ready(Err(error))
    }

    fn now(&self) -> tidegate_core::Answer<'_, Result<tidegate_core::Timestamp, Error>> {
        tidegate_core::Answer::ready(Ok(tidegate_core::Timestamp::EPOCH))
    }
}

#[test]
fn a_servers_reply_is_not_logged_if_it_may_quote_a_key() {
    logged(|log, _, clock| async move {
        for kind in [ErrorKind::Protocol, ErrorKind::Misconfigured, ErrorKind::UnsupportedServer] {
            let on_failure = OnFailure::open().also_on(ErrorKind::Misconfigured);
            let breaker = Breaker::new().failures(1).clock(clock.clone());
            let store = Quoting(kind).breaker(breaker).on_failure(on_failure.clock(clock.clone()));
            assert!(acquire(&store).await.unwrap());
            let lines = log.take();
            assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("Redis at a:1")));
            assert!(!lines.iter().any(|line| line.contains("S3CRET")), "{lines:?}");
        }
    });
}
