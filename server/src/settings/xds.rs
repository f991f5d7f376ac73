//! Where the limits come from, and the settings of xDS.

use std::path::Path;
use std::time::Duration;

use clap::{ArgAction, Args};
use tidegate_core::parse_duration;
#[cfg(feature = "tls")]
use tidegate_server::xds::XdsTls;
use tidegate_server::xds::{Header, XdsSettings};

use super::values::{given, switch};

#[derive(Args)]
#[command(next_help_heading = "Limits by xDS")]
pub(crate) struct XdsArgs {
    /// Where the limits come from: FILE, or GRPC_XDS_SOTW, a management server such as Envoy Gateway.
    #[arg(long, value_name = "TYPE", env = "CONFIG_TYPE", default_value = "FILE")]
    config_type: String,
    /// The health is that of a server with limits before any have come; requests are answered by an error until then.
    #[arg(long, env = "FORCE_START_WITHOUT_INITIAL_CONFIG", value_parser = switch)]
    start_without_limits: bool,
    #[arg(long, hide = true, env = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", value_parser = switch)]
    healthy_with_limits: bool,
    /// The address of the management server.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "CONFIG_GRPC_XDS_SERVER_URL",
        default_value = "localhost:18000"
    )]
    xds_server: String,
    /// What the management server knows this server by.
    #[arg(long, value_name = "ID", env = "CONFIG_GRPC_XDS_NODE_ID", default_value = "default")]
    xds_node_id: String,
    /// Further metadata of this server for it: `name=value,name=value`
    #[arg(long, value_name = "FIELDS", env = "CONFIG_GRPC_XDS_NODE_METADATA")]
    xds_node_metadata: Option<String>,
    /// Header fields that it is sent: `name:value,name:value`; set them by the variable, as others see the arguments of a
    /// process.
    #[arg(
        long,
        value_name = "FIELDS",
        env = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        hide_env_values = true
    )]
    xds_headers: Option<String>,
    /// The maximum size of all limits in bytes; 0 for 4 MiB.
    #[arg(
        long,
        value_name = "BYTES",
        env = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        default_value = "0"
    )]
    xds_max_message_bytes: usize,
    /// Maximum time until the first response of the management server; 0s to wait forever.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_XDS_RESPONSE_TIMEOUT", default_value = "60s",
          value_parser = parse_duration)]
    xds_response_timeout: Duration,
    /// How long to wait before the management server is connected again.
    #[arg(long, value_name = "SPAN", env = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
          default_value = "10s", value_parser = parse_duration)]
    xds_backoff_initial: Duration,
    /// The longest of these waits.
    #[arg(long, value_name = "SPAN", env = "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
          default_value = "60s", value_parser = parse_duration)]
    xds_backoff_max: Duration,
    /// By what each wait is longer than the one before; 1 or less for waits that are the same.
    #[arg(
        long,
        value_name = "FACTOR",
        env = "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        default_value = "0.5"
    )]
    xds_backoff_factor: f64,
    /// Waits are shortened at random, by up to a half.
    #[arg(long, value_name = "BOOL", env = "XDS_CLIENT_BACKOFF_JITTER", default_value = "true",
          action = ArgAction::Set, value_parser = switch)]
    xds_backoff_jitter: bool,
    /// The connection to the management server is encrypted.
    #[arg(long, env = "CONFIG_GRPC_XDS_SERVER_USE_TLS", value_parser = switch)]
    xds_tls: bool,
    /// The roots of its certificate (PEM), in place of those that the system trusts.
    #[arg(long, value_name = "FILE", env = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT")]
    xds_tls_ca: Option<String>,
    /// The name that its certificate has to be for, if that is not the host of its address.
    #[arg(long, value_name = "NAME", env = "CONFIG_GRPC_XDS_SERVER_TLS_SAN")]
    xds_tls_san: Option<String>,
    /// The certificate that it is shown (PEM).
    #[arg(long, value_name = "FILE", env = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT")]
    xds_tls_cert: Option<String>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", env = "CONFIG_GRPC_XDS_CLIENT_TLS_KEY")]
    xds_tls_key: Option<String>,
}

