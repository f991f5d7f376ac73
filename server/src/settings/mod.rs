//! The settings: defaults, the settings file, environment variables and flags, in ascending
//! precedence.

mod args;
mod check;
mod file;
mod listener;
mod ratelimit_env;
mod store;
mod top;
mod values;
mod xds;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use tidegate_server::calls::resp::RespSettings;
use tidegate_server::envoy::decide::{Behaviour, HeaderNames};
use tidegate_server::envoy::grpc::{ConnectionAge, GrpcSettings};
use tidegate_server::limits::admin::AdminTokens;
use tidegate_server::limits::config::SameDomain;
use tidegate_server::limits::xds::XdsSettings;
use tidegate_server::net::http::HttpSettings;

pub(crate) use args::{By, LimitsAction, Target};
use args::{Cli, Command, Flags};
use listener::secret_of;
pub(crate) use listener::{Listener, Section};
use ratelimit_env::Environment;
pub(crate) use store::Store;
pub(crate) use top::Top;
pub(crate) use values::Address;
use values::{
    Origin, Values, choice, header_name, number, ratio, span, span_or_zero, switch, text, text_as,
};

use crate::log::{Format, LogSettings, say, write_error};
use tidegate_server::net::descriptors::MaxConnections;

/// The reason why the program does not start.
#[derive(Debug)]
pub(crate) struct Mistake {
    message: String,
    /// The exit code of the program: 2 if the value of a setting is not valid, and 1 if settings
    /// contradict each other or cannot be used.
    exit_code: u8,
}

impl Mistake {
    fn value(message: String) -> Self {
        Self { message, exit_code: 2 }
    }
}

impl From<String> for Mistake {
    fn from(message: String) -> Self {
        Self { message, exit_code: 1 }
    }
}

/// The task of the program, which the command line selects.
pub(crate) enum Task {
    Serve(Box<Settings>),
    /// Check the settings, and the limits in a directory. The directory is `None` if a management
    /// server sends the limits.
    Check {
        settings: Box<Settings>,
        limits: Option<PathBuf>,
        same_domain: SameDomain,
    },
    /// Show or change the limit set in the store.
    Limits(Box<Settings>, LimitsAction),
    Top(Top),
    /// Do nothing, because the command is already executed.
    Done,
}

/// Reads the command line, the environment and the settings file. This function ends the program if
/// there is a mistake, or if the command line asks for help.
pub(crate) fn read() -> Task {
    let Cli { command, flags } = Cli::parse();
    let done = match command {
        None => serve(&flags),
        Some(Command::Check { directory, settings, merge_domains }) => {
            check_limits(directory, settings, merge_domains)
        }
        Some(Command::Init { file }) => init(&file),
        Some(Command::Variables) => {
            let ours = OURS.iter().map(|(name, _, about)| format!("{name:<46}{about}\n"));
            say(format!("{}{}", ours.collect::<String>(), ratelimit_env::list()).trim_end());
            Ok(Task::Done)
        }
        Some(Command::Limits { settings, store, action }) => {
            let loaded = Settings::load(&Flags::with_store(settings, store));
            loaded.map(|(settings, _)| Task::Limits(Box::new(settings), action))
        }
        Some(Command::Top(top)) => Ok(Task::Top(top)),
    };
    done.unwrap_or_else(|mistake| {
        write_error(format_args!("tidegate-server: {}", mistake.message));
        std::process::exit(mistake.exit_code.into())
    })
}

fn serve(flags: &Flags) -> Result<Task, Mistake> {
    let (settings, values) = Settings::load(flags)?;
    if !flags.print_settings {
        return Ok(Task::Serve(Box::new(settings)));
    }
    for warning in &settings.warnings {
        write_error(format_args!("warning: {warning}"));
    }
    say(values.print().trim_end());
    Ok(Task::Done)
}

fn check_limits(
    directory: Option<PathBuf>,
    settings: Option<PathBuf>,
    merge_domains: bool,
) -> Result<Task, Mistake> {
    let mut flags = Flags::default();
    flags.settings = settings;
    let (settings, _) = Settings::load(&flags)?;
    for warning in &settings.warnings {
        write_error(format_args!("warning: {warning}"));
    }
    let own = settings.xds.is_none().then(|| settings.directory.clone());
    let same_domain = if merge_domains { SameDomain::Merge } else { settings.same_domain };
    Ok(Task::Check { settings: Box::new(settings), limits: directory.or(own), same_domain })
}

fn init(path: &Path) -> Result<Task, Mistake> {
    let create = || std::fs::File::create_new(path)?.write_all(DEFAULTS.as_bytes());
    create().map_err(|error| format!("{}: the file cannot be written: {error}", path.display()))?;
    say(format_args!("{} has all settings with their defaults", path.display()));
    Ok(Task::Done)
}

