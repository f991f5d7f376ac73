//! A fixture without its type, so that the suite is compiled once and not again for each store.
//! Compiling the suite for one type of store takes minutes.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tidegate_core::{Answer, Call, Decision, Error, ManualClock, Policy, Store, Timestamp};

use super::fixture::Fixture;
use crate::generate::ClockKind;

/// A fixture of any type.
pub(super) struct Erased<'f>(&'f dyn ErasedFixture<'f>);

impl<'f> Erased<'f> {
    pub(super) fn new<F: Fixture>(fixture: &'f F) -> Self {
        Self(fixture)
    }
}

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The methods of [`Fixture`] without its associated types.
trait ErasedFixture<'f> {
    fn open(&'f self, clock: ManualClock) -> Later<'f, (AnyStore, Box<dyn Guard + 'f>)>;
    fn snapshot<'a>(&'a self, store: &'a AnyStore) -> Later<'a, Option<Vec<u8>>>;
    fn open_again<'a>(
        &'a self,
        store: &'a AnyStore,
        clock: ManualClock,
    ) -> Later<'a, Option<AnyStore>>;
    fn cases(&self) -> u32;
    fn patience(&self) -> Duration;
    fn steps(&self) -> u32;
    fn regressions(&self) -> Option<PathBuf>;
    fn moves_with_several(&self) -> ClockKind;
}

/// The guard of any fixture. The suite only drops it, at the end of a case.
pub(super) trait Guard {}

impl<G> Guard for G {}

impl<'f, F: Fixture> ErasedFixture<'f> for F {
    fn open(&'f self, clock: ManualClock) -> Later<'f, (AnyStore, Box<dyn Guard + 'f>)> {
        Box::pin(async {
            let (store, guard) = Fixture::open(self, clock).await;
            (AnyStore(Box::new(store)), Box::new(guard) as Box<dyn Guard + 'f>)
        })
    }

    fn snapshot<'a>(&'a self, store: &'a AnyStore) -> Later<'a, Option<Vec<u8>>> {
        Box::pin(async { Fixture::snapshot(self, store.opened_by::<F>()).await })
    }

    fn open_again<'a>(
        &'a self,
        store: &'a AnyStore,
        clock: ManualClock,
    ) -> Later<'a, Option<AnyStore>> {
        Box::pin(async {
            let another = Fixture::open_again(self, store.opened_by::<F>(), clock).await;
            another.map(|store| AnyStore(Box::new(store)))
        })
    }

    fn cases(&self) -> u32 {
        Fixture::cases(self)
    }

    fn patience(&self) -> Duration {
        Fixture::patience(self)
    }

    fn steps(&self) -> u32 {
        Fixture::steps(self)
    }

    fn regressions(&self) -> Option<PathBuf> {
        Fixture::regressions(self)
    }

    fn moves_with_several(&self) -> ClockKind {
        Fixture::moves_with_several(self)
    }
}

impl<'f> Fixture for Erased<'f> {
    type Store = AnyStore;
    type Guard = Box<dyn Guard + 'f>;

    async fn open(&self, clock: ManualClock) -> (AnyStore, Self::Guard) {
        self.0.open(clock).await
    }

    async fn snapshot(&self, store: &AnyStore) -> Option<Vec<u8>> {
        self.0.snapshot(store).await
    }

    async fn open_again(&self, store: &AnyStore, clock: ManualClock) -> Option<AnyStore> {
        self.0.open_again(store, clock).await
    }

    fn cases(&self) -> u32 {
        self.0.cases()
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }

    fn steps(&self) -> u32 {
        self.0.steps()
    }

    fn regressions(&self) -> Option<PathBuf> {
        self.0.regressions()
    }

    fn moves_with_several(&self) -> ClockKind {
        self.0.moves_with_several()
    }
}

/// Any store.
pub(super) struct AnyStore(Box<dyn Looked>);

impl AnyStore {
    /// Of what is in the box: the box is a store, too.
    fn opened_by<F: Fixture>(&self) -> &F::Store {
        match (*self.0).as_any().downcast_ref() {
            Some(store) => store,
            None => panic!("a fixture looks only into stores that it has opened"),
        }
    }
}

/// A store that a fixture can look into again.
trait Looked: Store + Any {
    fn as_any(&self) -> &dyn Any;
}

impl<S: Store + Any> Looked for S {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Store for AnyStore {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.0.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.0.decide_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.now()
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        self.0.supports(policy)
    }
}
