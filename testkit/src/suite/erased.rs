//! A fixture whose type is erased, so that the suite is compiled only once. Compiling the suite for
//! each type of store would take minutes each time.

use std::any::Any;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{ManualClock, Store, StoreExt};

use super::fixture::Fixture;
use crate::generate::ClockKind;
use crate::stores::{Context, StoreWithContext};

pub(super) struct Erased<'f>(&'f dyn ErasedFixture<'f>);

impl<'f> Erased<'f> {
    pub(super) fn new<F: Fixture>(fixture: &'f F) -> Self {
        Self(fixture)
    }
}

pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

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

/// The guard of any fixture, which the suite drops at the end of a case.
pub(super) trait Guard {}

impl<G> Guard for G {}

impl<'f, F: Fixture> ErasedFixture<'f> for F {
    fn open(&'f self, clock: ManualClock) -> Later<'f, (AnyStore, Box<dyn Guard + 'f>)> {
        Box::pin(async {
            let (store, guard) = Fixture::open(self, clock).await;
            (erase(store), Box::new(guard) as Box<dyn Guard + 'f>)
        })
    }

    fn snapshot<'a>(&'a self, store: &'a AnyStore) -> Later<'a, Option<Vec<u8>>> {
        Box::pin(async { Fixture::snapshot(self, opened_by::<F>(store)).await })
    }

    fn open_again<'a>(
        &'a self,
        store: &'a AnyStore,
        clock: ManualClock,
    ) -> Later<'a, Option<AnyStore>> {
        Box::pin(async { Fixture::open_again(self, opened_by::<F>(store), clock).await.map(erase) })
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

/// A store whose type is erased. Its context is an `Arc` of the same store with its original type.
pub(super) type AnyStore = StoreWithContext<Arc<dyn Store>, Box<dyn Any + Send + Sync>>;

fn erase<S: Store + 'static>(store: S) -> AnyStore {
    let store = Arc::new(store);
    let typed = Box::new(Arc::clone(&store)) as Box<dyn Any + Send + Sync>;
    (store as Arc<dyn Store>).layer(Context(typed))
}

fn opened_by<F: Fixture>(store: &AnyStore) -> &F::Store {
    match store.as_layer().0.downcast_ref::<Arc<F::Store>>() {
        Some(store) => store,
        None => panic!("a fixture must only read stores that it has opened"),
    }
}
