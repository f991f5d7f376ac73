//! Fixtures. A fixture opens the empty stores that the suite tests, and reads the contents of a
//! store.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::{ManualClock, Store};

use crate::env::from_env;
use crate::generate::ClockKind;

/// A fixture opens the stores that the suite tests, and reads the contents of the stores.
///
/// For most stores, a closure is enough: see [`fixture`](crate::fixture()). Implement this trait
/// for a store that runs on a server, or that is opened asynchronously. The method `open` is
/// allowed to wait. It returns the store and a guard, which the suite keeps until the case is over.
///
/// ```
/// use tidegate_core::ManualClock;
/// use tidegate_testkit::{Fixture, ModelStore, conformance};
///
/// struct OnServer;
///
/// impl Fixture for OnServer {
///     type Store = ModelStore;
///     type Guard = ();
///
///     async fn open(&self, clock: ManualClock) -> (ModelStore, ()) {
///         // Connect here, with a key prefix that no other store uses.
///         (ModelStore::new(clock), ())
///     }
///
///     async fn snapshot(&self, store: &ModelStore) -> Option<Vec<u8>> {
///         Some(store.snapshot())
///     }
/// }
///
/// conformance!(my_store, fixture: OnServer);
/// # fn main() {}
/// ```
pub trait Fixture {
    /// The type of the store under test.
    type Store: Store + 'static;

    /// The type of the guard, a value that must live as long as the store. For example, a guard
    /// stops the store's server when the guard is dropped.
    type Guard;

    /// Opens an empty store that takes its time from `clock`. The new store must not share a state
    /// with any store that was opened before. For example, give each store its own key prefix. The
    /// suite calls this method once per case. A property that compares two stores calls it twice
    /// per case.
    fn open(&self, clock: ManualClock) -> impl Future<Output = (Self::Store, Self::Guard)>;

    /// Returns the complete contents of the store as bytes. The format is arbitrary, but different
    /// contents must give different bytes. The default is `None`, for a store that cannot list its
    /// contents. In this case, the suite compares verdicts only.
    fn snapshot(&self, store: &Self::Store) -> impl Future<Output = Option<Vec<u8>>> {
        let _ = store;
        async { None }
    }

    /// Opens a second store that shares the states of `store`, as a second process would. The
    /// second store has its own connections. The default is `None`, for a store that keeps its
    /// states in its own memory.
    fn open_again(
        &self,
        store: &Self::Store,
        clock: ManualClock,
    ) -> impl Future<Output = Option<Self::Store>> {
        let _ = (store, clock);
        async { None }
    }

    /// Returns the number of random cases per property: the value of the variable
    /// `TIDEGATE_CASES`, or 64. The variable `PROPTEST_RNG_SEED` selects the cases.
    fn cases(&self) -> u32 {
        from_env("TIDEGATE_CASES", 64)
    }

    /// Returns the maximum duration of a case with many callers. If the case takes longer, the
    /// suite reports a deadlock. The default is one minute.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Returns the number of calls in the longest case: the value of the variable `TIDEGATE_STEPS`,
    /// or 20,000. Return a smaller number if the calls of your store are slow.
    fn steps(&self) -> u32 {
        from_env("TIDEGATE_STEPS", 20_000)
    }

    /// Returns the directory for the seeds of failing random cases, one file per property. When a
    /// property runs again, it tries the stored seeds first. Commit the files.
    ///
    /// The default is the directory `proptest-regressions/conformance` in the package under test,
    /// whose path is in Cargo's variable `CARGO_MANIFEST_DIR`. The default is `None` if the
    /// variable `PROPTEST_DISABLE_FAILURE_PERSISTENCE` is set.
    fn regressions(&self) -> Option<PathBuf> {
        if std::env::var_os("PROPTEST_DISABLE_FAILURE_PERSISTENCE").is_some() {
            return None;
        }
        let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
        Some(package.join("proptest-regressions/conformance"))
    }

    /// Returns how the clock moves in random traces whose calls have several charges. By default,
    /// the clock moves forwards and back.
    ///
    /// Return `Forwards` for a store that charges one state, and refunds this charge if another
    /// state refuses. A refused call then refills the first state up to the current time. If the
    /// clock steps back after this, decisions would differ from a store that writes nothing on a
    /// refusal.
    fn moves_with_several(&self) -> ClockKind {
        ClockKind::Jumping
    }
}

/// A fixture that opens stores with a closure. The function [`fixture`](crate::fixture()) creates
/// such a fixture.
#[derive(Debug, Clone)]
pub struct FromFn<M, L> {
    make: M,
    snapshot: L,
}

type Snapshot<S> = fn(&S) -> Option<Vec<u8>>;

/// Creates a fixture for a store that a closure can create without waiting.
pub fn fixture<S, M>(make: M) -> FromFn<M, Snapshot<S>>
where
    S: Store + 'static,
    M: Fn(ManualClock) -> S,
{
    FromFn { make, snapshot: |_| None }
}

impl<M, L> FromFn<M, L> {
    /// Adds a function that returns the complete contents of the store. The suite then compares the
    /// contents before and after each call that must not write, byte for byte.
    pub fn with_snapshot<S, K>(self, snapshot: K) -> FromFn<M, impl Fn(&S) -> Option<Vec<u8>>>
    where
        K: Fn(&S) -> Vec<u8>,
    {
        FromFn { make: self.make, snapshot: move |store: &S| Some(snapshot(store)) }
    }
}

impl<S, M, L> Fixture for FromFn<M, L>
where
    S: Store + 'static,
    M: Fn(ManualClock) -> S,
    L: Fn(&S) -> Option<Vec<u8>>,
{
    type Store = S;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (S, ()) {
        ((self.make)(clock), ())
    }

    async fn snapshot(&self, store: &S) -> Option<Vec<u8>> {
        (self.snapshot)(store)
    }
}
