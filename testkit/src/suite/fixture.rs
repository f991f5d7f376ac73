//! What the suite needs to know of a store: how to open an empty one.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::{ManualClock, Store};

use crate::env::from_env;
use crate::generate::ClockKind;

/// How the suite opens a store, and looks into it.
///
/// For most stores a closure is enough: see [`fixture`]. A store that lives on a server implements
/// this: `open` may wait, and what it returns beside the store is kept until the case is over.
pub trait Fixture {
    /// The store.
    type Store: Store + 'static;

    /// What has to live as long as the store, such as a server that stops when it is dropped.
    type Guard;

    /// Opens a store that shows the time of `clock` and is empty: one that shares no state with
    /// those opened before, as by a key prefix of its own. Called once per case.
    fn open(&self, clock: ManualClock) -> impl Future<Output = (Self::Store, Self::Guard)>;

    /// All that is stored, in any form that differs where anything differs; `None` if the store
    /// cannot tell, and is only looked at from outside.
    fn snapshot(&self, store: &Self::Store) -> impl Future<Output = Option<Vec<u8>>> {
        let _ = store;
        async { None }
    }

    /// Opens another store on the states of this one, as another process has it: with connections of its own. `None`, the
    /// default, if the states live in the store.
    fn open_again(
        &self,
        store: &Self::Store,
        clock: ManualClock,
    ) -> impl Future<Output = Option<Self::Store>> {
        let _ = (store, clock);
        async { None }
    }

    /// Returns the number of random cases per property: the variable `TIDEGATE_CASES`, or 64. The
    /// variable `PROPTEST_RNG_SEED` selects the cases.
    fn cases(&self) -> u32 {
        from_env("TIDEGATE_CASES", 64)
    }

    /// How long a case of many callers may take before it counts as a deadlock: a minute.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How many calls to make where it takes many: the variable `TIDEGATE_STEPS`, or 1,000,000.
    fn steps(&self) -> u32 {
        from_env("TIDEGATE_STEPS", 1_000_000)
    }

    /// Folder in which the seeds of failing random cases are kept, a file per property; they are tried
    /// first when the property runs again. Commit the files.
    ///
    /// By default `proptest-regressions/conformance` in the package under test, which cargo names while
    /// it runs tests; none if `PROPTEST_DISABLE_FAILURE_PERSISTENCE` is set.
    fn regressions(&self) -> Option<PathBuf> {
        if std::env::var_os("PROPTEST_DISABLE_FAILURE_PERSISTENCE").is_some() {
            return None;
        }
        let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
        Some(package.join("proptest-regressions/conformance"))
    }

    /// How the clock moves where calls have several charges: both ways. Forwards only suits a store that
    /// takes of a state and gives back where another refuses: the state has then seen that time, and a
    /// clock that steps back finds what has come back until then, where other stores have written nothing.
    fn moves_with_several(&self) -> ClockKind {
        ClockKind::Jumping
    }
}

/// A fixture made of a closure that makes a store: see [`fixture`].
#[derive(Debug, Clone)]
pub struct FromFn<M, L> {
    make: M,
    look: L,
}

/// Tells all that a store has stored, if it can.
type Look<S> = fn(&S) -> Option<Vec<u8>>;

/// The fixture for a store that can be made at once.
pub fn fixture<S, M>(make: M) -> FromFn<M, Look<S>>
where
    S: Store + 'static,
    M: Fn(ManualClock) -> S,
{
    FromFn { make, look: |_| None }
}

impl<M, L> FromFn<M, L> {
    /// The same fixture, for a store that can tell all that it has stored: then what must write
    /// nothing is compared byte for byte.
    pub fn with_snapshot<S, K>(self, look: K) -> FromFn<M, impl Fn(&S) -> Option<Vec<u8>>>
    where
        K: Fn(&S) -> Vec<u8>,
    {
        FromFn { make: self.make, look: move |store: &S| Some(look(store)) }
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
        (self.look)(store)
    }
}
