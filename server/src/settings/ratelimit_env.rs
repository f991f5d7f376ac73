//! The environment variables of envoyproxy/ratelimit. No other source file contains their names.
//!
//! Each variable that is set has an effect, or causes an error or a warning.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Mistake;
use super::values::{Kind, Origin, Values, switch};

/// The effect of a variable.
#[derive(Clone, Copy)]
enum Effect {
    /// The variable sets the setting with this key.
    Sets(&'static str),
    /// The variable sets the setting with this key. The list translates a word of
    /// envoyproxy/ratelimit into a word of this server.
    Maps(&'static str, &'static [(&'static str, &'static str)]),
    /// A function of this file reads the variable, alone or together with other variables.
    Read,
    /// The variable has no effect. If its value is not in this list, the server logs a warning.
    Ignored(&'static [&'static str]),
}

use Effect::{Ignored, Maps, Read, Sets};

/// A variable: its name, its effect, and its meaning or the reason why it has no effect.
type Variable = (&'static str, Effect, &'static str);

const LEVELS: &[(&str, &str)] = &[
    ("panic", "error"),
    ("fatal", "error"),
    ("error", "error"),
    ("warn", "warn"),
    ("warning", "warn"),
    ("info", "info"),
    ("debug", "debug"),
    ("trace", "trace"),
];
const FORMATS: &[(&str, &str)] = &[("text", "text"), ("json", "json")];
const SOURCES: &[(&str, &str)] = &[("file", "files"), ("grpc_xds_sotw", "xds")];
const OFF: &[&str] = &["false", "f", "0"];

const POOL: &str = "one connection carries all concurrent requests";
const STATSD: &str = "metrics are served to Prometheus, which adds labels when it scrapes";
const STARTUP: &str = "the server starts without the store and connects when the store is up";
const MEMCACHE: &str = "there is no Memcache";
const SPANS: &str = "there are no spans";

