//! Limits that follow the files of a directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::envoy::service::{LoadError, Service};
use crate::limits::config::{ConfigError, ConfigFile, read_directory};

/// How often the directory is read.
pub const INTERVAL: Duration = Duration::from_millis(250);

type Files = Result<Vec<ConfigFile>, ConfigError>;

/// Puts the limits of a directory in force whenever a file has changed, was added or removed, and calls `report` with the
/// outcome. `loaded` is what is in force now. A directory that is not valid changes nothing.
///
/// The contents are read and compared, twice: so a change is seen on all file systems and behind any link, such as
/// those of a ConfigMap of Kubernetes; and a file that is being written is not read in part, if it is written within
/// [`INTERVAL`]. A change is in force within three intervals.
///
/// Never returns: drop the future to end it.
pub async fn follow(
    directory: PathBuf,
    service: Arc<Service>,
    loaded: Vec<ConfigFile>,
    report: impl Fn(Result<(), LoadError>),
) {
    let mut loaded: Files = Ok(loaded);
    let mut before: Option<Files> = None;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let path = directory.clone();
        // The task is only cancelled when the runtime ends.
        let Ok(now) = tokio::task::spawn_blocking(move || read_directory(&path)).await else {
            continue;
        };
        let is_settled = before.as_ref() == Some(&now);
        if is_settled && loaded != now {
            report(service.load(now.as_deref()));
            loaded.clone_from(&now);
        }
        before = Some(now);
    }
}
