//! The sources of the limits and of the lists, and the tasks that load them again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::PolicyLists;
use tidegate_server::envoy::service::Service;
use tidegate_server::limits::config::{Config, ConfigFile, SameDomain, left_out, read_directory};
use tidegate_server::limits::xds::{self, Event, XdsSettings};
use tidegate_server::limits::{lists, reload};
use tokio::task::JoinHandle;

use super::Failure;
use crate::log::{say, write_error};

pub(crate) enum Limits {
    /// A directory, and the files that the server has loaded from it.
    Files(PathBuf, Vec<ConfigFile>),
    /// A management server that has not sent limits yet.
    Xds(Box<XdsSettings>),
}

impl Limits {
    /// Reads the files of a directory and puts their limits in force.
    pub(crate) fn from_directory(directory: PathBuf, service: &Service) -> Result<Self, Failure> {
        let files = read_directory(&directory)?;
        service.load(Ok(&files))?;
        warn_of_files(&directory);
        report(service);
        Ok(Self::Files(directory, files))
    }

    /// Spawns a task that puts changed limits in force. The task runs until it is aborted.
    pub(crate) fn follow(self, service: Arc<Service>) -> JoinHandle<()> {
        match self {
            Self::Files(directory, files) => {
                tokio::spawn(reload::follow(directory, files, move |files| {
                    match service.load(files) {
                        Ok(()) => report(&service),
                        Err(error) => refused(&error),
                    }
                }))
            }
            Self::Xds(settings) => {
                let server = settings.server.clone();
                tracing::info!("limits come from the management server at {server}");
                let loaded = Arc::clone(&service);
                let load = move |resources: Result<&[_], &_>| service.load_resources(resources);
                tokio::spawn(xds::follow(*settings, load, move |event| match event {
                    Event::Connected => {
                        tracing::info!("the management server at {server} is connected");
                    }
                    Event::Loaded => report(&loaded),
                    Event::Refused(error) => refused(&error),
                    Event::Ignored { type_url } => tracing::error!(
                        "the management server at {server} has sent resources of type \
                         '{type_url}', which this server did not request"
                    ),
                    Event::Disconnected { reason, retry_in } => tracing::error!(
                        "the management server at {server} is not connected: {reason}; \
                         the next attempt is in {retry_in:.1?}, and the limits stay as they are"
                    ),
                    _ => {}
                }))
            }
        }
    }
}

/// The lists in force, the directory, and the files that the server has loaded from it.
pub(crate) struct ListFiles {
    lists: PolicyLists,
    directory: PathBuf,
    files: Vec<ConfigFile>,
}

impl ListFiles {
    /// Reads the files of a directory and puts their lists in force.
    pub(crate) fn read(directory: PathBuf, lists: PolicyLists) -> Result<Self, Failure> {
        let files = lists::read(&directory)?;
        report_lists(lists::load(&lists, &files)?, &directory);
        Ok(Self { lists, directory, files })
    }

    /// Spawns a task that puts changed lists in force. The task runs until the program ends.
    pub(crate) fn follow(self) {
        let Self { lists, directory, files } = self;
        let shown = directory.clone();
        tokio::spawn(lists::follow(directory, files, lists, move |loaded| match loaded {
            Ok(entries) => report_lists(entries, &shown),
            Err(error) => tracing::error!("the lists stay as they were: {error}"),
        }));
    }
}

fn report_lists(entries: usize, directory: &Path) {
    tracing::info!("the lists in {} have {entries} entries", directory.display());
}

fn refused(error: &dyn std::error::Error) {
    tracing::error!("the limits stay as they were: {error}");
}

/// Logs the warnings about the limits that are in force, and the number of these limits.
fn report(service: &Service) {
    if let Some(config) = service.decider().config() {
        warn(&config);
        tracing::info!("{} limits in {} domains", config.limits(), config.domains().len());
    }
}

/// Checks the limits and the lists of two directories as the server does at its start, and prints
/// their numbers. If `directory` is `None`, a management server sends the limits, and there are no
/// limits to check.
///
/// # Errors
///
/// Returns an error if a file is not valid.
pub(crate) fn check(
    directory: Option<&Path>,
    same_domain: SameDomain,
    list_directory: Option<&Path>,
) -> Result<(), Failure> {
    if let Some(directory) = list_directory {
        let entries = lists::load(&PolicyLists::new(), &lists::read(directory)?)?;
        say(format_args!("{entries} entries of lists"));
    }
    let Some(directory) = directory else {
        say("the settings are valid; the limits come from a management server");
        return Ok(());
    };
    let config = Config::from_directory(directory, same_domain)?;
    let warnings = config.warnings().iter().map(ToString::to_string);
    for warning in warnings.chain(left_out(directory)) {
        write_error(format_args!("warning: {warning}"));
    }
    say(format_args!("{} limits in {} domains", config.limits(), config.domains().len()));
    Ok(())
}

fn warn(config: &Config) {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
}

fn warn_of_files(directory: &Path) {
    for message in left_out(directory) {
        tracing::warn!("{message}");
    }
}
