//! The stores of a replay.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_core::{
    Answer, Clock, CurrentLimits, Error, ErrorKind, ManualClock, PolicyLists, Store, StoreExt,
};
use tidegate_memory::{MemoryStore, WhenFull};

use super::backend::Backend;
use super::grants::MAX_GRANTS;

/// The maximum number of ids of grants. It is four times the maximum number of grants, because a
/// store refuses an id if its shard of the ids is full.
const MAX_IDS: usize = 4 * MAX_GRANTS;

/// Opens stores on one backend, and waits for their answers.
#[derive(Debug, Clone)]
pub(super) struct Stores {
    backend: Backend,
    /// The prefix of the keys of all opened stores.
    prefix: Rc<str>,
    /// The number of stores that were opened.
    opened: Rc<Cell<u32>>,
    /// The lists of all policies.
    lists: PolicyLists,
}

impl Stores {
    pub(super) fn new(backend: Backend) -> Self {
        let (prefix, lists) = (unused_prefix().into(), PolicyLists::new());
        Self { backend, prefix, opened: Rc::default(), lists }
    }

    /// Opens an empty store that has the time of `clock` and applies `limits`.
    pub(super) fn open(
        &self,
        clock: ManualClock,
        limits: CurrentLimits,
    ) -> Result<Box<dyn Store>, Error> {
        let number = self.opened.get();
        self.opened.set(number + 1);
        let lists = self.lists.clone();
        match &self.backend {
            Backend::Memory => Ok(Box::new(memory(clock, MAX_IDS).listed(lists).adjusted(limits))),
            Backend::Server(server) => {
                let store = server.open(&format!("{}{number}", self.prefix), clock)?;
                Ok(Box::new(store.listed(lists).adjusted(limits)))
            }
        }
    }

    /// Returns the lists that the opened stores share.
    pub(super) fn lists(&self) -> &PolicyLists {
        &self.lists
    }

    /// Returns the prefix of the keys of all opened stores.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns `true` if states outlive the replay, so that the replay must delete them.
    pub(super) fn outlive_the_replay(&self) -> bool {
        !self.backend.is_memory()
    }

    #[inline]
    pub(super) fn wait<T>(&self, answer: Answer<'_, Result<T, Error>>) -> Result<T, Error> {
        match (answer.into_ready(), &self.backend) {
            (Ok(answer), _) => answer,
            (Err(later), Backend::Server(server)) => server.wait(later),
            (Err(_), Backend::Memory) => Err(none_at_hand()),
        }
    }

    /// Waits for all answers concurrently. Returns the first error, if there is one.
    pub(super) fn wait_for_all<T>(
        &self,
        answers: Vec<Answer<'_, Result<T, Error>>>,
    ) -> Result<Vec<T>, Error> {
        match &self.backend {
            Backend::Memory => answers.into_iter().map(|answer| self.wait(answer)).collect(),
            Backend::Server(server) => server.wait_for_all(answers),
        }
    }
}

/// Opens a store in memory. If the store is full, it refuses calls and evicts no state, because an
/// evicted state would make the replay inexact.
pub(super) fn memory<C: Clock>(clock: C, max_ids: usize) -> MemoryStore<C> {
    MemoryStore::builder()
        .clock(clock)
        .max_keys(1 << 26)
        .max_spill_bytes(usize::MAX)
        .max_ids(max_ids)
        .when_full(WhenFull::Refuse)
        .build()
}

pub(super) fn no_runtime(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime cannot start").with_source(error)
}

pub(super) fn none_at_hand() -> Error {
    Error::new(ErrorKind::Timeout, "the store did not answer immediately")
}

/// Returns a prefix that no other replay on the same server uses.
fn unused_prefix() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("tidegate-replay-{}-{}-", std::process::id(), now.as_nanos())
}
