//! Reads the files of a directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ConfigError;

/// The maximum size of a file in bytes. A Kubernetes ConfigMap can have at most 1 MiB.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// The maximum number of files in the directory.
pub const MAX_FILES: usize = 1_000;

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// The name of the file, as it appears in messages.
    pub name: String,
    /// The contents.
    pub text: String,
}

/// Reads the files of `directory` that end in `.yaml` or `.yml`, in the order of their names. Links
/// are followed. Files whose names begin with a dot are ignored.
///
/// # Errors
///
/// Returns an error if the directory or a file cannot be read, if a file has more than
/// [`MAX_FILE_BYTES`] or is not UTF-8, or if there are more than [`MAX_FILES`] files.
pub fn read_directory(directory: &Path) -> Result<Vec<ConfigFile>, ConfigError> {
    read_files(directory, is_yaml)
}

/// Like [`read_directory`], but reads the files with an extension for which `is_read` returns
/// `true`.
pub(crate) fn read_files(
    directory: &Path,
    is_read: fn(&OsStr) -> bool,
) -> Result<Vec<ConfigFile>, ConfigError> {
    paths(directory, is_read)?.iter().map(|path| read_file(path)).collect()
}

/// Returns a warning for each file and subdirectory of `directory` that only envoyproxy/ratelimit
/// would read. It reads files with any name, also in subdirectories. Hidden entries cause no
/// warning. After ten warnings, one last warning contains the number of further entries.
#[must_use]
pub fn left_out(directory: &Path) -> Vec<String> {
    // If the directory cannot be read, [`read_directory`] reports the error.
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut messages: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| !is_hidden(path))
        .filter_map(|path| {
            let reason = match (path.is_dir(), path.extension().is_some_and(is_yaml)) {
                (true, _) => "the directory is not read; move its files into the parent directory",
                (false, false) => "the file is not read: its name does not end in .yaml or .yml",
                (false, true) => return None,
            };
            Some(format!("{}: {reason}", path.display()))
        })
        .collect();
    messages.sort();
    let more = messages.len().saturating_sub(MAX_LEFT_OUT);
    if more > 0 {
        messages.truncate(MAX_LEFT_OUT);
        messages.push(format!("{}: {more} more are not read", directory.display()));
    }
    messages
}

/// The maximum number of files and subdirectories for which [`left_out`] returns separate warnings.
const MAX_LEFT_OUT: usize = 10;

fn is_yaml(extension: &OsStr) -> bool {
    extension == "yaml" || extension == "yml"
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn paths(directory: &Path, is_read: fn(&OsStr) -> bool) -> Result<Vec<PathBuf>, ConfigError> {
    let failed = |error: std::io::Error| {
        let message = format!("the directory cannot be read: {error}");
        ConfigError::about_file(&directory.display().to_string(), message)
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // The paths include broken links, so that reading such a link reports an error.
        if path.extension().is_some_and(is_read) && !is_hidden(&path) && !path.is_dir() {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            let message = format!("the directory has more than {MAX_FILES} files");
            return Err(ConfigError::about_file(&directory.display().to_string(), message));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads one file.
pub(crate) fn read_file(path: &Path) -> Result<ConfigFile, ConfigError> {
    let name = path.display().to_string();
    let failed = |error: std::io::Error| {
        ConfigError::about_file(&name, format!("the file cannot be read: {error}"))
    };
    // A pipe is refused, because reading a pipe could block forever.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ConfigError::about_file(
            &name,
            "it is not a file, but a pipe, a socket or a device",
        ));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the file has more than {MAX_FILE_BYTES} bytes");
        return Err(ConfigError::about_file(&name, message));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ConfigError::about_file(
            &name,
            format!("the file is not UTF-8; the byte at {at} is not valid"),
        )
    })?;
    Ok(ConfigFile { name, text })
}