/// The text of the settings file with all settings, their defaults and their meaning.
const DEFAULTS: &str = include_str!("tidegate.toml");

/// The environment variables of this server: the name of the variable, the setting, and the
/// meaning. The variable [`SETTINGS`] names the settings file.
const OURS: [(&str, &str, &str); 7] = [
    (SETTINGS, "", "Settings file (TOML)."),
    ("TIDEGATE_STORE", "store.url", "Sets store.url."),
    ("TIDEGATE_HTTP_PASSWORD", "http.password", "Password of /v1."),
    ("TIDEGATE_RESP_PASSWORD", "resp.password", "Password of RESP."),
    ("TIDEGATE_PAGE_PASSWORD", "page.password", "Password of the page."),
    ("TIDEGATE_DRAIN", "grpc.drain", "Sets grpc.drain."),
    ("TIDEGATE_ON_STORE_ERROR", "store.on_error", "Sets store.on_error."),
];

const SETTINGS: &str = "TIDEGATE_SETTINGS";

/// The value of `limits.limit_set` for a limit set that the store keeps.
pub(crate) const KEPT_IN_STORE: &str = "store";

/// All settings of the server.
pub(crate) struct Settings {
    pub(crate) store: Store,
    pub(crate) grpc: Grpc,
    pub(crate) http: Http,
    pub(crate) resp: Resp,
    pub(crate) page: Page,
    /// The directory of the limits. It is not used if a management server sends the limits.
    pub(crate) directory: PathBuf,
    pub(crate) same_domain: SameDomain,
    /// The directory of lists that allow and deny.
    pub(crate) lists: Option<PathBuf>,
    /// The file of the limit set, or `store`.
    pub(crate) limit_set: Option<PathBuf>,
    /// The maximum number of overrides of each policy in memory.
    pub(crate) max_overrides: NonZeroUsize,
    pub(crate) leases_all: bool,
    /// The management server; `None` if the limits are in a directory.
    pub(crate) xds: Option<XdsSettings>,
    /// Whether the server is healthy before the management server has sent limits.
    pub(crate) starts_without_limits: bool,
    pub(crate) needs_domain: bool,
    pub(crate) answers: Behaviour,
    pub(crate) log: LogSettings,
    /// Settings without effect.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    fn load(flags: &Flags) -> Result<(Self, Values), Mistake> {
        let mut values = Values::from_defaults(DEFAULTS)?;
        // Reading the defaults determines the form of each value, which `file::apply` checks.
        Self::read(&mut values)?;
        let mut warnings = Vec::new();
        let known: Vec<&str> =
            OURS.iter().map(|(name, ..)| *name).chain(ratelimit_env::names()).collect();
        let mut variables = std::collections::HashMap::new();
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            if known.contains(&name) {
                let text = |_: OsString| format!("{name} has a value that is not UTF-8");
                variables.insert(name.to_owned(), value.into_string().map_err(text)?);
            } else if name.starts_with("TIDEGATE_") && !value.is_empty() {
                warnings.push(unknown_variable(name, &values));
            }
        }
        // The environment has no order.
        warnings.sort();
        flags.apply(&mut values);
        let variable = |name: &str| variables.get(name).cloned();
        for (name, key, _) in OURS {
            if let Some(text) = variable(name).filter(|text| !text.is_empty()) {
                values.set(key, text, Origin::Variable(name));
            }
        }
        let given = variable(SETTINGS).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = flags.settings.clone().or(given) {
            file::apply(&mut values, &path)?;
        }
        let environment = Environment { variable: &variable, warnings: &mut warnings };
        ratelimit_env::apply(&mut values, environment)?;
        let mut settings = Self::read(&mut values)?;
        warnings.extend(check::check(&settings, &values)?);
        settings.warnings = warnings;
        Ok((settings, values))
    }

    /// Reads all values.
    fn read(values: &mut Values) -> Result<Self, Mistake> {
        let store = Store::read(values)?;
        let grpc = Grpc::read(values)?;
        let http = Http::read(values)?;
        let resp = Resp::read(values)?;
        let page = Page {
            listener: Listener::read(Section::Page, values)?,
            shows_subjects: values.get("page.subjects", switch())?,
            limits_tokens: limits_tokens(values)?,
        };
        let is_xds = values.get("limits.source", choice(&[("files", false), ("xds", true)]))?;
        let directory = values.get("limits.directory", text())?;
        let same_domain = values.get("limits.merge_domains", switch())?;
        let lists = values.get("limits.lists", values::file())?;
        let limit_set = values.get("limits.limit_set", values::file())?;
        let any_number = number(NonZeroUsize::MIN, NonZeroUsize::MAX);
        let max_overrides = values.get("limits.max_overrides", any_number)?;
        let leases_all = values.get("limits.lease_all", switch())?;
        let answers = answers(values)?;
        let xds = xds::read(values)?;
        let starts_without_limits = values.get("xds.start_without_limits", switch())?;
        let needs_domain = values.get("limits.needs_domain", switch())?;
        Ok(Self {
            store,
            grpc,
            http,
            resp,
            page,
            directory: directory.into(),
            same_domain: if same_domain { SameDomain::Merge } else { SameDomain::Refuse },
            lists,
            limit_set,
            max_overrides,
            leases_all,
            xds: is_xds.then_some(xds),
            starts_without_limits,
            needs_domain,
            answers,
            log: log(values)?,
            warnings: Vec::new(),
        })
    }

    /// Returns the maximum numbers of connections of gRPC, of HTTP and, if it is served, of RESP.
    pub(crate) fn max_connections(&mut self) -> Vec<MaxConnections<'_>> {
        let mut maximums =
            vec![self.grpc.listener.max_connections(), self.http.listener.max_connections()];
        if self.resp.listener.address.is_some() {
            maximums.push(self.resp.listener.max_connections());
        }
        maximums
    }
}

