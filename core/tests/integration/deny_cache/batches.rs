//! Tests of a deny cache that receives batches of calls.

use std::sync::{Arc, Mutex};

use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Call, Charge, Decision, DenyCache, Error, ErrorKind, ManualClock, Operation, Store,
    StoreExt,
};
use tidegate_testkit::ModelStore;

use super::common::{policy, ready};

/// A store that records the size of each batch. The store can leave out the last answer of a batch.
#[derive(Debug)]
struct Batches {
    sizes: Arc<Mutex<Vec<usize>>>,
    loses_the_last: bool,
}

impl<S: Store> Layer<S> for Batches {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.sizes.lock().unwrap().push(calls.len());
        let answered = calls.len() - usize::from(self.loses_the_last);
        Answer::ready(calls[..answered].iter().map(|call| ready(inner.decide(*call))).collect())
    }
}

fn batches(loses_the_last: bool) -> (impl Store, Arc<Mutex<Vec<usize>>>) {
    let (clock, sizes) = (ManualClock::default(), Arc::default());
    let batches = Batches { sizes: Arc::clone(&sizes), loses_the_last };
    let store = ModelStore::new(clock.clone()).layer(batches);
    (store.deny_cache(DenyCache::new().clock(clock)), sizes)
}

/// Makes one acquire for each subject, all in one batch. Returns `+` for each admitted call and `-`
/// for each denied call.
fn acquire(store: &impl Store, subjects: &str) -> String {
    let log = policy("sliding-log 1/1h");
    let names: Vec<String> = subjects.chars().map(String::from).collect();
    let charges: Vec<[Charge<'_>; 1]> =
        names.iter().map(|name| [Charge::new(&log, name)]).collect();
    let calls: Vec<Call<'_>> = charges.iter().map(|charge| Call::acquire(charge)).collect();
    let decisions = crate::run(store.decide_many(&calls));
    assert_eq!(decisions.len(), calls.len());
    decisions.iter().map(|d| if d.as_ref().unwrap().is_allowed() { '+' } else { '-' }).collect()
}

#[test]
fn the_store_gets_one_batch_of_the_calls_that_the_cache_cannot_answer() {
    let (store, sizes) = batches(false);
    assert_eq!(acquire(&store, "abc"), "+++");
    assert_eq!(acquire(&store, "acx"), "--+");
    assert_eq!(acquire(&store, "yabczx"), "+---+-");
    assert_eq!(acquire(&store, "acbx"), "----");
    assert_eq!(acquire(&store, ""), "");
    // In the third batch, the cache answers the calls for `a` and `c`. In the fourth batch, the
    // cache answers all calls.
    assert_eq!(*sizes.lock().unwrap(), [3, 3, 4]);
}

#[test]
fn b45_a_call_after_a_refund_in_one_batch_is_not_answered_from_the_cache() {
    let (store, sizes) = batches(false);
    assert_eq!(acquire(&store, "a"), "+");
    assert_eq!(acquire(&store, "a"), "-");
    let log = policy("sliding-log 1/1h");
    let charge = [Charge::new(&log, "a")];
    let acquire = Call::acquire(&charge);
    let calls = [acquire, Call::new(Operation::Refund, &charge), acquire, acquire];
    let decisions = crate::run(store.decide_many(&calls));
    let allowed: Vec<bool> = decisions.iter().map(|d| d.as_ref().unwrap().is_allowed()).collect();
    assert_eq!(allowed, [false, true, true, false]);
    assert_eq!(*sizes.lock().unwrap(), [1, 1, 3]);
}

#[test]
fn a_call_after_an_acquire_in_one_batch_is_not_answered_from_the_cache() {
    let (store, sizes) = batches(false);
    let bucket = policy("token-bucket 1/1s burst 4");
    let costs = [2, 1, 4].map(|cost| [Charge::new(&bucket, "a").cost(cost)]);
    let [two, one, four] = costs.each_ref().map(|charge| Call::acquire(charge));
    assert!(ready(store.decide(two)).unwrap().is_allowed());
    let wait = |d: &Decision| d.retry_after().unwrap().as_secs();
    assert_eq!(wait(&ready(store.decide(four)).unwrap()), 2);
    let decisions = crate::run(store.decide_many(&[four, one, four]))
        .into_iter()
        .map(|decision| wait(&decision.unwrap()));
    assert_eq!(decisions.collect::<Vec<_>>(), [2, 0, 3]);
    assert_eq!(*sizes.lock().unwrap(), [2]);
}

#[test]
fn a_missing_answer_is_an_error_of_its_call_only() {
    let (store, _) = batches(true);
    let log = policy("sliding-log 1/1h");
    let charges = [[Charge::new(&log, "a")], [Charge::new(&log, "b")]];
    let calls = charges.each_ref().map(|charge| Call::acquire(charge));
    let decisions = crate::run(store.decide_many(&calls));
    assert!(decisions[0].as_ref().unwrap().is_allowed());
    assert_eq!(decisions[1].as_ref().unwrap_err().kind(), ErrorKind::Protocol);
}
