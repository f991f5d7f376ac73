//! Reads the limit set of one file, and reloads it when the file changes. [`LimitSet`] documents
//! the format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::{CurrentLimits, LimitSet, Store};

use super::LoadError;
use super::config::{ConfigError, ConfigFile, read_file};
use crate::net::watch;

/// Reads the file of a limit set.
///
/// # Errors
///
/// Returns an error if the file cannot be read, has more than 4 MiB or is not UTF-8.
pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
    read_file(path)
}

/// Puts the limit set of `file` in force.
///
/// # Errors
///
/// Returns an error if the file is not valid, or if the store cannot keep the states of a policy.
/// In this case, `limits` do not change.
///
/// ```
/// use tidegate_core::CurrentLimits;
/// use tidegate_memory::MemoryStore;
/// use tidegate_server::limits::config::ConfigFile;
/// use tidegate_server::limits::set;
///
/// let file = |text: &str| ConfigFile { name: "limits.txt".into(), text: text.into() };
/// let (limits, store) = (CurrentLimits::default(), MemoryStore::new());
/// set::load(&limits, &store, &file("plan: gcra 5/s for subject alice"))?;
/// assert_eq!(limits.set().overrides(), 1);
///
/// let error = set::load(&limits, &store, &file("\nplan: gcra 5/s for alice")).unwrap_err();
/// assert!(error.to_string().starts_with("limits.txt: line 2: "));
/// assert_eq!(limits.set().overrides(), 1);
/// # Ok::<(), tidegate_server::limits::LoadError>(())
/// ```
pub fn load(limits: &CurrentLimits, store: &dyn Store, file: &ConfigFile) -> Result<(), LoadError> {
    let set = file.text.parse::<LimitSet>().map_err(|error| {
        LoadError::Config(ConfigError::about_file(&file.name, error.to_string()))
    })?;
    set.check(store).map_err(|error| LoadError::Store(error.with_context(&file.name)))?;
    limits.replace(set);
    Ok(())
}

/// Loads the file whenever it has changed, and calls `report` with the result of [`load`]. `loaded`
/// is the file that is already in force. If the file is not valid or was removed, the limits stay
/// as they were.
///
/// This function never returns; drop the future to stop it.
pub async fn follow(
    path: PathBuf,
    loaded: ConfigFile,
    limits: CurrentLimits,
    store: Arc<dyn Store>,
    report: impl Fn(Result<(), LoadError>),
) {
    watch::follow(
        Ok(loaded),
        move || read(&path),
        |file: &Result<ConfigFile, ConfigError>| {
            report(match file {
                Ok(file) => load(&limits, &*store, file),
                Err(error) => Err(LoadError::Config(error.clone())),
            });
        },
    )
    .await;
}
