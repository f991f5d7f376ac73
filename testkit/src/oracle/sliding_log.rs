//! The rules of a sliding log: the sum of the costs in the last window is at most the limit.

use std::collections::BTreeSet;

use tidegate_core::SlidingLog;

use super::rules::{self, MAX_COUNT, Rules, Take, micros};

/// The admitted requests that the log still contains, oldest first. Each request has the time at
/// which it counts, and its cost.
pub(super) type Past = Vec<(u64, u64)>;

/// The number of newest records among which an undo searches for its charge. All requests that
/// count at the same time share one record.
const MAX_UNDO: usize = 128;

#[derive(Debug)]
pub(super) struct Log {
    limit: u64,
    window: u64,
    grain: u64,
}

impl Log {
    pub(super) fn new(spec: &SlidingLog) -> Self {
        Self {
            limit: spec.limit(),
            window: micros(spec.window()),
            grain: spec.granularity().map_or(0, micros),
        }
    }

    /// Returns `now`, or the time of the newest request if the clock has stepped back to before
    /// this request.
    fn effective(&self, past: &rules::Past, now: u64) -> u64 {
        match past {
            rules::Past::SlidingLog(log) => {
                log.last().map_or(now, |(newest, _)| now.max(newest - self.grain))
            }
            _ => now,
        }
    }

    fn stamp(&self, time: u64) -> u64 {
        match self.grain {
            0 => time,
            // A request counts at the end of its grain.
            grain => (time / grain + 1) * grain,
        }
    }

    fn counting(&self, past: &rules::Past, now: u64) -> Past {
        let now = self.effective(past, now);
        match past {
            rules::Past::SlidingLog(log) => {
                log.iter().filter(|(stamp, _)| stamp + self.window > now).copied().collect()
            }
            _ => vec![],
        }
    }
}

impl Rules for Log {
    fn fits(&self, past: &rules::Past, cost: u64, now: u64) -> bool {
        let counting = self.counting(past, now);
        let taken: u128 = counting.iter().map(|&(_, cost)| u128::from(cost)).sum();
        taken + u128::from(cost) <= u128::from(self.limit)
    }

    fn take(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut log = self.counting(past, now);
        log.push((self.stamp(self.effective(past, now)), cost));
        rules::Past::SlidingLog(log)
    }

    fn room(&self, past: &rules::Past, now: u64) -> u64 {
        let counting = self.counting(past, now);
        let taken: u128 = counting.iter().map(|&(_, cost)| u128::from(cost)).sum();
        u64::try_from(u128::from(MAX_COUNT).saturating_sub(taken)).unwrap_or(0)
    }

    /// Charges `cost` beyond the limit. The number of different times in a log is bounded, for
    /// example by 5 at a limit of 5. If there is no room for a new time, the requests with the
    /// newest time get the time `now`.
    fn charge(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut log = self.counting(past, now);
        let stamp = self.stamp(self.effective(past, now));
        let times: BTreeSet<u64> = log.iter().map(|&(stamp, _)| stamp).collect();
        let max_times = match self.grain {
            0 => self.limit,
            grain => self.limit.min(self.window / grain + 2),
        };
        if times.len() as u64 >= max_times {
            let newest = times.last().copied().unwrap_or(stamp);
            let newest_requests = log.iter_mut().filter(|(time, _)| *time == newest);
            newest_requests.for_each(|(time, _)| *time = stamp);
        }
        log.push((stamp, cost));
        rules::Past::SlidingLog(log)
    }

    fn refund(&self, past: &rules::Past, cost: u64, now: u64) -> (rules::Past, u64) {
        let mut log = self.counting(past, now);
        let mut rest = cost;
        while let Some((stamp, cost)) = log.pop() {
            if cost > rest {
                log.push((stamp, cost - rest));
                rest = 0;
                break;
            }
            rest -= cost;
        }
        let past = if log.is_empty() { rules::Past::Nothing } else { rules::Past::SlidingLog(log) };
        (past, cost - rest)
    }

    fn undo(
        &self,
        past: &rules::Past,
        cost: u64,
        take: Take,
        now: u64,
    ) -> Option<(rules::Past, u64)> {
        let mut log = self.counting(past, now);
        let wanted = self.stamp(take.at);
        let newer: BTreeSet<u64> =
            log.iter().map(|&(stamp, _)| stamp).filter(|&stamp| stamp > wanted).collect();
        if newer.len() >= MAX_UNDO || log.iter().all(|&(stamp, _)| stamp != wanted) {
            return None;
        }
        let mut rest = cost;
        for (_, cost) in log.iter_mut().filter(|(stamp, _)| *stamp == wanted) {
            let off = rest.min(*cost);
            *cost -= off;
            rest -= off;
        }
        log.retain(|&(_, cost)| cost > 0);
        let past = if log.is_empty() { rules::Past::Nothing } else { rules::Past::SlidingLog(log) };
        Some((past, cost - rest))
    }

    fn recovers_at(&self, past: &rules::Past) -> u64 {
        match past {
            rules::Past::SlidingLog(log) => {
                log.last().map_or(0, |(newest, _)| newest + self.window)
            }
            _ => 0,
        }
    }
}
