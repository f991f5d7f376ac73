use std::collections::BTreeMap;
use std::sync::Mutex;

use super::counts::Series;
use super::lock;

/// The number of errors of each kind. The kinds are constants of the program, so their number is
/// bounded.
#[derive(Debug, Default)]
pub(super) struct Errors(Mutex<BTreeMap<&'static str, (u64, Series)>>);

impl Errors {
    pub(super) fn count(&self, kind: &'static str) {
        lock(&self.0).entry(kind).or_default().0 += 1;
    }

    pub(super) fn sample(&self) {
        for (total, series) in lock(&self.0).values_mut() {
            series.push(*total);
        }
    }

    pub(super) fn for_each(&self, mut see: impl FnMut(&'static str, &Series)) {
        lock(&self.0).iter().for_each(|(kind, (_, series))| see(kind, series));
    }
}