const XDS: &str = "GRPC_XDS_SOTW";

impl XdsArgs {
    /// The management server, if limits come from one. `directory` is that of `--config`.
    ///
    /// # Errors
    ///
    /// If there are settings that contradict each other or cannot be carried out.
    pub(crate) fn settings(&self, directory: Option<&Path>) -> Result<Option<XdsSettings>, String> {
        match &*self.config_type {
            "FILE" => return Ok(None),
            XDS => {}
            other => {
                return Err(format!("CONFIG_TYPE is `{other}`; FILE and {XDS} are possible"));
            }
        }
        if directory.is_some() {
            return Err(format!("--config is set, and has no effect with CONFIG_TYPE {XDS}"));
        }
        let mut settings = XdsSettings::new(&self.xds_server);
        settings.node_id.clone_from(&self.xds_node_id);
        settings.node_metadata = self.node_metadata()?;
        settings.headers = self.headers()?;
        if self.xds_max_message_bytes != 0 {
            settings.max_message_bytes = self.xds_max_message_bytes;
        }
        settings.response_timeout = self.xds_response_timeout;
        settings.backoff.initial = self.xds_backoff_initial;
        settings.backoff.max = self.xds_backoff_max;
        settings.backoff.factor = self.xds_backoff_factor;
        settings.backoff.has_jitter = self.xds_backoff_jitter;
        self.encrypt(&mut settings)?;
        settings.check().map_err(|error| format!("the management server: {error}"))?;
        Ok(Some(settings))
    }

    /// Whether the health is that of a server with limits before any have come.
    pub(crate) fn starts_without_limits(&self) -> bool {
        self.start_without_limits && !self.healthy_with_limits
    }

    fn node_metadata(&self) -> Result<Vec<(String, String)>, String> {
        let field = |field: &str| match field.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(format!(
                "CONFIG_GRPC_XDS_NODE_METADATA has `{field}`, which is not written `name=value`"
            )),
        };
        given(&self.xds_node_metadata)
            .map_or(Ok(Vec::new()), |it| it.split(',').map(field).collect())
    }

    fn headers(&self) -> Result<Vec<Header>, String> {
        // What stands there may be a password.
        let header = |(index, field): (usize, &str)| {
            let (name, value) = field.split_once(':').unwrap_or((field, ""));
            Header::new(name.trim(), value.trim()).filter(|_| field.contains(':')).ok_or_else(|| {
                format!(
                    "field {} of CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS is not written `name:value`, or has \
                     characters that are not possible in a header",
                    index + 1
                )
            })
        };
        given(&self.xds_headers)
            .map_or(Ok(Vec::new()), |it| it.split(',').enumerate().map(header).collect())
    }

    fn encrypt(&self, settings: &mut XdsSettings) -> Result<(), String> {
        let switch = "CONFIG_GRPC_XDS_SERVER_USE_TLS";
        let files = [
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", given(&self.xds_tls_ca)),
            ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", given(&self.xds_tls_san)),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", given(&self.xds_tls_cert)),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", given(&self.xds_tls_key)),
        ];
        if !self.xds_tls {
            if let Some((variable, _)) = files.iter().find(|(_, value)| value.is_some()) {
                // envoyproxy/ratelimit starts with these.
                stderr!("warning: {variable} is set, and has no effect without {switch}");
            }
            return Ok(());
        }
        let [(_, roots), (_, name), (cert_variable, cert), (key_variable, key)] = files;
        match (cert, key) {
            (Some(_), None) => {
                return Err(format!("{cert_variable} needs {key_variable}, which is not set"));
            }
            (None, Some(_)) => {
                return Err(format!("{key_variable} needs {cert_variable}, which is not set"));
            }
            _ => {}
        }
        #[cfg(feature = "tls")]
        {
            let mut tls = XdsTls::default();
            tls.roots = roots.map(Into::into);
            tls.identity = cert.zip(key).map(|(cert, key)| (cert.into(), key.into()));
            tls.server_name = name.cloned();
            settings.tls = Some(tls);
            Ok(())
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = (roots, name, settings);
            Err(format!("{switch} is set, and this program was built without TLS (feature `tls`)"))
        }
    }
}
