//! The deny cache: the denials, and the data that determines whether a denial is still valid.

use super::entry::CallKey;
use super::meter::CacheMeter;
use super::staleness::{ClockGuard, ClockReading};
use super::table::Table;
use crate::Decision;
use crate::layers::generations::Generations;
use crate::sync::hash::RandomState;

#[derive(Debug)]
pub(super) struct Cache {
    pub(super) table: Table,
    pub(super) generations: Generations,
    pub(super) clock_guard: ClockGuard,
    pub(super) hasher: RandomState,
    pub(super) only_exact: bool,
    /// The maximum time in microseconds for which a denial is valid.
    pub(super) max_age: u64,
    pub(super) fixed_bytes: usize,
    pub(super) max_bytes: usize,
    pub(super) meter: CacheMeter,
}

/// The approximate size in bytes of a cached denial with one charge, including its part of the
/// tables.
const ORDINARY_BYTES: usize = 400;

/// The number of generation counters per slot of the table. Several keys share a counter. If a call
/// changes the state of one of these keys, the denials of all these keys become invalid, which
/// costs a call to the store for each of them. With more counters, fewer keys share a counter.
const GENERATIONS_PER_SLOT: usize = 2;

impl Cache {
    pub(super) fn new(max_bytes: usize, only_exact: bool, max_age: u64) -> Self {
        let slots = max_bytes / ORDINARY_BYTES;
        let counts = slots * GENERATIONS_PER_SLOT;
        let fixed_bytes = 2 * size_of::<usize>()
            + size_of::<Self>()
            + Table::bytes_of(slots)
            + Generations::bytes_of(counts);
        Self {
            table: Table::new(slots, max_bytes.saturating_sub(fixed_bytes)),
            generations: Generations::new(counts),
            clock_guard: ClockGuard::default(),
            hasher: RandomState::default(),
            only_exact,
            max_age,
            fixed_bytes,
            max_bytes,
            meter: CacheMeter::default(),
        }
    }

    pub(super) fn find(&self, key: &CallKey<'_>, at: ClockReading) -> Option<Decision> {
        let known = self.table.find(key, at, &self.generations, true);
        match known {
            Some(_) => self.meter.hit(),
            None => self.meter.miss(),
        }
        known
    }

    /// Returns the cached denial of a call, and counts a hit. Does not count a miss, because the
    /// caller then sends the call through the cache, which counts the miss.
    pub(super) fn find_hit(&self, key: &CallKey<'_>, at: ClockReading) -> Option<Decision> {
        let known = self.table.find(key, at, &self.generations, false);
        if known.is_some() {
            self.meter.hit();
        }
        known
    }

    pub(super) fn contains(&self, key: &CallKey<'_>, at: ClockReading) -> bool {
        self.table.contains(key, at, &self.generations)
    }
}
