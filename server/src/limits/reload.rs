//! Reloads the limits when the files of a directory change.

use std::path::PathBuf;

use super::config::{ConfigError, ConfigFile, read_directory};
use crate::net::watch;

/// Calls `load` with the files of a directory whenever a file has changed, was added or was
/// removed. `loaded` are the files whose limits are already in force.
///
/// The function finds a change within three [intervals](watch::INTERVAL), even if the files are
/// links, such as the links of a Kubernetes ConfigMap. It never loads an incomplete file, provided
/// that a program writes each file within one interval.
///
/// This function never returns; drop the future to stop it.
pub async fn follow(
    directory: PathBuf,
    loaded: Vec<ConfigFile>,
    load: impl Fn(Result<&[ConfigFile], &ConfigError>),
) {
    let read = move || read_directory(&directory);
    watch::follow(Ok(loaded), read, |files| load(files.as_deref())).await;
}
