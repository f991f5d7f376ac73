//! Compares the output files with the input files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use same_file::Handle;

use crate::args;
use tidegate::report::escape::printable;

/// Returns an error if an output file is the same file as an input or as the other output file,
/// because writing it would overwrite the other file. Different paths and links can lead to the
/// same file. This function opens no file for writing.
pub(crate) fn check(args: &args::Replay) -> Result<(), String> {
    let outputs = [("--html", &args.html), ("--decisions", &args.decisions)];
    let outputs: Vec<(&str, &Path)> =
        outputs.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?))).collect();
    for &(option, path) in &outputs {
        let others = [&args.grants, &args.lists, &args.limit_set, &args.limit_set_before];
        for input in args.files.iter().chain(others.into_iter().flatten()) {
            if is_same(path, input) {
                let (path, input) = (shown(path), shown(input));
                return Err(format!("{option} {path} would overwrite the input {input}"));
            }
        }
    }
    if let [(first, one), (second, other)] = outputs[..]
        && (is_same(one, other) || will_be_same(one, other))
    {
        return Err(format!("{first} and {second} are the same file, {}", shown(one)));
    }
    Ok(())
}

/// Returns a path as text for messages.
pub(crate) fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// Returns `true` if two paths lead to the same regular file. If `other` is `-`, it is standard
/// input. For a device such as /dev/null, the result is `false`, because two outputs can share a
/// device.
fn is_same(output: &Path, other: &Path) -> bool {
    let is_regular = fs::metadata(output).is_ok_and(|metadata| metadata.is_file());
    let handle = |path: &Path| -> io::Result<Handle> {
        if path == Path::new("-") { Handle::stdin() } else { Handle::from_path(path) }
    };
    is_regular
        && Handle::from_path(output).is_ok_and(|out| handle(other).is_ok_and(|other| other == out))
}

/// Returns `true` if the two paths name the same file, which does not exist yet.
fn will_be_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| -> Option<PathBuf> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    !one.exists() && place(one).is_some_and(|one| place(other) == Some(one))
}
