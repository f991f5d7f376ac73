/// The requests that are recorded for each subject before the measurement. All fields with a time
/// are in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Warmup {
    /// No requests.
    Nothing,
    /// One request with the cost `cost`. Its time is `window` before the current time.
    Before { window: u64, cost: u64 },
    /// `count` requests with a cost of 1, at intervals of `apart`. The oldest request leaves the
    /// window `first_leaves_in` after the warmup.
    Requests { window: u64, count: u64, first_leaves_in: u64, apart: u64 },
}

impl Warmup {
    /// Returns a list with the time and the cost of each request, with the oldest request first.
    /// `now` is the current time.
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
