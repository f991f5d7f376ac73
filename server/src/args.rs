//! The command line and the environment.

mod http;
mod page;
mod prometheus;
mod store;
mod tls;
#[cfg(feature = "top")]
mod top;
mod xds;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_core::Error;
use tidegate_core::policy::parse_duration;
use tidegate_server::config::SameDomain;
use tidegate_server::decide::{Behaviour, HeaderNames, NearLimitRatio};
use tidegate_server::health::HealthSettings;
use tidegate_server::resp::{Login, RespSettings};
use tidegate_server::rls::{ConnectionAge, GrpcSettings};
use tidegate_server::service::OnStoreError;
use tidegate_server::store::{MEMORY, RedisVariables};
use tidegate_server::xds::XdsSettings;

use http::Http;
use store::StoreArgs;
use tls::TlsArgs;
use xds::XdsArgs;

pub(crate) use http::read_only_settings;
use page::Page;
use prometheus::Prometheus;
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
    #[arg(long, env = "MERGE_DOMAIN_CONFIG", value_parser = FalseyValueParser::new())]
    merge_domains: bool,
}

impl Domains {
    pub(crate) fn same_domain(&self) -> SameDomain {
        if self.merge_domains { SameDomain::Merge } else { SameDomain::Refuse }
    }
}

#[derive(Args)]
pub(crate) struct Serve {
    /// No request is refused; the statuses of descriptors say what would be.
    #[arg(long, env = "SHADOW_MODE", value_parser = FalseyValueParser::new())]
    shadow_mode: bool,
    /// All limits written as `rate_limit:` are quotas.
    #[arg(long, env = "QUOTA_MODE", value_parser = FalseyValueParser::new())]
    quota_mode: bool,
    /// Once a `rate_limit:` is over, a request is counted only by those that are.
    #[arg(long, env = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", value_parser = FalseyValueParser::new())]
    stop_increment_when_over_limit: bool,
    /// A `rate_limit:` is decided as a policy is: all or none, and without counting what it refuses.
    #[arg(long, env = "TIDEGATE_ALL_OR_NONE", value_parser = FalseyValueParser::new())]
    all_or_none: bool,
    /// Responses have headers with the limit.
    #[arg(long, env = "LIMIT_RESPONSE_HEADERS_ENABLED", value_parser = FalseyValueParser::new())]
    response_headers: bool,
    /// Responses have dynamic metadata.
    #[arg(long, env = "RESPONSE_DYNAMIC_METADATA", value_parser = FalseyValueParser::new())]
    response_metadata: bool,
    #[arg(hide = true, long, env = "REDIS_TLS", value_parser = FalseyValueParser::new())]
    redis_tls: bool,
    #[arg(hide = true, long, env = "REDIS_PERSECOND", value_parser = FalseyValueParser::new())]
    redis_per_second: bool,
    #[arg(hide = true, long, env = "REDIS_PERSECOND_TLS", value_parser = FalseyValueParser::new())]
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
    #[arg(long, value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Another store for limits per second that are written as `rate_limit:`
    #[arg(long, value_name = "URL", env = "TIDEGATE_PER_SECOND_STORE", hide_env_values = true)]
    per_second_store: Option<String>,
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
    /// What a request is answered that the store cannot decide: by an error, so that Envoy decides by its
    /// failure_mode_deny, or that it passes, or that it is refused.
    #[arg(long, value_enum, env = "TIDEGATE_ON_STORE_ERROR", default_value = "error")]
    on_store_error: OnError,

