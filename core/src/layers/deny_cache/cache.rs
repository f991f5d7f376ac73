//! The cache: denials, and what tells whether they are valid.

use super::entry::CallKey;
use super::meter::CacheMeter;
use super::staleness::{ClockGuard, ClockReading};
use super::table::Table;
use crate::Decision;
use crate::layers::generations::Generations;
use crate::sync::hash::RandomState;

/// The cached denials, and what tells whether they are valid.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) table: Table,
    pub(super) generations: Generations,
    pub(super) clock_guard: ClockGuard,
    pub(super) hasher: RandomState,
    pub(super) only_exact: bool,
    /// The bytes of an empty cache.
    pub(super) fixed_bytes: usize,
    pub(super) max_bytes: usize,
    pub(super) meter: CacheMeter,
}

impl Cache {
    pub(super) fn find(&self, key: &CallKey<'_>, at: ClockReading) -> Option<Decision> {
        let known = self.table.find(key, at, &self.generations, true);
        match known {
            Some(_) => self.meter.hit(),
            None => self.meter.miss(),
        }
        known
    }

    /// Finds a denial for a caller that calls the store itself, so that a miss is not counted
    /// twice.
    pub(super) fn find_hit(&self, key: &CallKey<'_>, at: ClockReading) -> Option<Decision> {
        let known = self.table.find(key, at, &self.generations, false);
        if known.is_some() {
            self.meter.hit();
        }
        known
    }
}
