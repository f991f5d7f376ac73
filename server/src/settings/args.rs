//! The flags and the commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tidegate_core::parse_duration;

use super::Top;
use super::values::{Origin, Values};

/// Envoy's rate-limit service, RESP and JSON on any store of Tidegate.
///
/// Without a command, the program serves requests. It reads its settings from a file, from
/// environment variables and from the flags below. A variable takes precedence over the file, and a
/// flag over both. `tidegate-server init` writes a file with all settings.
/// `tidegate-server variables` lists all variables, including the variables of
/// envoyproxy/ratelimit.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) flags: Flags,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Check the settings and the limits as the server would, and report what is wrong.
    ///
    /// Exit codes: 0 if they are valid, 1 or 2 if not.
    Check {
        /// Directory of the limits. Default: the directory in the settings
        directory: Option<PathBuf>,
        /// Settings file (TOML) [env: TIDEGATE_SETTINGS]
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
        /// Allow several files with limits of one domain.
        #[arg(long)]
        merge_domains: bool,
    },
    /// Write a settings file with all settings, their defaults and their meaning.
    ///
    /// An existing file is not overwritten.
    Init {
        /// File to write.
        #[arg(default_value = "tidegate.toml")]
        file: PathBuf,
    },
    /// List the environment variables, with their meaning.
    Variables,
    /// Show and change the limit set in the store, which servers with `limits.limit_set = "store"`
    /// follow.
    ///
    /// Exit codes: 0 if the command was executed, 1 if the store or the change is not valid, 2 if
    /// an argument is not valid.
    Limits {
        /// Settings file (TOML) with the store [env: TIDEGATE_SETTINGS]
        #[arg(long, value_name = "FILE", global = true)]
        settings: Option<PathBuf>,
        /// URL of the store. Default: the store in the settings [env: TIDEGATE_STORE]
        #[arg(long, value_name = "URL", global = true)]
        store: Option<String>,
        #[command(subcommand)]
        action: LimitsAction,
    },
    /// Show in the terminal what a server does now: the content of its page.
    ///
    /// Arrow keys scroll, `q` quits. Exit codes: 0 after `q`; 1 if there is no terminal or, with
    /// `--once`, no answer.
    Top(Top),
}

/// An action on the limit set in the store.
#[derive(Subcommand)]
pub(crate) enum LimitsAction {
    /// List the names with their policies and the numbers of their overrides.
    List,
    /// Print the whole set, in the format that `set` reads.
    Show,
    /// Replace the whole set by the set in a file.
    Set {
        /// File of policies and overrides; `-` for standard input.
        file: PathBuf,
        /// Print the changes, and make none.
        #[arg(long)]
        dry_run: bool,
        /// Access log to replay first: `tidegate replay` shows the subjects that the new set denies
        /// more often than the set in the store. The program `tidegate` must be on the PATH, or in
        /// the folder of tidegate-server.
        #[arg(long = "try", value_name = "LOG")]
        log: Option<PathBuf>,
        /// Subject of the replay, as in `tidegate replay --by`: ip, user, all or a field.
        #[arg(long, value_name = "WHAT", requires = "log")]
        try_by: Option<String>,
        #[command(flatten)]
        by: By,
    },
    /// Set a policy, or with --subject or --tenant an override.
    Override {
        /// Policy with its name, such as `plan: fixed-window 500/1m`.
        policy: String,
        #[command(flatten)]
        target: Target,
        /// Time at which the override ends, such as 2026-12-04T18:00:00Z.
        #[arg(long, value_name = "TIME", conflicts_with = "lasting")]
        until: Option<String>,
        /// Time after which the override ends, such as 3d.
        #[arg(long = "for", value_name = "SPAN", value_parser = span)]
        lasting: Option<Duration>,
        #[command(flatten)]
        by: By,
    },
    /// Remove a policy, or with --subject or --tenant an override.
    Remove {
        /// Name of the policy.
        name: String,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        by: By,
    },
    /// Print the last changes, from the oldest to the newest.
    History {
        /// Maximum number of changes.
        #[arg(long, default_value_t = 20)]
        last: usize,
    },
    /// Make a new version with the limits of an earlier version. Overrides that have ended are not
    /// set again.
    Rollback {
        /// Number of the version.
        version: u64,
        #[command(flatten)]
        by: By,
    },
}

