/// The requests of each subject before the measurement. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Warmup {
    /// No requests.
    Nothing,
    /// One request with this cost, one window before the measurement.
    Before { window: u64, cost: u64 },
    /// `count` requests at intervals of `apart`. The first of them leaves the window after
    /// `first_leaves_in`.
    Requests { window: u64, count: u64, first_leaves_in: u64, apart: u64 },
}

impl Warmup {
    /// Returns the times and costs of the requests, with the oldest request first.
    pub(super) fn charges(self, now: u64) -> Vec<(u64, u64)> {
        match self {
            Self::Nothing => vec![],
            Self::Before { window, cost } => vec![(now - window, cost)],
            Self::Requests { window, count, first_leaves_in, apart } => {
                let first = now - window + first_leaves_in;
                (0..count).map(|number| (first + number * apart, 1)).collect()
            }
        }
    }
}
