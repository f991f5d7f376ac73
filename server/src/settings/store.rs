//! The settings of connections to the store, beside those in its URL.

use std::time::Duration;

use clap::Args;
use tidegate_core::parse_duration;
#[cfg(feature = "tls")]
use tidegate_server::store::Certificates;
use tidegate_server::store::{Auth, StoreSettings, is_encrypted};

use super::values::switch;

#[derive(Args)]
#[command(next_help_heading = super::STORE)]
pub(crate) struct StoreArgs {
    #[arg(
        long,
        hide = true,
        env = "REDIS_SENTINEL_AUTH",
        hide_env_values = true,
        default_value = ""
    )]
    redis_sentinel_auth: String,
    #[arg(
        long,
        hide = true,
        env = "REDIS_PERSECOND_SENTINEL_AUTH",
        hide_env_values = true,
        default_value = ""
    )]
    redis_per_second_sentinel_auth: String,
    /// The roots of the certificates of encrypted stores (PEM), in place of those that the system trusts.
    #[arg(
        long,
        value_name = "FILE",
        env = "REDIS_TLS_CACERT",
        default_value = "",
        hide_default_value = true
    )]
    store_tls_ca: String,
    /// The certificate that encrypted stores are shown (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "REDIS_TLS_CLIENT_CERT",
        default_value = "",
        hide_default_value = true
    )]
    store_tls_cert: String,
    /// The private key of the certificate (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "REDIS_TLS_CLIENT_KEY",
        default_value = "",
        hide_default_value = true
    )]
    store_tls_key: String,
    #[arg(hide = true, long, env = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", value_parser = switch)]
    redis_tls_skip_hostname_verification: bool,
    /// How long to wait for an answer of the store.
    #[arg(long, value_name = "SPAN", env = "REDIS_TIMEOUT", default_value = "10s",
          value_parser = parse_duration)]
    store_timeout: Duration,
    /// The same of the store for limits per second. Default: the same time
    #[arg(long, value_name = "SPAN", env = "REDIS_PERSECOND_TIMEOUT", value_parser = parse_duration)]
    per_second_store_timeout: Option<Duration>,
    /// What all keys in the store begin with. Default: `tidegate`
    #[arg(
        long,
        value_name = "TEXT",
        env = "CACHE_KEY_PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    key_prefix: String,
}

impl StoreArgs {
    /// The settings of the store at a URL.
    ///
    /// # Errors
    ///
    /// If its certificates cannot be read, or are not to be verified.
    pub(crate) fn of(&self, url: &str) -> Result<StoreSettings, String> {
        if is_encrypted(url) && self.redis_tls_skip_hostname_verification {
            return Err(
                "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION is set, and certificates are always verified"
                    .into(),
            );
        }
        Ok(StoreSettings {
            prefix: self.key_prefix.clone(),
            timeout: self.store_timeout,
            sentinel_auth: Auth(self.redis_sentinel_auth.clone()),
            #[cfg(feature = "tls")]
            certificates: if is_encrypted(url) {
                self.certificates()?
            } else {
                Certificates::default()
            },
            ..StoreSettings::default()
        })
    }

    /// The settings of the store for limits per second, at its URL.
    pub(crate) fn of_per_second(&self, url: &str) -> Result<StoreSettings, String> {
        let sentinel_auth = Auth(self.redis_per_second_sentinel_auth.clone());
        let timeout = self.per_second_store_timeout.unwrap_or(self.store_timeout);
        Ok(StoreSettings { sentinel_auth, timeout, ..self.of(url)? })
    }

    #[cfg(feature = "tls")]
    fn certificates(&self) -> Result<Certificates, String> {
        let read = |variable: &str, path: &str| match path {
            "" => Ok(None),
            path => std::fs::read(path)
                .map(Some)
                .map_err(|error| format!("{variable}: {path}: the file cannot be read: {error}")),
        };
        let certificate = read("REDIS_TLS_CLIENT_CERT", &self.store_tls_cert)?;
        let key = read("REDIS_TLS_CLIENT_KEY", &self.store_tls_key)?;
        let client = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(
                    "REDIS_TLS_CLIENT_CERT needs REDIS_TLS_CLIENT_KEY, which is not set".into()
                );
            }
            (None, Some(_)) => {
                return Err(
                    "REDIS_TLS_CLIENT_KEY needs REDIS_TLS_CLIENT_CERT, which is not set".into()
                );
            }
        };
        Ok(Certificates { roots: read("REDIS_TLS_CACERT", &self.store_tls_ca)?, client })
    }
}
