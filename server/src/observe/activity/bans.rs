use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::SystemTime;

use super::shown::Cut;
use super::{LimitName, Source, lock};

/// The maximum number of bans that are kept.
const CAPACITY: usize = 20;

/// A manual ban, or the end of one.
#[derive(Debug, Clone)]
pub(super) struct Ban {
    pub(super) at: SystemTime,
    pub(super) source: Source,
    pub(super) limit: LimitName,
    pub(super) subject: Option<Cut>,
    /// The end of the block and the reason of the ban, or `None` if the block was removed.
    pub(super) end_and_reason: Option<(SystemTime, String)>,
}

/// The last bans.
#[derive(Debug, Default)]
pub(super) struct Bans(Mutex<VecDeque<Ban>>);

impl Bans {
    pub(super) fn record(&self, ban: Ban) {
        let bans = &mut *lock(&self.0);
        bans.truncate(CAPACITY - 1);
        bans.push_front(ban);
    }

    /// Returns the last bans, the newest first.
    pub(super) fn last(&self) -> Vec<Ban> {
        lock(&self.0).iter().cloned().collect()
    }
}
