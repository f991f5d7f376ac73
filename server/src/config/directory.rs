//! The files of a directory.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ConfigError;

/// The maximum size of a file. A ConfigMap of Kubernetes has at most 1 MiB.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// The maximum number of files.
pub const MAX_FILES: usize = 1_000;

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// The name in messages.
    pub name: String,
    /// The contents.
    pub text: String,
}

/// Reads the files of `directory` that end in `.yaml` or `.yml`, in the order of their names. Links are followed; names
/// that begin with a dot are left out.
///
/// # Errors
///
/// If the directory or a file cannot be read, if a file has more than [`MAX_FILE_BYTES`] or is not UTF-8, or if there
/// are more than [`MAX_FILES`].
pub fn read_directory(directory: &Path) -> Result<Vec<ConfigFile>, ConfigError> {
    paths(directory)?.iter().map(|path| read(path)).collect()
}

fn paths(directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let failed = |error: std::io::Error| {
        let message = format!("the directory cannot be read: {error}");
        ConfigError::about_file(&directory.display().to_string(), message)
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_yaml = path.extension().is_some_and(|it| it == "yaml" || it == "yml");
        let is_hidden =
            path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        // A link that leads nowhere is an error when it is read.
        if is_yaml && !is_hidden && !path.is_dir() {
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

fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
    let name = path.display().to_string();
    let failed = |error: std::io::Error| {
        ConfigError::about_file(&name, format!("the file cannot be read: {error}"))
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the file has more than {MAX_FILE_BYTES} bytes");
        return Err(ConfigError::about_file(&name, message));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ConfigError::about_file(&name, format!("the file is not UTF-8: byte {at} is wrong"))
    })?;
    Ok(ConfigFile { name, text })
}
