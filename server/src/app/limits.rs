//! The source of the limits, and a task that loads the limits again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_server::envoy::service::Service;
use tidegate_server::limits::config::{Config, ConfigFile, SameDomain, left_out, read_directory};
use tidegate_server::limits::reload;
use tidegate_server::limits::xds::{self, Event, XdsSettings};
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

/// Checks the limits of a directory as the server does at its start, and prints their number. If
/// `directory` is `None`, a management server sends the limits, and there is nothing to check.
///
/// # Errors
///
/// Returns an error if a file is not valid.
pub(crate) fn check(directory: Option<&Path>, same_domain: SameDomain) -> Result<(), Failure> {
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
