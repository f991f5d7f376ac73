//! Sliding log: the costs of the last window are at most the limit.

use tidegate_core::SlidingLog;

use super::rules::{self, Rules, micros};

/// Every request that was taken and not yet pruned: when it counts as made, and its cost. Oldest
/// first.
pub(super) type Past = Vec<(u64, u64)>;

#[derive(Debug)]
pub(super) struct Log {
    limit: u64,
    window: u64,
    /// 0 for the exact log.
    grain: u64,
}

impl Log {
    pub(super) fn new(spec: &SlidingLog) -> Self {
        Self {
            limit: spec.limit(),
            window: micros(spec.window()),
            grain: spec.chosen_grain().map_or(0, micros),
        }
    }

    /// `now`, or the time of the newest request if the clock has stepped back behind it.
    fn effective(&self, past: &rules::Past, now: u64) -> u64 {
        match past {
            rules::Past::SlidingLog(log) => {
                log.last().map_or(now, |(newest, _)| now.max(newest - self.grain))
            }
            _ => now,
        }
    }

    /// The requests that still count.
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
        let now = self.effective(past, now);
        let stamp = match self.grain {
            0 => now,
            // The end of the grain.
            grain => (now / grain + 1) * grain,
        };
        log.push((stamp, cost));
        rules::Past::SlidingLog(log)
    }

    fn give_back(&self, past: &rules::Past, cost: u64, now: u64) -> rules::Past {
        let mut log = self.counting(past, now);
        let mut rest = cost;
        while let Some((stamp, cost)) = log.pop() {
            if cost > rest {
                log.push((stamp, cost - rest));
                break;
            }
            rest -= cost;
        }
        if log.is_empty() { rules::Past::Nothing } else { rules::Past::SlidingLog(log) }
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