    /// The address of the gRPC service.
    #[arg(long, value_name = "ADDRESS", env = "GRPC_HOST", default_value = "0.0.0.0")]
    grpc_host: String,
    /// The port of the gRPC service; 0 for any.
    #[arg(long, value_name = "PORT", env = "GRPC_PORT", default_value = "8081")]
    grpc_port: u16,
    /// After which time a client is told to connect anew.
    #[arg(long, value_name = "SPAN", env = "GRPC_MAX_CONNECTION_AGE", default_value = "24h",
          value_parser = parse_duration)]
    grpc_max_connection_age: Duration,
    /// For how long its requests are served then.
    #[arg(long, value_name = "SPAN", env = "GRPC_MAX_CONNECTION_AGE_GRACE", default_value = "1h",
          value_parser = parse_duration)]
    grpc_max_connection_age_grace: Duration,
    /// The maximum number of connections of gRPC.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "TIDEGATE_GRPC_MAX_CONNECTIONS",
        default_value = "10000"
    )]
    grpc_max_connections: usize,
    /// The health of gRPC is NOT_SERVING while a store cannot decide.
    #[arg(long, env = "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", value_parser = FalseyValueParser::new())]
    health_needs_store: bool,
    /// For how long requests are still taken after SIGTERM, while the health of gRPC is NOT_SERVING: longer than the
    /// interval of Envoy's health checks, so that it asks other servers by then.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_DRAIN", value_parser = parse_duration)]
    drain: Option<Duration>,

    #[command(flatten)]
    pub(crate) http: Http,
    #[command(flatten)]
    pub(crate) prometheus: Prometheus,
    #[command(flatten)]
    pub(crate) page: Page,

    /// The address of RESP, the protocol of Redis.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_RESP_HOST", default_value = "127.0.0.1")]
    resp_host: String,
    /// The port of RESP; 0 for any. Without it, RESP is not served.
    #[arg(long, value_name = "PORT", env = "TIDEGATE_RESP_PORT")]
    resp_port: Option<u16>,
    /// The user that clients of RESP log in as.
    #[arg(long, value_name = "USER", env = "TIDEGATE_RESP_USER", default_value = "default")]
    resp_user: String,
    /// The password of clients of RESP; set it by the variable, as others see the arguments of a process.
    #[arg(long, value_name = "PASSWORD", env = "TIDEGATE_RESP_PASSWORD", hide_env_values = true)]
    resp_password: Option<String>,
    /// RESP needs no password on addresses of other machines either.
    #[arg(long, env = "TIDEGATE_RESP_WITHOUT_PASSWORD", value_parser = FalseyValueParser::new())]
    resp_without_password: bool,
    /// The maximum number of connections of RESP.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "TIDEGATE_RESP_MAX_CONNECTIONS",
        default_value = "10000"
    )]
    resp_max_connections: usize,
    /// After which time without a command a connection of RESP ends.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_RESP_IDLE_TIMEOUT", default_value = "10m",
          value_parser = parse_duration)]
    resp_idle_timeout: Duration,

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

/// A variable that is set and empty is not given.
fn given(url: &Option<String>) -> Option<&String> {
    url.as_ref().filter(|url| !url.is_empty())
}

fn ratio(text: &str) -> Result<NearLimitRatio, String> {
    let expected = "a number from 0 to 1 with at most six decimals, such as 0.8";
    NearLimitRatio::parse(text).ok_or_else(|| expected.to_owned())
}

impl Serve {
    /// Rejects what envoyproxy/ratelimit can do and this cannot: it must not be ignored.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.tls.http().check()?;
        self.tls.resp().check()?;
        self.tls.page().check()?;
        match self.tls.grpc().check() {
            // envoyproxy/ratelimit starts with these.
            Err(why) if !self.tls.is_grpc_on() => {
                eprintln!("warning: {why}");
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
            _ => Ok(None),
        }
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

    pub(crate) fn grpc_settings(&self) -> GrpcSettings {
        let (max, grace) = (self.grpc_max_connection_age, self.grpc_max_connection_age_grace);
        let mut settings = GrpcSettings::default();
        settings.age = ConnectionAge::new(max, grace);
        settings.max_connections = self.grpc_max_connections;
        settings.health = self.health();
        settings
    }

    fn health(&self) -> HealthSettings {
        let mut settings = HealthSettings::default();
        settings.needs_store = self.health_needs_store;
        settings.drain = self.drain.unwrap_or_default();
        settings
    }

    /// The maximum number of connections of all protocols.
    pub(crate) fn max_connections(&self) -> u64 {
        let resp = self.resp_port.map_or(0, |_| self.resp_max_connections);
        let numbers =
            [self.grpc_settings().max_connections, self.http.settings().max_connections, resp];
        numbers.into_iter().fold(0, |sum, number| sum.saturating_add(number as u64))
    }

    pub(crate) fn resp_address(&self) -> Option<(&str, u16)> {
        self.resp_port.map(|port| (&*self.resp_host, port))
    }

    /// The settings of RESP on an address.
    ///
    /// # Errors
    ///
    /// If other machines reach it, and it needs no password.
    pub(crate) fn resp_settings(&self, address: SocketAddr) -> Result<RespSettings, String> {
        let mut settings = RespSettings::default();
        settings.login = given(&self.resp_password)
            .map(|password| Login { user: self.resp_user.clone(), password: password.clone() });
        settings.max_connections = self.resp_max_connections;
        settings.idle_timeout = self.resp_idle_timeout;
        let is_open = settings.login.is_none() && !self.resp_without_password;
        if is_open && !address.ip().is_loopback() {
            return Err(format!(
                "RESP on {address} needs a password (TIDEGATE_RESP_PASSWORD), or to be told that it needs none \
                 (TIDEGATE_RESP_WITHOUT_PASSWORD)"
            ));
        }
        Ok(settings)
    }

    pub(crate) fn grpc_address(&self) -> (&str, u16) {
        (&self.grpc_host, self.grpc_port)
    }
}