/// Returns a warning about an unknown variable whose name begins with `TIDEGATE_`.
fn unknown_variable(name: &str, values: &Values) -> String {
    let own = |name: &str| name.trim_start_matches("TIDEGATE_").to_owned();
    let variables = OURS.iter().map(|(name, ..)| own(name));
    let variable = file::nearest(&own(name), variables).map(|own| format!("TIDEGATE_{own}"));
    let meant = variable.or_else(|| {
        let key = own(name).to_ascii_lowercase().replacen('_', ".", 1);
        let key = file::nearest(&key, values.keys().map(str::to_owned))?;
        Some(format!("{key} in the settings file"))
    });
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    format!("{name} is set, and has no effect: there is no such variable{meant}")
}

/// The settings of gRPC.
pub(crate) struct Grpc {
    pub(crate) listener: Listener,
    settings: GrpcSettings,
}

impl Grpc {
    fn read(values: &mut Values) -> Result<Self, Mistake> {
        let listener = Listener::read(Section::Grpc, values)?;
        let mut settings = GrpcSettings::default();
        settings.max_streams = values.get("grpc.max_streams", number(1, u32::MAX))?;
        settings.max_bytes = values.get("grpc.max_bytes", number(1, usize::MAX))?;
        let age = values.get("grpc.max_connection_age", span())?;
        let grace = values.get("grpc.max_connection_age_grace", span())?;
        settings.age = ConnectionAge::new(age, grace);
        settings.begin_timeout = values.get("grpc.begin_timeout", span())?;
        settings.request_timeout = values.get("grpc.request_timeout", span())?;
        settings.end_timeout = values.get("grpc.end_timeout", span())?;
        settings.health.needs_store = values.get("grpc.health_needs_store", switch())?;
        settings.health.drain = values.get("grpc.drain", span_or_zero())?;
        Ok(Self { listener, settings })
    }

    pub(crate) fn settings(&self) -> GrpcSettings {
        let mut settings = self.settings;
        settings.max_connections =
            self.listener.max_connections.unwrap_or(settings.max_connections);
        settings
    }
}

/// The settings of HTTP.
pub(crate) struct Http {
    pub(crate) listener: Listener,
    settings: HttpSettings,
    /// The address of a listener that serves only metrics. `metrics_path` is the path of the
    /// metrics there.
    pub(crate) metrics: Option<Address>,
    pub(crate) metrics_path: String,
    /// The address of the debug port.
    pub(crate) debug: Option<Address>,
}

impl Http {
    fn read(values: &mut Values) -> Result<Self, Mistake> {
        let listener = Listener::read(Section::Http, values)?;
        let mut settings = HttpSettings::default();
        settings.idle_timeout = values.get("http.idle_timeout", span())?;
        settings.request_timeout = values.get("http.request_timeout", span())?;
        settings.max_head_bytes = values.get("http.max_head_bytes", number(512, usize::MAX))?;
        let max_headers = values.get("http.max_headers", number(1, u16::MAX))?;
        settings.max_headers = max_headers.into();
        settings.max_body_bytes = values.get("http.max_body_bytes", number(1, usize::MAX))?;
        let metrics = values.get_address("http.metrics_address")?;
        let path = |text: &str| match text.starts_with('/') {
            true => Ok(text.to_owned()),
            false => Err("a path that begins with `/`".to_owned()),
        };
        let metrics_path = values.get("http.metrics_path", text_as(path))?;
        let debug = values.get_address("http.debug_address")?;
        Ok(Self { listener, settings, metrics, metrics_path, debug })
    }

