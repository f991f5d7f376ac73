//! Tests of layers that applications define. Such a layer forwards each method that it does not
//! override.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::sync::Mutex;

use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Call, Charge, Charges, Decision, Error, ErrorKind, Limiter, ManualClock, Outcome,
    Policy, Store, StoreExt, Timestamp, Verdict,
};
use tidegate_testkit::ModelStore;

/// A layer that overrides only the methods without a default.
#[derive(Debug, Clone)]
struct Forward;

impl<S: Store> Layer<S> for Forward {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        inner.decide_many(calls)
    }
}

/// A layer that declares that its calls can wait.
#[derive(Debug)]
struct Waiting;

impl<S: Store> Layer<S> for Waiting {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(inner.decide(call))
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        Answer::later(inner.decide_many(calls))
    }
}

/// A store that overrides all methods of the trait `Store`, with answers that differ from the
/// defaults. It records the names of the methods that are called.
#[derive(Debug, Default)]
struct Unusual(Mutex<Vec<&'static str>>);

impl Unusual {
    fn record(&self, method: &'static str) {
        self.0.lock().unwrap().push(method);
    }
}

fn allowed() -> Result<Decision, Error> {
    Ok(Decision::one(Verdict::new(Outcome::Allowed, 1)))
}

impl Store for Unusual {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.record("decide");
        Answer::ready(allowed())
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.record("decide_many");
        Answer::ready(calls.iter().map(|_| allowed()).collect())
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.record("now");
        Answer::ready(Ok(Timestamp::from_micros(7)))
    }

    fn ready(&self) -> Answer<'_, Result<(), Error>> {
        self.record("ready");
        Answer::ready(Err(Error::new(ErrorKind::ReadOnly, "no writes")))
    }

    fn answers_immediately(&self) -> bool {
        self.record("answers_immediately");
        true
    }

    fn batch_group(&self, _: &Call<'_>) -> Option<u64> {
        self.record("batch_group");
        Some(42)
    }

    fn until_turn(&self, _: Charges<'_>, place: u64) -> Option<Answer<'_, ()>> {
        self.record("until_turn");
        (place == 7).then(|| Answer::ready(()))
    }

    fn supports(&self, _: &Policy) -> Result<(), Error> {
        self.record("supports");
        Err(Error::new(ErrorKind::Unsupported, "no policies"))
    }
}

#[test]
fn a_layer_forwards_each_method_that_it_does_not_override() {
    crate::run(async {
        let policy: Policy = "p: fixed-window 1/1h".parse().unwrap();
        let charges = [Charge::new(&policy, "s")];
        let call = Call::acquire(&charges);
        let store = Unusual::default().layer(Forward).layer(Forward);
        assert!(store.decide(call).await.unwrap().is_allowed());
        assert_eq!(store.decide_many(&[call, call]).await.len(), 2);
        assert_eq!(store.now().await.unwrap(), Timestamp::from_micros(7));
        assert_eq!(store.ready().await.unwrap_err().kind(), ErrorKind::ReadOnly);
        assert!(store.answers_immediately());
        assert_eq!(store.batch_group(&call), Some(42));
        assert!(store.until_turn(call.charges, 7).is_some());
        assert_eq!(store.supports(&policy).unwrap_err().kind(), ErrorKind::Unsupported);
        let methods = [
            "decide",
            "decide_many",
            "now",
            "ready",
            "answers_immediately",
            "batch_group",
            "until_turn",
            "supports",
        ];
        assert_eq!(*store.inner().inner().0.lock().unwrap(), methods);
    });
}

#[test]
fn a_layer_supports_refund_lapsed_exactly_if_the_inner_store_does() {
    let policy: Policy = "p: gcra 5/1s refund-lapsed".parse().unwrap();
    let model = || ModelStore::new(ManualClock::default());
    assert!(Limiter::new(model().layer(Forward), [policy.clone()]).is_ok());
    let error = Limiter::new(Unusual::default().layer(Forward), [policy]).unwrap_err();
    assert_eq!(error.to_string(), "unsupported: no policies");
}

#[test]
fn a_store_with_a_layer_that_may_wait_does_not_promise_immediate_answers() {
    let model = || ModelStore::new(ManualClock::default());
    assert!(model().layer(Forward).answers_immediately());
    assert!(!model().layer(Waiting).answers_immediately());
    assert!(!model().layer(Waiting).layer(Forward).answers_immediately());
}
