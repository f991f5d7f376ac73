//! The cache: denials, and the state that decides whether a denial is valid.

use super::entry::CallKey;
use super::meter::CacheMeter;
use super::staleness::{ClockGuard, ClockReading};
use super::table::Table;
use crate::Decision;
use crate::layers::generations::Generations;
use crate::sync::hash::RandomState;

/// The cached denials, and the state that decides whether a denial is valid.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) table: Table,
    pub(super) generations: Generations,
    pub(super) clock_guard: ClockGuard,
    pub(super) hasher: RandomState,
    pub(super) only_exact: bool,
    /// The size of an empty cache in bytes.
    pub(super) fixed_bytes: usize,
    pub(super) max_bytes: usize,
    pub(super) meter: CacheMeter,
}

impl Cache {
    /// Finds the denial of a call, and counts a hit or a miss.
    pub(super) fn find(&self, key: &CallKey<'_>, at: ClockReading) -> Option<Decision> {
        let known = self.table.find(key, at, &self.generations, true);
        match known {
            Some(_) => self.meter.hit(),
            None => self.meter.miss(),
        }
        known
    }

    /// Finds a denial for a caller that calls the store itself. Counts only a hit, because the
    /// call counts the miss.
    pub(super) fn find_hit(&self, key: &CallKey<'_>, at: ClockReading) -> Option<Decision> {
        let known = self.table.find(key, at, &self.generations, false);
        if known.is_some() {
            self.meter.hit();
        }
        known
    }

    /// Returns `true` if the cache has the denial of a call. Counts nothing.
    pub(super) fn contains(&self, key: &CallKey<'_>, at: ClockReading) -> bool {
        self.table.contains(key, at, &self.generations)
    }
}