/// All variables of envoyproxy/ratelimit, in the order of its `settings.go`.
const TABLE: [Variable; 114] = [
    ("HOST", Read, "Host of http.address."),
    ("PORT", Read, "Port of http.address."),
    ("DEBUG_HOST", Read, "Host of http.debug_address."),
    ("DEBUG_PORT", Read, "Port of http.debug_address."),
    ("GRPC_UDS", Read, "Refused: gRPC listens on TCP."),
    ("GRPC_HOST", Read, "Host of grpc.address."),
    ("GRPC_PORT", Read, "Port of grpc.address."),
    ("GRPC_MAX_CONNECTION_AGE", Sets("grpc.max_connection_age"), ""),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", Sets("grpc.max_connection_age_grace"), ""),
    ("GRPC_SERVER_USE_TLS", Read, "Encrypt gRPC, with the following files."),
    ("GRPC_SERVER_TLS_CERT", Sets("grpc.tls_certificate"), ""),
    ("GRPC_SERVER_TLS_KEY", Sets("grpc.tls_key"), ""),
    ("GRPC_CLIENT_TLS_CACERT", Sets("grpc.tls_client_ca"), ""),
    ("GRPC_CLIENT_TLS_SAN", Sets("grpc.tls_client_name"), ""),
    ("LOG_LEVEL", Maps("log.level", LEVELS), ""),
    ("LOG_FORMAT", Maps("log.format", FORMATS), ""),
    ("CONFIG_TYPE", Maps("limits.source", SOURCES), ""),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", Read, "Sets xds.start_without_limits."),
    ("CONFIG_GRPC_XDS_NODE_ID", Sets("xds.node_id"), ""),
    ("CONFIG_GRPC_XDS_NODE_METADATA", Sets("xds.node_metadata"), ""),
    ("CONFIG_GRPC_XDS_SERVER_URL", Sets("xds.server"), ""),
    (
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        Ignored(&[]),
        "the waits of xds.backoff_initial apply to all attempts to connect",
    ),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Sets("xds.headers"), ""),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", Sets("xds.tls"), ""),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Sets("xds.tls_certificate"), ""),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Sets("xds.tls_key"), ""),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Sets("xds.tls_ca"), ""),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Sets("xds.tls_server_name"), ""),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Sets("xds.backoff_initial"), ""),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Sets("xds.backoff_max"), ""),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Sets("xds.backoff_factor"), ""),
    ("XDS_CLIENT_BACKOFF_JITTER", Sets("xds.backoff_jitter"), ""),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Sets("xds.max_message_bytes"), ""),
    ("USE_DOG_STATSD", Ignored(OFF), STATSD),
    ("USE_DOG_STATSD_MOGRIFIERS", Ignored(&[]), STATSD),
    ("USE_STATSD", Ignored(OFF), STATSD),
    ("STATSD_HOST", Ignored(&[]), STATSD),
    ("STATSD_PORT", Ignored(&[]), STATSD),
    ("EXTRA_TAGS", Ignored(&[]), STATSD),
    ("STATS_FLUSH_INTERVAL", Ignored(&[]), STATSD),
    ("DISABLE_STATS", Ignored(OFF), "metrics are always counted, and served when they are scraped"),
    ("USE_PROMETHEUS", Read, "Serve the metrics on a port of their own too."),
    ("PROMETHEUS_ADDR", Read, "Sets http.metrics_address; `:9090` by default."),
    ("PROMETHEUS_PATH", Read, "Sets http.metrics_path."),
    ("PROMETHEUS_MAPPER_YAML", Ignored(&[]), "metrics have their labels already"),
    ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Ignored(OFF), "times are in seconds"),
    ("RUNTIME_ROOT", Read, "First part of limits.directory."),
    ("RUNTIME_SUBDIRECTORY", Read, "Second part of limits.directory; empty by default."),
    ("RUNTIME_APPDIRECTORY", Read, "Last part of limits.directory; `config` by default."),
    (
        "RUNTIME_IGNOREDOTFILES",
        Ignored(&["true", "t", "1"]),
        "files whose names begin with a dot are never read",
    ),
    ("RUNTIME_WATCH_ROOT", Ignored(&[]), "changes are noticed through any link"),
    ("EXPIRATION_JITTER_MAX_SECONDS", Ignored(&[]), "keys expire with their windows"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", Sets("store.deny_cache_bytes"), ""),
    ("NEAR_LIMIT_RATIO", Sets("answers.near_limit_ratio"), ""),
    ("CACHE_KEY_PREFIX", Sets("store.key_prefix"), ""),
    ("BACKEND_TYPE", Read, "Refused, except for `redis`, unless TIDEGATE_STORE names a store."),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Sets("answers.stop_increment_when_over_limit"), ""),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", Sets("answers.response_headers"), ""),
    ("LIMIT_LIMIT_HEADER", Sets("answers.limit_header"), ""),
    ("LIMIT_REMAINING_HEADER", Sets("answers.remaining_header"), ""),
    ("LIMIT_RESET_HEADER", Sets("answers.reset_header"), ""),
    (
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        Read,
        "Unhealthy without a domain, which takes precedence over the variable above.",
    ),
    (
        "REDIS_SOCKET_TYPE",
        Read,
        "`tcp`, or `unix` (default): the form of the address in the next variable.",
    ),
    ("REDIS_TYPE", Read, "SINGLE (default), SENTINEL or CLUSTER."),
    ("REDIS_URL", Read, "Sets store.url, with the variables that begin alike."),
    ("REDIS_POOL_SIZE", Ignored(&[]), POOL),
    ("REDIS_AUTH", Read, "Password of Redis, or `user:password`."),
    ("REDIS_TLS", Read, "Encrypt the connections to Redis."),
    ("REDIS_TLS_CLIENT_CERT", Sets("store.tls_certificate"), ""),
    ("REDIS_TLS_CLIENT_KEY", Sets("store.tls_key"), ""),
    ("REDIS_TLS_CACERT", Sets("store.tls_ca"), ""),
    (
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        Read,
        "Refused with an encrypted store: certificates are always verified.",
    ),
    ("REDIS_PIPELINE_WINDOW", Ignored(&[]), POOL),
    ("REDIS_PIPELINE_LIMIT", Ignored(&[]), POOL),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", Ignored(&[]), POOL),
    ("REDIS_PERSECOND", Read, "Use another store for each `rate_limit:` per second."),
    ("REDIS_PERSECOND_SOCKET_TYPE", Read, "`tcp` or `unix`, for that store."),
    ("REDIS_PERSECOND_TYPE", Read, "SINGLE, SENTINEL or CLUSTER, for that store."),
    (
        "REDIS_PERSECOND_URL",
        Read,
        "Sets store.per_second_url, with the variables that begin alike.",
    ),
    ("REDIS_PERSECOND_POOL_SIZE", Ignored(&[]), POOL),
    ("REDIS_PERSECOND_AUTH", Read, "Password of that store, or `user:password`."),
    ("REDIS_PERSECOND_TLS", Read, "Encrypt the connections to that store."),
    ("REDIS_SENTINEL_AUTH", Sets("store.sentinel_login"), ""),
    ("REDIS_PERSECOND_SENTINEL_AUTH", Sets("store.per_second_sentinel_login"), ""),
    ("REDIS_PERSECOND_PIPELINE_WINDOW", Ignored(&[]), POOL),
    ("REDIS_PERSECOND_PIPELINE_LIMIT", Ignored(&[]), POOL),
    ("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Ignored(&[]), POOL),
    ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Sets("grpc.health_needs_store"), ""),
    ("REDIS_TIMEOUT", Sets("store.timeout"), ""),
    ("REDIS_PERSECOND_TIMEOUT", Sets("store.per_second_timeout"), ""),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", Ignored(&[]), POOL),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Ignored(&[]), POOL),
    ("REDIS_STARTUP_INITIAL_INTERVAL", Ignored(&[]), STARTUP),
    ("REDIS_STARTUP_MAX_INTERVAL", Ignored(&[]), STARTUP),
    ("REDIS_STARTUP_MAX_ELAPSED_TIME", Ignored(&[]), STARTUP),
    ("MEMCACHE_HOST_PORT", Ignored(&[]), MEMCACHE),
    ("MEMCACHE_MAX_IDLE_CONNS", Ignored(&[]), MEMCACHE),
    ("MEMCACHE_SRV", Ignored(&[]), MEMCACHE),
    ("MEMCACHE_SRV_REFRESH", Ignored(&[]), MEMCACHE),
    ("MEMCACHE_TLS", Ignored(OFF), MEMCACHE),
    ("MEMCACHE_TLS_CLIENT_CERT", Ignored(&[]), MEMCACHE),
    ("MEMCACHE_TLS_CLIENT_KEY", Ignored(&[]), MEMCACHE),
    ("MEMCACHE_TLS_CACERT", Ignored(&[]), MEMCACHE),
    ("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Ignored(OFF), MEMCACHE),
    ("SHADOW_MODE", Sets("answers.shadow_mode"), ""),
    ("QUOTA_MODE", Sets("answers.quota_mode"), ""),
    ("RESPONSE_DYNAMIC_METADATA", Sets("answers.response_metadata"), ""),
    ("MERGE_DOMAIN_CONFIG", Sets("limits.merge_domains"), ""),
    ("TRACING_ENABLED", Ignored(OFF), SPANS),
    ("TRACING_SERVICE_NAME", Ignored(&[]), SPANS),
    ("TRACING_SERVICE_NAMESPACE", Ignored(&[]), SPANS),
    ("TRACING_SERVICE_INSTANCE_ID", Ignored(&[]), SPANS),
    ("TRACING_EXPORTER_PROTOCOL", Ignored(&[]), SPANS),
    ("TRACING_SAMPLING_RATE", Ignored(&[]), SPANS),
];

