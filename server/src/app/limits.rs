//! The sources of the limits and of the lists, and the tasks that load them again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use tidegate_cluster::{LimitBook, LimitsEvent};
use tidegate_core::{CurrentLimits, PolicyLists, Store};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::service::Service;
use tidegate_server::limits::config::{Config, ConfigFile, SameDomain, left_out, read_directory};
use tidegate_server::limits::xds::{self, Event, XdsSettings};
use tidegate_server::limits::{LoadError, lists, reload, set};
use tidegate_server::observe::activity::{Activity, FollowedSet};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Failure;
use crate::log::{say, write_error};
use crate::settings::{KEPT_IN_STORE, Settings};

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

/// The source of the limit set.
pub(crate) enum LimitSource {
    /// The store, which all servers share.
    Store(LimitBook),
    /// A file, and its contents that are already in force.
    File(PathBuf, ConfigFile),
}

impl LimitSource {
    /// Finds the source with this name. If it is a file, its limits are in force when this function
    /// returns.
    pub(crate) fn open(
        name: &Path,
        book: Option<&LimitBook>,
        limits: &CurrentLimits,
        store: &dyn Store,
    ) -> Result<Self, Failure> {
        if name == Path::new(KEPT_IN_STORE) {
            return kept_in_store(book).map(|book| Self::Store(book.clone()));
        }
        let file = set::read(name)?;
        set::load(limits, store, &file)?;
        report_set(limits, name);
        Ok(Self::File(name.to_owned(), file))
    }

    /// Spawns a task that puts each version of the set in force. The task runs until the program
    /// ends. If the set is in the store, this function waits until the set was read, but at most
    /// [`FIRST_READ`].
    pub(crate) async fn follow(
        self,
        limits: CurrentLimits,
        store: Arc<dyn Store>,
        service: Arc<Service>,
        activity: Option<Arc<Activity>>,
    ) {
        match self {
            Self::Store(book) => {
                let reporter = Reporter { service, activity, is_read: Arc::default() };
                let is_read = Arc::clone(&reporter.is_read);
                let report = move |event: &LimitsEvent| reporter.report(event);
                tokio::spawn(async move { book.follow(limits, store, report).await });
                if timeout(FIRST_READ, is_read.notified()).await.is_err() {
                    tracing::error!("the limit set was not read within {FIRST_READ:?}");
                }
            }
            Self::File(path, file) => {
                let (current, shown) = (limits.clone(), path.clone());
                let report = move |loaded: Result<(), LoadError>| match loaded {
                    Ok(()) => report_set(&current, &shown),
                    Err(error) => tracing::error!("the limit set stays as it was: {error}"),
                };
                tokio::spawn(set::follow(path, file, limits, store, report));
            }
        }
    }
}

/// Returns the limit set that the store keeps.
pub(super) fn kept_in_store(book: Option<&LimitBook>) -> Result<&LimitBook, Failure> {
    let message = "limits.limit_set is `store`, but store.url is `memory`, which cannot keep a \
                   limit set; name a file instead";
    book.ok_or_else(|| message.into())
}

/// The maximum time that a starting server waits for the limit set in the store.
const FIRST_READ: Duration = Duration::from_secs(2);

/// Logs the events of a limit set in the store, sets its metrics, and shows it on the page and in
/// health checks.
struct Reporter {
    /// Contains the last failure that was logged, until the set is read again.
    service: Arc<Service>,
    /// Is notified after the first attempt to read the set.
    is_read: Arc<Notify>,
    activity: Option<Arc<Activity>>,
}

impl Reporter {
    fn report(&self, event: &LimitsEvent) {
        let failure = self.service.old_limits();
        let unread = gauge!("tidegate_server_limit_set_unread_seconds");
        match event {
            LimitsEvent::InForce { version, .. } => {
                unread.set(0.0);
                gauge!("tidegate_server_limit_set_version").set(*version as f64);
                self.service.set_old_limits(None);
                tracing::info!("{event}");
            }
            LimitsEvent::Failed { since, .. } => {
                unread.set(since.as_secs_f64());
                let text = event.to_string();
                if failure.as_ref() != Some(&text) {
                    tracing::error!("{text}");
                    self.service.set_old_limits(Some(text));
                }
            }
            _ => {
                unread.set(0.0);
                if failure.is_some() {
                    self.service.set_old_limits(None);
                    tracing::info!("the limit set can be read again, and has not changed");
                }
            }
        }
        if let Some(activity) = &self.activity {
            let is_current = !matches!(event, LimitsEvent::Failed { .. });
            activity.limit_set(FollowedSet { version: event.version(), is_current });
        }
        self.is_read.notify_one();
    }
}

fn report_set(limits: &CurrentLimits, path: &Path) {
    tracing::info!("the limit set in {} has {}", path.display(), summary(limits));
}

fn summary(limits: &CurrentLimits) -> String {
    let set = limits.set();
    format!("{} policies and {} overrides", set.policies().count(), set.overrides())
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

/// Checks the lists and the limit set of the settings, and the limits in `directory`, as the server
/// does at its start, and prints their numbers. If `directory` is `None`, a management server sends
/// the limits, and there are no limits to check.
///
/// # Errors
///
/// Returns an error if a file is not valid.
pub(super) fn check(
    settings: &Settings,
    directory: Option<&Path>,
    same_domain: SameDomain,
) -> Result<(), Failure> {
    let Settings { lists: list_directory, limit_set, .. } = settings;
    if let Some(path) = limit_set.as_deref().filter(|path| *path != Path::new(KEPT_IN_STORE)) {
        let limits = CurrentLimits::default();
        set::load(&limits, &MemoryStore::new(), &set::read(path)?)?;
        say(format_args!("{} of the limit set", summary(&limits)));
    }
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
