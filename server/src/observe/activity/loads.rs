use std::sync::Arc;
use std::time::SystemTime;

use super::{cut_text, shown};
use crate::limits::LoadError;
use crate::limits::config::Config;

/// The maximum number of file names, and of domain names, that are kept.
const MAX_NAMES: usize = 50;

/// The maximum number of characters of an error that are kept.
const MAX_ERROR_CHARS: usize = 1_000;

/// The configurations that the server loaded or refused.
#[derive(Debug, Default)]
pub(super) struct Loads {
    pub(super) in_force: Option<InForce>,
    /// The number of configurations that were put in force.
    pub(super) changes: u64,
    /// The last configuration that was refused.
    pub(super) refused: Option<RefusedLoad>,
    /// The limit set in the store, if the server follows one.
    pub(super) limit_set: Option<FollowedSet>,
}

/// The state of the limit set in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowedSet {
    /// The version in force. It is 0 if no version was read yet.
    pub version: u64,
    /// Whether the last attempt to read the set has succeeded.
    pub is_current: bool,
}

#[derive(Debug)]
pub(super) struct InForce {
    pub(super) at: SystemTime,
    pub(super) config: Arc<Config>,
    pub(super) limits: usize,
    pub(super) domains: Names,
    pub(super) files: Names,
}

#[derive(Debug)]
pub(super) struct RefusedLoad {
    pub(super) at: SystemTime,
    pub(super) error: String,
    /// Whether this refusal is newer than the last configuration that was put in force.
    pub(super) is_last: bool,
}

/// The names of the domains or of the files of a configuration: their number, and the first
/// [`MAX_NAMES`] names.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) count: usize,
    pub(super) first: Vec<String>,
}

impl Names {
    fn new<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> Self {
        let count = names.len();
        Self { count, first: names.take(MAX_NAMES).map(|name| shown(name.as_bytes())).collect() }
    }
}

impl Loads {
    pub(super) fn record<'n>(
        &mut self,
        files: impl ExactSizeIterator<Item = &'n str>,
        loaded: Result<Option<Arc<Config>>, &LoadError>,
    ) {
        let at = SystemTime::now();
        match loaded {
            Ok(Some(config)) => {
                self.changes += 1;
                if let Some(refused) = &mut self.refused {
                    refused.is_last = false;
                }
                self.in_force = Some(InForce {
                    at,
                    limits: config.limits(),
                    domains: Names::new(config.domains().into_iter()),
                    files: Names::new(files),
                    config,
                });
            }
            Ok(None) => {}
            Err(error) => {
                let error = cut_text(&error.to_string(), MAX_ERROR_CHARS);
                self.refused = Some(RefusedLoad { at, error, is_last: true });
            }
        }
    }
}
