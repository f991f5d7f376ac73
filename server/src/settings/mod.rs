//! The command line and the environment.

mod debug;
mod grpc;
mod http;
mod listener;
mod page;
mod prometheus;
mod ratelimit_env;
mod resp;
mod store;
#[cfg(feature = "top")]
mod top;
mod values;
mod xds;

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tidegate_core::{DenyCache, Error, ErrorKind};
use tidegate_server::config::SameDomain;
use tidegate_server::decide::{Behaviour, HeaderNames, NearLimitRatio};
use tidegate_server::service::OnStoreError;
use tidegate_server::store::{MEMORY, RedisVariables};
use tidegate_server::xds::XdsSettings;

use debug::Debug;
use grpc::Grpc;
use http::Http;
use listener::TlsArgs;
use page::Page;
use prometheus::Prometheus;
use resp::Resp;
use store::StoreArgs;
use values::{given, ratio, switch};
use xds::XdsArgs;

use crate::descriptors::MaxConnections;

pub(crate) use http::read_only_settings;
#[cfg(feature = "top")]
pub(crate) use top::Top;

/// Envoy's rate-limit service on any store of Tidegate.
///
/// Reads the files and the environment variables of envoyproxy/ratelimit. Without a command, it serves.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

impl Cli {
    /// Reads the arguments and the variables; a mistake, as a request for help, ends the program.
    pub(crate) fn read() -> Self {
        let mut command = ratelimit_env::without_empty(Self::command());
        let error = match command.try_get_matches_from_mut(std::env::args_os()) {
            Ok(matches) => match Self::from_arg_matches(&matches) {
                Ok(cli) => return cli,
                Err(error) => error.format(&mut command),
            },
            Err(error) => error,
        };
        // Only the commands of these arguments are built yet, and clap panics on an argument of
        // another.
        command.build();
        if let Some(name) = ratelimit_env::variable(&command, &error) {
            stderr!("{name} in the environment:");
        }
        error.exit()
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Reads a directory of limits as the server would, and says what is wrong with it.
    ///
    /// Exit codes: 0 if it is valid, 1 if not.
    Check {
        /// The directory.
        directory: PathBuf,
        #[command(flatten)]
        domains: Domains,
    },
    /// Shows in the terminal what a server does now: what its page shows.
    ///
    /// Arrow keys scroll, `q` ends. Exit codes: 0 if it was ended, 1 if there is no terminal or, with `--once`, no answer.
    #[cfg(feature = "top")]
    Top(Top),
}

#[derive(Args)]
pub(crate) struct Domains {
    /// Several files may have limits of one domain.
    #[arg(long, env = "MERGE_DOMAIN_CONFIG", value_parser = switch)]
    merge_domains: bool,
}

impl Domains {
    pub(crate) fn same_domain(&self) -> SameDomain {
        if self.merge_domains { SameDomain::Merge } else { SameDomain::Refuse }
    }
}

/// The heading of the settings of stores.
const STORE: &str = "Store";

#[derive(Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Serve {
    /// No request is refused; the statuses of descriptors say what would be.
    #[arg(long, env = "SHADOW_MODE", value_parser = switch)]
    shadow_mode: bool,
    /// All limits written as `rate_limit:` are quotas.
    #[arg(long, env = "QUOTA_MODE", value_parser = switch)]
    quota_mode: bool,
    /// Once a `rate_limit:` is over, a request is counted only by those that are.
    #[arg(long, env = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", value_parser = switch)]
    stop_increment_when_over_limit: bool,
    /// A `rate_limit:` is decided as a policy is: all or none, and without counting what it refuses.
    #[arg(long, env = "TIDEGATE_ALL_OR_NONE", value_parser = switch)]
    all_or_none: bool,
    /// Responses have headers with the limit.
    #[arg(long, env = "LIMIT_RESPONSE_HEADERS_ENABLED", value_parser = switch)]
    response_headers: bool,
    /// Responses have dynamic metadata.
    #[arg(long, env = "RESPONSE_DYNAMIC_METADATA", value_parser = switch)]
    response_metadata: bool,
    #[arg(hide = true, long, env = "REDIS_TLS", value_parser = switch)]
    redis_tls: bool,
    #[arg(hide = true, long, env = "REDIS_PERSECOND", value_parser = switch)]
    redis_per_second: bool,
    #[arg(hide = true, long, env = "REDIS_PERSECOND_TLS", value_parser = switch)]
    redis_per_second_tls: bool,
    /// The directory of the limits. Changes are in force within a second. Default:
    /// $RUNTIME_ROOT/$RUNTIME_SUBDIRECTORY/$RUNTIME_APPDIRECTORY
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    #[arg(long, hide = true, env = "RUNTIME_ROOT", default_value = "/srv/runtime_data/current")]
    runtime_root: String,
    #[arg(long, hide = true, env = "RUNTIME_SUBDIRECTORY", default_value = "")]
    runtime_subdirectory: String,
    #[arg(long, hide = true, env = "RUNTIME_APPDIRECTORY", default_value = "config")]
    runtime_app_directory: String,
    #[command(flatten)]
    pub(crate) domains: Domains,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    /// The store of the counts: `memory`, redis://127.0.0.1, redis-sentinel://10.0.0.1,10.0.0.2#name or
    /// redis-cluster://10.0.0.1:7000,10.0.0.2:7000. Default: that of REDIS_URL and its like, else `memory`
    #[arg(help_heading = STORE, long, value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Another store for limits per second that are written as `rate_limit:`
    #[arg(help_heading = STORE, long, value_name = "URL", env = "TIDEGATE_PER_SECOND_STORE", hide_env_values = true)]
    per_second_store: Option<String>,
    #[arg(long, hide = true, env = "BACKEND_TYPE", default_value = "redis")]
    backend_type: String,
    #[arg(long, hide = true, env = "REDIS_TYPE", default_value = "SINGLE")]
    redis_type: String,
    #[arg(long, hide = true, env = "REDIS_SOCKET_TYPE", default_value = "unix")]
    redis_socket_type: String,
    #[arg(long, hide = true, env = "REDIS_URL", hide_env_values = true)]
    redis_url: Option<String>,
    #[arg(long, hide = true, env = "REDIS_AUTH", hide_env_values = true, default_value = "")]
    redis_auth: String,
    #[arg(long, hide = true, env = "REDIS_PERSECOND_TYPE", default_value = "SINGLE")]
    redis_per_second_type: String,
    #[arg(long, hide = true, env = "REDIS_PERSECOND_SOCKET_TYPE", default_value = "unix")]
    redis_per_second_socket_type: String,
    #[arg(long, hide = true, env = "REDIS_PERSECOND_URL", hide_env_values = true)]
    redis_per_second_url: Option<String>,
    #[arg(
        long,
        hide = true,
        env = "REDIS_PERSECOND_AUTH",
        hide_env_values = true,
        default_value = ""
    )]
    redis_per_second_auth: String,
    #[command(flatten)]
    pub(crate) connections: StoreArgs,
    /// Maximum size of the cache of denials in bytes; 0 for none. A denial is answered from the
    /// cache until it ends, without a call to the store.
    #[arg(help_heading = STORE, long, value_name = "BYTES", env = "LOCAL_CACHE_SIZE_IN_BYTES", default_value = "0")]
    local_cache_bytes: usize,
    /// What a request is answered that the store cannot decide: by an error, so that Envoy decides by its
    /// failure_mode_deny, or that it passes, or that it is refused.
    #[arg(help_heading = STORE, long, value_name = "ANSWER", value_enum, env = "TIDEGATE_ON_STORE_ERROR", default_value = "error")]
    on_store_error: OnError,

    #[command(flatten)]
    pub(crate) grpc: Grpc,
    #[command(flatten)]
    pub(crate) http: Http,
    #[command(flatten)]
    pub(crate) prometheus: Prometheus,
    #[command(flatten)]
    pub(crate) debug: Debug,
    #[command(flatten)]
    pub(crate) page: Page,

    #[command(flatten)]
    pub(crate) resp: Resp,

    /// From which share of a limit on hits count as near it.
    #[arg(long, value_name = "RATIO", env = "NEAR_LIMIT_RATIO", default_value = "0.8", value_parser = ratio)]
    near_limit_ratio: NearLimitRatio,
    #[arg(long, hide = true, env = "LIMIT_LIMIT_HEADER", default_value = "RateLimit-Limit")]
    limit_header: String,
    #[arg(
        long,
        hide = true,
        env = "LIMIT_REMAINING_HEADER",
        default_value = "RateLimit-Remaining"
    )]
    remaining_header: String,
    #[arg(long, hide = true, env = "LIMIT_RESET_HEADER", default_value = "RateLimit-Reset")]
    reset_header: String,
    #[command(flatten)]
    pub(crate) xds: XdsArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnError {
    Error,
    Allow,
    Deny,
}

