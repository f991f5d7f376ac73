//! Limits that follow the files of a directory.

use std::path::PathBuf;

use super::config::{ConfigError, ConfigFile, read_directory};
use crate::net::watch;

/// Calls `load` with the files of a directory whenever a file has changed, was added or was
/// removed. `loaded` are the files in force.
///
/// A change is found within three [intervals](watch::INTERVAL), even if the files are links, such
/// as the links of a Kubernetes ConfigMap. A file that is being written is not read in part if it
/// is written within one interval.
///
/// Never returns: drop the future to end it.
pub async fn follow(
    directory: PathBuf,
    loaded: Vec<ConfigFile>,
    load: impl Fn(Result<&[ConfigFile], &ConfigError>),
) {
    let read = move || read_directory(&directory);
    watch::follow(Ok(loaded), read, |files| load(files.as_deref())).await;
}