/// Returns the names of all variables.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, ..)| *name)
}

/// Returns the variable that sets `key`, if there is one.
pub(super) fn variable_of(key: &str) -> Option<&'static str> {
    let sets = |effect: &Effect| match effect {
        Sets(own) | Maps(own, _) => *own == key,
        Read | Ignored(_) => false,
    };
    TABLE.iter().find(|(_, effect, _)| sets(effect)).map(|(name, ..)| *name)
}

/// Returns one line for each variable, with its meaning.
pub(super) fn list() -> String {
    let line = |(name, effect, about): &Variable| match effect {
        Sets(key) | Maps(key, _) => format!("{name:<46}Sets {key}.\n"),
        Read => format!("{name:<46}{about}\n"),
        Ignored(_) => format!("{name:<46}No effect: {about}.\n"),
    };
    TABLE.iter().map(line).collect()
}

/// The variables that are set.
pub(super) struct Environment<'a> {
    /// A function that returns the value of a variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    pub(super) warnings: &'a mut Vec<String>,
}

/// Applies all variables that are set: changes `values`, and adds warnings to `env`.
///
/// # Errors
///
/// Returns an error if the value of a variable is not valid, or if a variable requires a feature
/// that this server does not have.
pub(super) fn apply(values: &mut Values, mut env: Environment<'_>) -> Result<(), Mistake> {
    env.refuse(values)?;
    env.grpc_tls(values)?;
    for (name, effect, about) in TABLE {
        let Some(value) = env.get(name) else { continue };
        match effect {
            Sets(key) => {
                values.set(key, value, Origin::Variable(name));
            }
            Maps(key, words) => {
                let lower = value.to_ascii_lowercase();
                let word = words.iter().find(|(word, _)| *word == lower).ok_or_else(|| {
                    let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                    let bound = format!("it must be one of {}", words.join(", "));
                    Mistake::value(format!("{name} is `{value}`; {bound}"))
                })?;
                values.set(key, word.1, Origin::Variable(name));
            }
            Ignored(same) if !same.contains(&value.to_ascii_lowercase().as_str()) => {
                env.warnings.push(format!("{name} is set, and has no effect: {about}"));
            }
            Read | Ignored(_) => {}
        }
    }
    env.addresses(values)?;
    env.metrics(values)?;
    env.directory(values);
    env.start(values)?;
    env.stores(values)
}

