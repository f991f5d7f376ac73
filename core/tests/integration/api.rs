//! Tests of properties of the public types on which callers rely, such as `Send` and `Sync`.

use std::fmt::{Debug, Display};
use std::fs;
use std::hash::Hash;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_core::layers::{BreakerStore, DenyCacheStats, DenyCacheStore, FallbackStore};
use tidegate_core::{
    Answer, Breaker, Call, CallId, Charge, Charges, Decision, Degraded, DenyCache, Error,
    ErrorKind, Limiter, ManualClock, MultiRequest, OnFailure, Operation, Outcome, OwnedCall,
    Policy, PolicyError, PolicyVerdict, Receipt, Request, Shards, Share, Store, Subject,
    SystemClock, Timestamp, Verdict,
};
use tidegate_testkit::ModelStore;

/// Checks that each type can be shared between threads. This test succeeds if it compiles.
#[test]
fn types_are_send_and_sync() {
    fn both<T: Send + Sync>() {}
    fn send<T: Send>() {}
    both::<Limiter<ModelStore>>();
    both::<Limiter<Arc<dyn Store>>>();
    both::<Request<'_, ModelStore>>();
    both::<MultiRequest<'_, ModelStore>>();
    both::<BreakerStore<ModelStore, SystemClock>>();
    both::<DenyCacheStore<ModelStore>>();
    both::<FallbackStore<ModelStore>>();
    both::<DenyCacheStats>();
    both::<(Breaker<SystemClock>, DenyCache, OnFailure)>();
    both::<(Call<'_>, Charge<'_>, Charges<'_>, Operation, Policy, PolicyError, Share, Shards)>();
    both::<(Decision, Degraded, Outcome, PolicyVerdict<'_>, Receipt, Verdict)>();
    both::<(Error, ErrorKind, Subject<'_>, Timestamp, ManualClock)>();
    // `Answer` is a future. Only one task polls a future, so `Answer` need not be `Sync`.
    send::<Answer<'_, Decision>>();
}

#[test]
fn futures_of_requests_are_send() {
    fn is_send<T: Send>(_: &T) {}
    let limiter =
        Limiter::new(ModelStore::new(ManualClock::default()), ["gcra 1/1s".parse().unwrap()]);
    let limiter = limiter.unwrap();
    let request = limiter.by("gcra 1/1s", "s");
    is_send(&request.acquire());
    is_send(&request.refund());
    is_send(&request.until_ready());
}

#[test]
fn values_have_the_common_traits() {
    fn value<T: Clone + Debug + Eq + Hash>() {}
    fn shown<T: Display>() {}
    value::<Policy>();
    value::<Timestamp>();
    value::<Outcome>();
    value::<ErrorKind>();
    value::<Share>();
    shown::<Policy>();
    shown::<Timestamp>();
    shown::<Outcome>();
    shown::<Error>();
    let texts = ["a: fixed-window 1/1s", "a: fixed-window 1/1s block 1s", "b: fixed-window 1/1s"];
    let policies: std::collections::HashSet<Policy> =
        texts.iter().chain(&texts).map(|text| Policy::try_from(*text).unwrap()).collect();
    assert_eq!(policies.len(), 3);
}

/// Each backend must contain two lines that re-export the whole core. It is enough to check these
/// lines: if a private item of the backend hid an item of the core, the compiler would warn
/// (`hidden_glob_reexports`).
#[test]
fn each_backend_re_exports_the_whole_core() {
    for backend in ["backend-memory", "backend-redis", "backend-cluster"] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(backend).join("src/lib.rs");
        let source = fs::read_to_string(path).unwrap();
        for line in ["pub use tidegate_core as core;", "pub use tidegate_core::*;"] {
            assert!(source.lines().any(|found| found == line), "{backend} lacks `{line}`");
        }
    }
}

#[test]
#[should_panic = "`Answer` polled after completion"]
fn an_answer_that_is_polled_after_completion_panics() {
    let mut context = Context::from_waker(Waker::noop());
    let mut answer = Answer::ready(7);
    assert_eq!(Pin::new(&mut answer).poll(&mut context), Poll::Ready(7));
    let _ = Pin::new(&mut answer).poll(&mut context);
}

#[test]
fn long_subjects_are_shown_in_part() {
    let (subject, tenant) = (vec![b'a'; 1 << 20], b"t\xff");
    let policy: Policy = "p: gcra 5/1s".parse().unwrap();
    let charges =
        [Charge::new(&policy, &subject).tenant(tenant).cost(2), Charge::new(&policy, "b")];
    let id = CallId::new(b"id\0", Duration::from_secs(1));
    let call = Call::acquire(&charges).with_id(id);
    let limiter = Limiter::new(ModelStore::new(ManualClock::default()), [policy.clone()]).unwrap();
    let request = limiter.subject(&subject);
    let several = limiter.by("p", &subject);
    let shown: [&dyn Debug; 5] = [&charges, &call, &OwnedCall::from(call), &request, &several];
    for value in shown {
        for text in [format!("{value:?}"), format!("{value:#?}")] {
            assert!(text.len() < 5_000, "{text}");
            assert!(text.contains("aaa\"… of 1048576 bytes"), "{text}");
        }
    }
    assert_eq!(
        format!("{:?}", charges[0].check_only().tenant(b"t\xff")).replace(&"a".repeat(100), "a…"),
        r#"Charge(p: gcra 5/1s burst 5, tenant "t\xff", subject "a…"… of 1048576 bytes, cost 2, check-only)"#
    );
    assert_eq!(format!("{id:#?}"), r#"CallId("id\x00", ttl 1s)"#);
}