/// The subjects of an override.
#[derive(Args)]
pub(crate) struct Target {
    /// Subject of the override.
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Tenant of the override.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

/// The author of a change and the reason for it, which the history records.
#[derive(Args)]
pub(crate) struct By {
    /// Author of the change.
    #[arg(long, env = "USER", default_value = "unknown")]
    pub(crate) author: String,
    /// Reason for the change.
    #[arg(long)]
    pub(crate) reason: String,
}

fn span(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

#[derive(Args, Default)]
pub(super) struct Flags {
    /// Settings file (TOML) [env: TIDEGATE_SETTINGS]
    #[arg(long, value_name = "FILE")]
    pub(super) settings: Option<PathBuf>,
    /// Directory of the limits. Changes take effect within a second [default:
    /// /srv/runtime_data/current/config]
    #[arg(long, value_name = "DIR")]
    config: Option<String>,
    /// Store of the counts: memory, redis://HOST, unix:///PATH, redis-sentinel://HOST,HOST#NAME or
    /// redis-cluster://HOST,HOST [default: memory] [env: TIDEGATE_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Address of gRPC; port 0 for any free port [default: 0.0.0.0:8081]
    #[arg(long, value_name = "HOST:PORT")]
    grpc: Option<String>,
    /// Address of JSON, health and metrics [default: 127.0.0.1:8080]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Address of RESP, the protocol of Redis; not served by default. Set the password by
    /// TIDEGATE_RESP_PASSWORD.
    #[arg(long, value_name = "HOST:PORT")]
    resp: Option<String>,
    /// Address of the page that shows what the server does now; not served by default.
    #[arg(long, value_name = "HOST:PORT")]
    page: Option<String>,
    /// Answer to a request that the store cannot decide: error (Envoy then decides by its
    /// failure_mode_deny), allow, deny, or share:1/3 (this server decides, with that share of each
    /// limit) [default: error] [env: TIDEGATE_ON_STORE_ERROR]
    #[arg(long, value_name = "ANSWER")]
    on_store_error: Option<String>,
    /// Time after SIGTERM during which the server still decides requests while its health is
    /// NOT_SERVING: longer than the interval of Envoy's health checks [default: 0s] [env:
    /// TIDEGATE_DRAIN]
    #[arg(long, value_name = "SPAN")]
    drain: Option<String>,
    /// Level of the log on standard error: error, warn, info, debug, trace or off [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// Format of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Print each setting with its value and its origin, and exit. Secrets are `***`.
    #[arg(long)]
    pub(super) print_settings: bool,
}

impl Flags {
    /// Creates flags with a settings file and a store.
    pub(super) fn with_store(settings: Option<PathBuf>, store: Option<String>) -> Self {
        Self { settings, store, ..Self::default() }
    }

    /// Copies the values of the given flags to `values`.
    pub(super) fn apply(&self, values: &mut Values) {
        for (key, flag, text) in [
            ("limits.directory", "--config", &self.config),
            ("store.url", "--store", &self.store),
            ("grpc.address", "--grpc", &self.grpc),
            ("http.address", "--http", &self.http),
            ("resp.address", "--resp", &self.resp),
            ("page.address", "--page", &self.page),
            ("store.on_error", "--on-store-error", &self.on_store_error),
            ("grpc.drain", "--drain", &self.drain),
            ("log.level", "--log", &self.log),
            ("log.format", "--log-format", &self.log_format),
        ] {
            if let Some(text) = text {
                values.set(key, text, Origin::Flag(flag));
            }
        }
    }
}
