//! Reloads limits when the files of a directory change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{ConfigError, ConfigFile, read_directory};
use crate::service::{LoadError, Service};

/// The interval at which the directory is read.
pub const INTERVAL: Duration = Duration::from_millis(250);

type Files = Result<Vec<ConfigFile>, ConfigError>;

/// Loads the files of a directory whenever a file was changed, added or removed, and calls `report`
/// with the result. `loaded` contains the files in force. If the directory is not valid, the limits
/// stay as they are.
///
/// The function compares the contents of two successive reads with the files in force. Reading
/// detects changes on all file systems and through all links, such as the links of a Kubernetes
/// ConfigMap. Requiring two equal reads prevents that a partly written file is loaded, if it is
/// written within [`INTERVAL`]. A change is in force within three intervals.
///
/// This function never returns; drop the future to stop it.
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
        // The blocking task is cancelled only when the runtime shuts down.
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
