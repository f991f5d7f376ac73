//! What each subject has done before measuring begins.

/// What each subject has done before. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Warmup {
    /// Nothing.
    Nothing,
    /// In the window before this one, so much.
    Before { window: u64, cost: u64 },
    /// So many requests, one by one, of which the first leaves the window in a while, and then one
    /// after another.
    Requests { window: u64, count: u64, first_leaves_in: u64, apart: u64 },
}

impl Warmup {
    /// When what was charged, the oldest first.
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
