use serde::Serialize;

/// The report about policies that limit the number of requests at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SlotsReport {
    /// The name of the field with the duration of a request.
    pub duration_of: String,
    /// The maximum number of slots that a subject would use at a time without a limit.
    pub peak_wanted: u64,
    /// The report of each policy, in the order of the command line.
    pub runs: Vec<SlotsRun>,
}

/// The report of one policy of slots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SlotsRun {
    /// The policy.
    pub policy: String,
    /// The number of slots.
    pub limit: u64,
    /// The number of admitted requests.
    pub admitted: u64,
    /// The number of denied requests.
    pub denied: u64,
    /// The number of subjects with a denied request.
    pub subjects_denied: u64,
    /// The maximum number of slots that a subject used at a time.
    pub peak: u64,
}

impl SlotsRun {
    /// Returns the number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.admitted.saturating_add(self.denied)
    }
}
