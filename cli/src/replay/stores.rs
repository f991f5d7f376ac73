//! The stores of a replay.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use tidegate_cluster::StoreBuilder;
use tidegate_core::{Answer, Clock, Error, ErrorKind, ManualClock, Store};
use tidegate_memory::{MemoryStore, WhenFull};

use super::backend::Backend;

/// Maximum wait for a reply: long, as nothing but the replay waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens stores on one backend, and waits for their answers.
#[derive(Debug, Clone)]
pub(super) struct Stores {
    backend: Backend,
    /// Runtime of the connections to a server.
    runtime: Option<Rc<Runtime>>,
    /// Prefix of the keys of all these stores, and the number of stores.
    prefix: Rc<str>,
    opened: Rc<Cell<u32>>,
}

impl Stores {
    pub(super) fn new(backend: Backend) -> Result<Self, Error> {
        let runtime = match backend {
            Backend::Memory => None,
            Backend::Server(_) => Some(Rc::new(runtime()?)),
        };
        Ok(Self { backend, runtime, prefix: unused_prefix().into(), opened: Rc::default() })
    }

    /// A store that is empty and shows the time of `clock`.
    pub(super) fn open(&self, clock: ManualClock) -> Result<Box<dyn Store>, Error> {
        let number = self.opened.get();
        self.opened.set(number + 1);
        let prefix = format!("{}{number}", self.prefix);
        Ok(match &self.backend {
            Backend::Memory => Box::new(memory(clock, 0)),
            Backend::Server(builder) => {
                let builder = StoreBuilder::clone(builder).prefix(prefix);
                Box::new(builder.response_timeout(PATIENCE).clock(clock).build()?)
            }
        })
    }

    /// Prefix of the keys of all these stores.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether states outlive the replay, and must be deleted.
    pub(super) fn outlive_the_replay(&self) -> bool {
        !self.backend.is_memory()
    }

    #[inline]
    pub(super) fn wait<T>(&self, answer: Answer<'_, Result<T, Error>>) -> Result<T, Error> {
        match (answer.into_ready(), &self.runtime) {
            (Ok(answer), _) => answer,
            (Err(later), Some(runtime)) => runtime.block_on(later),
            (Err(_), None) => Err(none_at_hand()),
        }
    }

    /// Waits for all the answers at once; the first error is that of all.
    pub(super) fn wait_for_all<T>(
        &self,
        answers: Vec<Answer<'_, Result<T, Error>>>,
    ) -> Result<Vec<T>, Error> {
        let runtime = self.runtime.as_ref().ok_or_else(none_at_hand)?;
        runtime.block_on(join_all(answers)).into_iter().collect()
    }
}

/// A replay is exact or fails: no state is evicted that still matters.
pub(super) fn memory<C: Clock>(clock: C, max_ids: usize) -> MemoryStore<C> {
    MemoryStore::builder()
        .clock(clock)
        .max_keys(1 << 26)
        .max_spill_bytes(usize::MAX)
        .max_ids(max_ids)
        .when_full(WhenFull::Refuse)
        .build()
}

fn runtime() -> Result<Runtime, Error> {
    Builder::new_current_thread().enable_all().build().map_err(no_runtime)
}

pub(super) fn no_runtime(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no runtime for tasks").with_source(error)
}

pub(super) fn none_at_hand() -> Error {
    Error::new(ErrorKind::Timeout, "the store has no answer at hand")
}

/// Replays share a server with each other, and with whatever else is there.
fn unused_prefix() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("tidegate-replay-{}-{}-", std::process::id(), now.as_nanos())
}
