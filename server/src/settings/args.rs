//! The flags and the commands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[cfg(feature = "top")]
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
    /// Show in the terminal what a server does now: the content of its page.
    ///
    /// Arrow keys scroll, `q` quits. Exit codes: 0 after `q`; 1 if there is no terminal or, with
    /// `--once`, no answer.
    #[cfg(feature = "top")]
    Top(Top),
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