    pub(crate) fn settings(&self) -> HttpSettings {
        let mut settings = self.settings.clone();
        settings.max_connections =
            self.listener.max_connections.unwrap_or(settings.max_connections);
        settings
    }
}

/// Returns the bounds of a listener with few clients and small requests, such as the listener of
/// the page.
pub(crate) fn read_only_settings() -> HttpSettings {
    let mut settings = HttpSettings::default();
    settings.max_connections = 100;
    settings.max_body_bytes = 1 << 10;
    settings
}

/// The settings of RESP.
pub(crate) struct Resp {
    pub(crate) listener: Listener,
    idle_timeout: Duration,
    command_timeout: Duration,
    write_timeout: Duration,
}

impl Resp {
    fn read(values: &mut Values) -> Result<Self, Mistake> {
        Ok(Self {
            listener: Listener::read(Section::Resp, values)?,
            idle_timeout: values.get("resp.idle_timeout", span())?,
            command_timeout: values.get("resp.request_timeout", span())?,
            write_timeout: values.get("resp.write_timeout", span())?,
        })
    }

    /// Returns the settings of RESP for a listener on `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if other machines can reach `address`, no password is set, and the settings
    /// do not permit connections without a password.
    pub(crate) fn settings(&self, address: SocketAddr) -> Result<RespSettings, String> {
        let listener = &self.listener;
        let mut settings = RespSettings::default();
        settings.login.clone_from(&listener.login);
        settings.max_connections = listener.max_connections.unwrap_or(settings.max_connections);
        settings.idle_timeout = self.idle_timeout;
        settings.command_timeout = self.command_timeout;
        settings.write_timeout = self.write_timeout;
        let is_open = settings.login.is_none() && !listener.without_password;
        if is_open && !address.ip().is_loopback() {
            return Err(format!(
                "RESP on {address} needs a password (TIDEGATE_RESP_PASSWORD, or resp.password_file in the settings \
                 file), or resp.without_password = true in the settings file"
            ));
        }
        Ok(settings)
    }
}

/// The settings of the page.
pub(crate) struct Page {
    pub(crate) listener: Listener,
    pub(crate) shows_subjects: bool,
    /// The tokens of clients that may show and change the limit set.
    pub(crate) limits_tokens: AdminTokens,
}

impl Page {
    /// Returns the bounds of the listener. A client that changes the limit set sends more than a
    /// reader of the page.
    pub(crate) fn settings(&self) -> HttpSettings {
        let mut settings = read_only_settings();
        if self.limits_tokens.write.is_some() {
            settings.max_body_bytes = HttpSettings::default().max_body_bytes;
        }
        settings
    }
}

fn limits_tokens(values: &mut Values) -> Result<AdminTokens, Mistake> {
    let mut tokens = AdminTokens::default();
    tokens.read = secret_of(values, "page.limits_read_token")?;
    tokens.write = secret_of(values, "page.limits_write_token")?;
    Ok(tokens)
}

fn answers(values: &mut Values) -> Result<Behaviour, Mistake> {
    let mut answers = Behaviour::default();
    answers.is_shadow = values.get("answers.shadow_mode", switch())?;
    answers.all_are_quotas = values.get("answers.quota_mode", switch())?;
    answers.spares_others_when_over =
        values.get("answers.stop_increment_when_over_limit", switch())?;
    answers.all_or_none = values.get("answers.all_or_none", switch())?;
    answers.near_limit_ratio = values.get("answers.near_limit_ratio", ratio())?;
    let has_headers = values.get("answers.response_headers", switch())?;
    let mut names = HeaderNames::default();
    names.limit = values.get("answers.limit_header", header_name())?;
    names.remaining = values.get("answers.remaining_header", header_name())?;
    names.reset = values.get("answers.reset_header", header_name())?;
    answers.headers = has_headers.then_some(names);
    answers.has_metadata = values.get("answers.response_metadata", switch())?;
    Ok(answers)
}

fn log(values: &mut Values) -> Result<LogSettings, Mistake> {
    use tracing_subscriber::filter::LevelFilter;
    let levels = [
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
        ("off", LevelFilter::OFF),
    ];
    let level = values.get("log.level", choice(&levels))?;
    let formats = [("text", Format::Text), ("json", Format::Json)];
    let format = values.get("log.format", choice(&formats))?;
    Ok(LogSettings { level, format })
}
