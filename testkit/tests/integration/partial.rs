//! Tests of the conformance suite on stores that support only some policies. The suite uses only
//! the supported policies, and still finds a defect of the store.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use tidegate_core::engine::StateShape;
use tidegate_core::layers::{Layer, Layered};
use tidegate_core::{
    Answer, Call, Decision, Error, ErrorKind, ManualClock, Operation, Policy, Store, StoreExt,
};
use tidegate_testkit::suite::{check, properties};
use tidegate_testkit::{Fixture, ModelStore, conformance, decide_one_by_one};

/// A [`ModelStore`] that supports only some policies.
type PartialStore = Layered<Partial, ModelStore>;

/// A layer that does not support some policies. For such a policy, `supports` and `decide` return
/// an error.
#[derive(Debug)]
struct Partial {
    supports: fn(&Policy) -> bool,
    /// Whether the layer has a defect: a refused call still charges a cost of 1, if this cost fits.
    charges_denials: bool,
}

impl Partial {
    fn check(&self, policy: &Policy) -> Result<(), Error> {
        match (self.supports)(policy) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Unsupported, format!("not `{policy}`"))),
        }
    }
}

impl<S: Store> Layer<S> for Partial {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if let Some(error) = call.charges.iter().find_map(|c| self.check(c.policy).err()) {
            return Answer::ready(Err(error));
        }
        let answer = inner.decide(call);
        if !self.charges_denials || call.operation != Operation::Acquire {
            return answer;
        }
        let answer = answer.into_ready().unwrap();
        if answer.as_ref().is_ok_and(Decision::is_denied) {
            for charge in call.charges.iter() {
                drop(inner.decide(Call::acquire(&[charge.cost(1)])).into_ready());
            }
        }
        Answer::ready(answer)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }

    fn supports(&self, _: &S, policy: &Policy) -> Result<(), Error> {
        self.check(policy)
    }
}

fn partial(supports: fn(&Policy) -> bool) -> impl Fn(ManualClock) -> PartialStore {
    move |clock| ModelStore::new(clock).layer(Partial { supports, charges_denials: false })
}

fn partial_with_defect(supports: fn(&Policy) -> bool) -> impl Fn(ManualClock) -> PartialStore {
    move |clock| ModelStore::new(clock).layer(Partial { supports, charges_denials: true })
}

fn is_bucket(policy: &Policy) -> bool {
    policy.rule().can_reserve()
}

fn is_window(policy: &Policy) -> bool {
    matches!(policy.rule().shape(), StateShape::FixedWindow(..))
}

fn is_long(policy: &Policy) -> bool {
    policy.max_retention() >= std::time::Duration::from_secs(1)
}

fn does_not_block(policy: &Policy) -> bool {
    is_window(policy) && policy.block_duration().is_none() && !policy.is_shadow()
}

conformance!(buckets_only, partial(is_bucket));
conformance!(windows_only, partial(is_window));
conformance!(plain_windows_only, partial(does_not_block));
conformance!(long_memories_only, partial(is_long));

/// A fixture that opens stores with a defect, and saves no seeds of failing cases, because these
/// stores fail on purpose.
struct Failing<M>(M);

impl<M: Fn(ManualClock) -> PartialStore> Fixture for Failing<M> {
    type Store = PartialStore;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (PartialStore, ()) {
        ((self.0)(clock), ())
    }

    fn regressions(&self) -> Option<PathBuf> {
        None
    }
}

/// Runs a property. Returns the panic message if the property fails, or `None` if it passes.
fn failure(make: impl Fn(ManualClock) -> PartialStore, property: &str) -> Option<String> {
    let result = catch_unwind(AssertUnwindSafe(|| check(&Failing(&make), property)));
    result.err().map(|payload| *payload.downcast::<String>().unwrap())
}

#[test]
fn a_defect_of_a_store_with_buckets_only_is_found() {
    for (supports, algorithm) in [(is_bucket as fn(&Policy) -> bool, "token"), (is_window, "fixed")]
    {
        let make = partial_with_defect(supports);
        for property in ["b01_a_denial_writes_nothing", "b04_a_denied_decision_charges_no_member"] {
            let message = failure(&make, property).unwrap();
            assert!(message.contains(algorithm), "{message}");
        }
    }
    let make = partial_with_defect(is_bucket);
    assert!(failure(&make, "token_bucket_decides_as_the_oracle").is_some());
    assert!(failure(&make, "several_charges_are_decided_as_by_the_oracle").is_some());
    assert!(failure(&make, "sliding_log_decides_as_the_oracle").is_none(), "there are no logs");
}

/// A fixture that opens stores that support no policy.
struct Nothing;

impl Fixture for Nothing {
    type Store = PartialStore;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (PartialStore, ()) {
        (partial(|_| false)(clock), ())
    }

    fn cases(&self) -> u32 {
        4
    }

    fn regressions(&self) -> Option<PathBuf> {
        None
    }
}

#[test]
fn a_store_that_supports_nothing_fails() {
    let mut failed = 0;
    for property in properties() {
        let result = catch_unwind(|| check(&Nothing, property));
        if let Err(payload) = result {
            let message = payload.downcast::<String>().unwrap();
            assert!(message.contains("supports none of the policies"), "{message}");
            failed += 1;
        }
    }
    // Up to three properties pass, because they need no policy: one tests the clock, and the others
    // test policies that cannot be built.
    assert!(failed >= properties().len() - 3, "{failed} of {}", properties().len());
}

/// Checks that the suite runs each case with a policy that the store supports. The test counts the
/// calls of `supports`: the suite makes at least one per case.
#[test]
fn supported_policies_are_asked_for() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    fn counts(policy: &Policy) -> bool {
        ASKED.fetch_add(1, Ordering::Relaxed);
        is_bucket(policy)
    }
    assert_eq!(failure(partial(counts), "gcra_decides_as_the_oracle"), None);
    assert!(ASKED.load(Ordering::Relaxed) >= 64, "as many as there are cases");
}