impl Serve {
    /// Rejects what envoyproxy/ratelimit can do and this cannot: it must not be ignored.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.backend_type != "redis" && self.store.is_none() {
            return Err(format!(
                "BACKEND_TYPE is `{}`; it must be redis, or TIDEGATE_STORE be set to a store",
                self.backend_type
            ));
        }
        self.grpc.check()?;
        self.tls.http().check()?;
        self.tls.resp().check()?;
        self.tls.page().check()?;
        match self.tls.grpc().check() {
            // envoyproxy/ratelimit starts with these.
            Err(why) if !self.tls.is_grpc_on() => {
                stderr!("warning: {why}");
                Ok(())
            }
            checked => checked,
        }
    }

    /// The management server, if limits come from one.
    pub(crate) fn xds_settings(&self) -> Result<Option<XdsSettings>, String> {
        self.xds.settings(self.config.as_deref())
    }

    pub(crate) fn directory(&self) -> PathBuf {
        let of_runtime = || {
            let root = Path::new(&self.runtime_root);
            root.join(&self.runtime_subdirectory).join(&self.runtime_app_directory)
        };
        self.config.clone().unwrap_or_else(of_runtime)
    }

    pub(crate) fn store_url(&self) -> Result<String, Error> {
        match (&self.store, given(&self.redis_url)) {
            (Some(url), _) => Ok(url.clone()),
            (None, Some(url)) => RedisVariables {
                kind: &self.redis_type,
                socket: &self.redis_socket_type,
                url,
                auth: &self.redis_auth,
                is_tls: self.redis_tls,
            }
            .to_url(),
            (None, None) => Ok(MEMORY.to_owned()),
        }
    }

    pub(crate) fn per_second_url(&self) -> Result<Option<String>, Error> {
        match (&self.per_second_store, given(&self.redis_per_second_url)) {
            (Some(url), _) => Ok(Some(url.clone())),
            (None, Some(url)) if self.redis_per_second => RedisVariables {
                kind: &self.redis_per_second_type,
                socket: &self.redis_per_second_socket_type,
                url,
                auth: &self.redis_per_second_auth,
                is_tls: self.redis_per_second_tls,
            }
            .to_url()
            .map(Some),
            (None, None) if self.redis_per_second => Err(Error::new(
                ErrorKind::InvalidConfig,
                "REDIS_PERSECOND needs REDIS_PERSECOND_URL, which is not set",
            )),
            (None, _) => Ok(None),
        }
    }

    /// Returns the cache of denials for each of `stores` stores, if there is one.
    pub(crate) fn deny_cache(&self, stores: usize) -> Option<DenyCache> {
        let bytes = self.local_cache_bytes;
        (bytes > 0).then(|| DenyCache::new().max_bytes(bytes / stores))
    }

    pub(crate) fn behaviour(&self) -> Behaviour {
        let mut names = HeaderNames::default();
        names.limit.clone_from(&self.limit_header);
        names.remaining.clone_from(&self.remaining_header);
        names.reset.clone_from(&self.reset_header);
        let mut behaviour = Behaviour::default();
        behaviour.is_shadow = self.shadow_mode;
        behaviour.all_are_quotas = self.quota_mode;
        behaviour.spares_others_when_over = self.stop_increment_when_over_limit;
        behaviour.all_or_none = self.all_or_none;
        behaviour.headers = self.response_headers.then_some(names);
        behaviour.has_metadata = self.response_metadata;
        behaviour.near_limit_ratio = self.near_limit_ratio;
        behaviour
    }

    pub(crate) fn on_store_error(&self) -> OnStoreError {
        match self.on_store_error {
            OnError::Error => OnStoreError::Error,
            OnError::Allow => OnStoreError::Allow,
            OnError::Deny => OnStoreError::Deny,
        }
    }

    /// Returns the maximum numbers of connections of the protocols that are served.
    pub(crate) fn max_connections(&mut self) -> Vec<MaxConnections<'_>> {
        let mut maximums = vec![self.grpc.max_connections(), self.http.max_connections()];
        maximums.extend(self.resp.max_connections());
        maximums
    }
}
