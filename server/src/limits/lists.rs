//! Reads the lists that allow and deny subjects from a directory, and reloads them when a file
//! changes.
//!
//! The file `NAME.txt` has the [`Lists`] of the limit or policy `NAME`. [`Lists`] documents the
//! format.

use std::path::{Path, PathBuf};

use tidegate_core::{Lists, PolicyLists};

use super::config::{ConfigError, ConfigFile, read_files};
use crate::net::watch;

/// Reads the files of `directory` that end in `.txt`, in the order of their names. Files whose
/// names begin with a dot are ignored.
///
/// # Errors
///
/// Returns the errors of [`read_directory`](super::config::read_directory).
pub fn read(directory: &Path) -> Result<Vec<ConfigFile>, ConfigError> {
    read_files(directory, |extension| extension == "txt")
}

/// Replaces `lists` by the lists of `files`. Returns the number of entries.
///
/// # Errors
///
/// Returns an error if a file is not valid. The error contains the file and the line. In this case,
/// `lists` do not change.
///
/// ```
/// use tidegate_core::{ListAction, PolicyLists};
/// use tidegate_server::limits::config::ConfigFile;
/// use tidegate_server::limits::lists;
///
/// let file = |text: &str| ConfigFile { name: "lists/ip.txt".into(), text: text.into() };
/// let all = PolicyLists::new();
/// assert_eq!(lists::load(&all, &[file("deny 203.0.113.0/24")])?, 1);
/// assert_eq!(all.find("ip", b"203.0.113.7"), Some(ListAction::Deny));
///
/// let error = lists::load(&all, &[file("\ndeny 203.0.113.0/33")]).unwrap_err();
/// assert!(error.to_string().starts_with("lists/ip.txt: line 2: "));
/// assert_eq!(all.find("ip", b"203.0.113.7"), Some(ListAction::Deny));
/// # Ok::<(), tidegate_server::limits::config::ConfigError>(())
/// ```
pub fn load(lists: &PolicyLists, files: &[ConfigFile]) -> Result<usize, ConfigError> {
    let mut all = Vec::with_capacity(files.len());
    for file in files {
        let list = file.text.parse::<Lists>();
        let list = list.map_err(|error| ConfigError::about_file(&file.name, error.to_string()))?;
        let name = Path::new(&file.name).file_stem().unwrap_or_default();
        all.push((name.to_string_lossy().into_owned(), list));
    }
    let entries = all.iter().map(|(_, list)| list.len()).sum();
    lists.replace(all);
    Ok(entries)
}

/// Replaces `lists` whenever a file of the directory has changed, was added or was removed, and
/// calls `report` with the result of [`load`]. `loaded` are the files whose lists are already in
/// force. If a file is not valid, the lists stay as they were.
///
/// This function never returns; drop the future to stop it.
pub async fn follow(
    directory: PathBuf,
    loaded: Vec<ConfigFile>,
    lists: PolicyLists,
    report: impl Fn(Result<usize, &ConfigError>),
) {
    let read_again = move || read(&directory);
    watch::follow(Ok(loaded), read_again, |files| {
        match files.as_deref().map(|files| load(&lists, files)) {
            Ok(Ok(entries)) => report(Ok(entries)),
            Ok(Err(error)) => report(Err(&error)),
            Err(error) => report(Err(error)),
        }
    })
    .await;
}