impl Environment<'_> {
    /// Returns the value of a variable that is set and not empty.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn is_on(&self, name: &str) -> Result<bool, Mistake> {
        let Some(value) = self.get(name) else { return Ok(false) };
        let Kind { read, .. } = switch();
        read(&value)
            .map_err(|bound| Mistake::value(format!("{name} is `{value}`; it must be {bound}")))
    }

    fn without_effect(&mut self, name: &str, switch: &str) {
        if self.get(name).is_some() {
            self.warnings.push(format!("{name} is set, and has no effect without {switch}"));
        }
    }

    fn replaced(&mut self, name: &str, other: &str) {
        if self.get(name).is_some() {
            self.warnings.push(format!("{name} is set, and has no effect with {other}"));
        }
    }

    /// Refuses variables that require a feature that this server does not have.
    fn refuse(&mut self, values: &Values) -> Result<(), Mistake> {
        if let Some(path) = self.get("GRPC_UDS") {
            let message =
                "gRPC listens on GRPC_HOST and GRPC_PORT, and not on the socket of a path";
            return Err(format!("GRPC_UDS is `{path}`; {message}").into());
        }
        let is_named = *values.origin("store.url") != Origin::Default;
        match self.get("BACKEND_TYPE") {
            Some(other) if other != "redis" && !is_named => Err(format!(
                "BACKEND_TYPE is `{other}`; it must be redis, or TIDEGATE_STORE must name a store"
            )
            .into()),
            Some(other) if other != "redis" => {
                self.replaced("BACKEND_TYPE", values.name("store.url"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Applies `GRPC_SERVER_USE_TLS`. If this variable is not true, the variables with certificate
    /// files have no effect, as in envoyproxy/ratelimit.
    fn grpc_tls(&mut self, values: &mut Values) -> Result<(), Mistake> {
        let switch = "GRPC_SERVER_USE_TLS";
        let files = [
            ("GRPC_SERVER_TLS_CERT", "grpc.tls_certificate"),
            ("GRPC_SERVER_TLS_KEY", "grpc.tls_key"),
            ("GRPC_CLIENT_TLS_CACERT", "grpc.tls_client_ca"),
            ("GRPC_CLIENT_TLS_SAN", "grpc.tls_client_name"),
        ];
        let is_set = self.get(switch).is_some();
        if self.is_on(switch)? {
            for (name, key) in &files[..2] {
                if self.get(name).is_none() && values.text(key).is_empty() {
                    return Err(format!("{switch} needs {name}, which is not set").into());
                }
            }
            return Ok(());
        }
        for (name, key) in files {
            self.without_effect(name, switch);
            if is_set || self.get(name).is_some() {
                let text = if is_set { String::new() } else { values.text(key).to_owned() };
                values.set(key, text, Origin::Variable(switch));
            }
        }
        Ok(())
    }

    fn addresses(&mut self, values: &mut Values) -> Result<(), Mistake> {
        for (key, host_name, port_name) in [
            ("http.address", "HOST", "PORT"),
            ("grpc.address", "GRPC_HOST", "GRPC_PORT"),
            ("http.debug_address", "DEBUG_HOST", "DEBUG_PORT"),
        ] {
            let (host, port) = (self.get(host_name), self.get(port_name));
            let name = match (&host, &port) {
                (None, None) => continue,
                (_, Some(_)) => port_name,
                (Some(_), None) => host_name,
            };
            let current = values.text(key).to_owned();
            let (own_host, own_port) = current.rsplit_once(':').unwrap_or(("127.0.0.1", ""));
            let port = port.as_deref().unwrap_or(own_port);
            if port.is_empty() {
                self.without_effect(host_name, port_name);
                continue;
            }
            if port.parse::<u16>().is_err() {
                let message = format!("{name} is `{port}`; it must be a port from 0 to 65535");
                return Err(Mistake::value(message));
            }
            let host = host.as_deref().unwrap_or(own_host);
            let is_bare = host.contains(':') && !host.starts_with('[');
            let host = if is_bare { format!("[{host}]") } else { host.to_owned() };
            values.set(key, format!("{host}:{port}"), Origin::Variable(name));
        }
        Ok(())
    }

    fn metrics(&mut self, values: &mut Values) -> Result<(), Mistake> {
        let (address, path) = ("PROMETHEUS_ADDR", "PROMETHEUS_PATH");
        if !self.is_on("USE_PROMETHEUS")? {
            self.without_effect(address, "USE_PROMETHEUS");
            self.without_effect(path, "USE_PROMETHEUS");
            return Ok(());
        }
        let key = "http.metrics_address";
        match self.get(address) {
            Some(text) => values.set(key, text, Origin::Variable(address)),
            None => values.set(key, ":9090", Origin::Variable("USE_PROMETHEUS")),
        };
        if let Some(text) = self.get(path) {
            values.set("http.metrics_path", text, Origin::Variable(path));
        }
        Ok(())
    }

    fn directory(&self, values: &mut Values) {
        let part = |name: &'static str| self.get(name).map(|value| (name, value));
        let (root, sub) = (part("RUNTIME_ROOT"), part("RUNTIME_SUBDIRECTORY"));
        // If this variable is not set, the last part of the path is `config`. If it is empty, the
        // path has no last part.
        let last = "RUNTIME_APPDIRECTORY";
        let last = (self.variable)(last).map(|value| (last, value));
        let Some((name, _)) = root.as_ref().or(sub.as_ref()).or(last.as_ref()) else { return };
        let origin = Origin::Variable(name);
        let text = |part: Option<(_, String)>, default: &str| {
            part.map_or(default.to_owned(), |(_, value)| value)
        };
        let directory = std::path::Path::new(&text(root, "/srv/runtime_data/current"))
            .join(text(sub, ""))
            .join(text(last, "config"));
        values.set("limits.directory", directory.display().to_string(), origin);
    }

    fn start(&self, values: &mut Values) -> Result<(), Mistake> {
        let (force, wait) =
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED");
        let (is_forced, waits) = (self.is_on(force)?, self.is_on(wait)?);
        let name = if waits || self.get(force).is_none() { wait } else { force };
        if self.get(name).is_some() {
            let text = (is_forced && !waits).to_string();
            values.set("xds.start_without_limits", text, Origin::Variable(name));
        }
        if self.get(wait).is_some() {
            values.set("limits.needs_domain", waits.to_string(), Origin::Variable(wait));
        }
        Ok(())
    }

    fn stores(&mut self, values: &mut Values) -> Result<(), Mistake> {
        let store = ["REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS"];
        let per_second = [
            "REDIS_PERSECOND_URL",
            "REDIS_PERSECOND_TYPE",
            "REDIS_PERSECOND_SOCKET_TYPE",
            "REDIS_PERSECOND_AUTH",
            "REDIS_PERSECOND_TLS",
        ];
        self.store(values, "store.url", store)?;
        let is_named = !values.text("store.per_second_url").is_empty();
        if !self.is_on("REDIS_PERSECOND")? {
            for name in per_second {
                self.without_effect(name, "REDIS_PERSECOND");
            }
        } else if self.get(per_second[0]).is_none() && !is_named {
            return Err("REDIS_PERSECOND needs REDIS_PERSECOND_URL, which is not set"
                .to_owned()
                .into());
        } else {
            self.store(values, "store.per_second_url", per_second)?;
        }
        let skip = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION";
        if self.is_on(skip)? {
            let urls = ["store.url", "store.per_second_url"].map(|key| values.text(key));
            if urls.into_iter().any(tidegate_server::store::is_encrypted) {
                return Err(format!("{skip} is set, and certificates are always verified").into());
            }
            self.without_effect(skip, "an encrypted store");
        }
        Ok(())
    }

    /// Sets the URL of a store from its variables: the URL, the type, the type of the socket, the
    /// login, and whether TLS is on.
    fn store(
        &mut self,
        values: &mut Values,
        key: &'static str,
        names: [&'static str; 5],
    ) -> Result<(), Mistake> {
        let [url_name, kind_name, socket_name, auth_name, tls_name] = names;
        let is_tls = self.is_on(tls_name)?;
        let Some(url) = self.get(url_name) else {
            for name in &names[1..] {
                self.without_effect(name, url_name);
            }
            return Ok(());
        };
        let kind = self.get(kind_name).unwrap_or_else(|| "SINGLE".to_owned());
        let socket = self.get(socket_name).unwrap_or_else(|| "unix".to_owned());
        let redis = Redis {
            names,
            kind: &kind,
            socket: &socket,
            url: &url,
            auth: &self.get(auth_name).unwrap_or_default(),
            is_tls,
        };
        // If a flag or a variable of this server names a store, it takes precedence over the
        // variables of envoyproxy/ratelimit.
        if matches!(values.origin(key), Origin::Flag(_) | Origin::Variable(_)) {
            let other = values.name(key);
            for name in names {
                self.replaced(name, other);
            }
        } else {
            values.set(key, redis.to_url()?, Origin::Variable(url_name));
        }
        Ok(())
    }
}

/// A Redis server, a Sentinel group or a cluster, as the variables describe it.
struct Redis<'a> {
    names: [&'static str; 5],
    kind: &'a str,
    socket: &'a str,
    /// One `HOST:PORT`, the path of a socket, or several addresses separated by commas. For
    /// Sentinels, the name of the group precedes the addresses.
    url: &'a str,
    auth: &'a str,
    is_tls: bool,
}

impl Redis<'_> {
    /// Returns the URL of the store. Errors do not show the login.
    fn to_url(&self) -> Result<String, String> {
        let [url_name, kind_name, socket_name, ..] = self.names;
        let is_unix = match self.socket.to_ascii_lowercase().as_str() {
            "tcp" => false,
            "unix" => true,
            other => return Err(format!("{socket_name} is `{other}`; it must be tcp or unix")),
        };
        let tls = if self.is_tls { "s" } else { "" };
        let login = self.login();
        match self.kind.to_ascii_uppercase().as_str() {
            "SINGLE" if self.url.contains("://") => Ok(self.completed_url()),
            // The message does not show the value, which can include a login.
            "SINGLE" if is_unix && !self.url.starts_with('/') => Err(format!(
                "{url_name} does not begin with `/`, as the path of a socket does; for a host and a port, \
                 {socket_name} must be tcp, and its default is unix"
            )),
            "SINGLE" if is_unix => Ok(format!("unix://{}{}", self.url, self.login_to_socket('?'))),
            "SINGLE" => Ok(format!("redis{tls}://{login}{}", self.url)),
            "CLUSTER" => Ok(format!("redis{tls}-cluster://{login}{}", self.url)),
            "SENTINEL" => match self.url.split_once(',') {
                Some((name, hosts)) => Ok(format!("redis{tls}-sentinel://{login}{hosts}#{name}")),
                None => Err(format!(
                    "{url_name} of Sentinels must be the name of the group, then their addresses, separated by commas"
                )),
            },
            other => {
                Err(format!("{kind_name} is `{other}`; it must be SINGLE, SENTINEL or CLUSTER"))
            }
        }
    }

    /// Adds TLS and the login of the other variables to a complete URL, unless it has them.
    fn completed_url(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("redis", self.url));
        if scheme == "unix" {
            let separator = if rest.contains('?') { '&' } else { '?' };
            let login = match rest.contains("pass=") {
                true => String::new(),
                false => self.login_to_socket(separator),
            };
            return format!("{}{login}", self.url);
        }
        let is_plain = scheme.starts_with("redis") && !scheme.starts_with("rediss");
        let scheme = match scheme.strip_prefix("redis") {
            Some(kind) if is_plain && self.is_tls => format!("rediss{kind}"),
            _ => scheme.to_owned(),
        };
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let login = if host.contains('@') { String::new() } else { self.login() };
        format!("{scheme}://{login}{rest}")
    }

    /// Returns the login as a part of the URL of a socket.
    fn login_to_socket(&self, separator: char) -> String {
        if self.auth.is_empty() {
            return String::new();
        }
        let (user, password) = self.auth.split_once(':').unwrap_or(("", self.auth));
        let user = match user {
            "" => String::new(),
            user => format!("user={}&", encoded(user)),
        };
        format!("{separator}{user}pass={}", encoded(password))
    }

    fn login(&self) -> String {
        match self.auth.split_once(':') {
            _ if self.auth.is_empty() => String::new(),
            Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
            None => format!(":{}@", encoded(self.auth)),
        }
    }
}

/// All characters except letters, digits, `-`, `_`, `.` and `~`, which are never special in a URL.
const SPECIAL: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, &SPECIAL).to_string()
}

#[cfg(test)]
mod tests {
    use tidegate_server::store::{StoreSettings, open};

    use super::*;

    #[test]
    fn variables_of_all_kinds_are_urls_of_stores() {
        let url = |kind, socket, url, auth, is_tls| {
            let names = ["REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS"];
            Redis { names, kind, socket, url, auth, is_tls }.to_url()
        };
        for (kind, socket, text, auth, expected) in [
            ("SINGLE", "tcp", "a:6379", "", "redis://a:6379"),
            ("SINGLE", "tcp", "a:6379", "p@ss", "redis://:p%40ss@a:6379"),
            ("SINGLE", "tcp", "a:6379", "u:p:q", "redis://u:p%3Aq@a:6379"),
            ("SINGLE", "tcp", "redis://x/3", "", "redis://x/3"),
            ("SINGLE", "tcp", "redis://x/3", "u:p", "redis://u:p@x/3"),
            ("SINGLE", "tcp", "redis://:own@x/3", "u:p", "redis://:own@x/3"),
            ("SINGLE", "tcp", "unix:///run/redis", "p", "unix:///run/redis?pass=p"),
            (
                "SINGLE",
                "tcp",
                "unix:///run/redis?db=1",
                "u:p",
                "unix:///run/redis?db=1&user=u&pass=p",
            ),
            ("SINGLE", "tcp", "unix:///run/redis?pass=own", "p", "unix:///run/redis?pass=own"),
            ("SINGLE", "unix", "/run/redis", "", "unix:///run/redis"),
            ("SINGLE", "unix", "/run/redis", "u:p&", "unix:///run/redis?user=u&pass=p%26"),
            ("cluster", "tcp", "a:1,b:2", "", "redis-cluster://a:1,b:2"),
            ("cluster", "tcp", "a:1,b:2", "p", "redis-cluster://:p@a:1,b:2"),
            ("SENTINEL", "tcp", "g,a:1,b", "s/c", "redis-sentinel://:s%2Fc@a:1,b#g"),
        ] {
            let url = url(kind, socket, text, auth, false).unwrap();
            assert_eq!(url, expected);
            assert!(open(&url, &StoreSettings::default()).is_ok(), "{url}");
        }
        for (text, expected) in [
            ("a:6379", "rediss://a:6379"),
            ("redis://x/3", "rediss://x/3"),
            ("rediss://x/3", "rediss://x/3"),
            ("redis-sentinel://x#g", "rediss-sentinel://x#g"),
        ] {
            assert_eq!(url("SINGLE", "tcp", text, "", true).unwrap(), expected);
        }
        for (kind, socket) in
            [("MANY", "tcp"), ("SINGLE", "udp"), ("SINGLE", "unix"), ("SENTINEL", "tcp")]
        {
            let error = url(kind, socket, "a:6379", "S3CRET", false).unwrap_err();
            assert!(error.starts_with("REDIS_") && !error.contains("S3CRET"), "{error}");
        }
    }
}
