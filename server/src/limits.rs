//! The limits of the program: from where, and how they change.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_server::config::{ConfigFile, read_directory};
use tidegate_server::reload;
use tidegate_server::service::Service;
use tidegate_server::xds::{self, Event, XdsSettings};
use tokio::task::JoinHandle;

use crate::{Failure, report, warn_of_files};

pub(crate) enum Limits {
    /// A directory, and its files as they are in force.
    Files(PathBuf, Vec<ConfigFile>),
    /// A management server, which has sent nothing yet.
    Xds(Box<XdsSettings>),
}

impl Limits {
    /// Puts the files of a directory in force.
    pub(crate) fn from_directory(directory: PathBuf, service: &Service) -> Result<Self, Failure> {
        let files = read_directory(&directory)?;
        service.load(Ok(&files))?;
        warn_of_files(&directory);
        report(service);
        Ok(Self::Files(directory, files))
    }

    /// Follows them until the task is aborted.
    pub(crate) fn follow(self, service: Arc<Service>) -> JoinHandle<()> {
        let loaded = Arc::clone(&service);
        match self {
            Self::Files(directory, files) => tokio::spawn(reload::follow(
                directory,
                service,
                files,
                move |outcome| match outcome {
                    Ok(()) => report(&loaded),
                    Err(error) => refused(&error),
                },
            )),
            Self::Xds(settings) => {
                let server = settings.server.clone();
                tracing::info!("limits come from the management server at {server}");
                tokio::spawn(xds::follow(*settings, service, move |event| match event {
                    Event::Connected => {
                        tracing::info!("the management server at {server} is connected");
                    }
                    Event::Loaded => report(&loaded),
                    Event::Refused(error) => refused(&error),
                    Event::Ignored { type_url } => tracing::error!(
                        "the management server at {server} has sent resources of type \
                         '{type_url}', which were not asked for"
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
