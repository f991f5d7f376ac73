//! The settings of RESP, the protocol of Redis.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tidegate_core::parse_duration;
use tidegate_server::resp::{Login, RespSettings};

use super::values::{given, maximum, switch};
use crate::descriptors::MaxConnections;

#[derive(Args)]
#[command(next_help_heading = "RESP, the protocol of Redis")]
pub(crate) struct Resp {
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
    #[arg(long, env = "TIDEGATE_RESP_WITHOUT_PASSWORD", value_parser = switch)]
    resp_without_password: bool,
    /// Maximum number of connections of RESP. Default: 10000, or fewer if the process may not open
    /// as many files
    #[arg(long, value_name = "NUMBER", env = "TIDEGATE_RESP_MAX_CONNECTIONS", value_parser = maximum)]
    resp_max_connections: Option<usize>,
    /// After which time without a command a connection of RESP ends.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_RESP_IDLE_TIMEOUT", default_value = "10m",
          value_parser = parse_duration)]
    resp_idle_timeout: Duration,
    /// How long a command of RESP may take from its first byte to its last.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_RESP_COMMAND_TIMEOUT", default_value = "30s",
          value_parser = parse_duration)]
    resp_command_timeout: Duration,
    /// How long a client of RESP may take to accept the replies to what it has sent.
    #[arg(long, value_name = "SPAN", env = "TIDEGATE_RESP_WRITE_TIMEOUT", default_value = "30s",
          value_parser = parse_duration)]
    resp_write_timeout: Duration,
}

impl Resp {
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        self.resp_port.map(|port| (&*self.resp_host, port))
    }

    /// Returns the maximum number of connections, if RESP is served.
    pub(super) fn max_connections(&mut self) -> Option<MaxConnections<'_>> {
        self.resp_port.map(|_| ("TIDEGATE_RESP_MAX_CONNECTIONS", &mut self.resp_max_connections))
    }

    /// The settings of RESP on an address.
    ///
    /// # Errors
    ///
    /// If other machines reach it, and it needs no password.
    pub(crate) fn settings(&self, address: SocketAddr) -> Result<RespSettings, String> {
        let mut settings = RespSettings::default();
        settings.login = given(&self.resp_password)
            .map(|password| Login { user: self.resp_user.clone(), password: password.clone() });
        settings.max_connections = self.resp_max_connections.unwrap_or(settings.max_connections);
        settings.idle_timeout = self.resp_idle_timeout;
        settings.command_timeout = self.resp_command_timeout;
        settings.write_timeout = self.resp_write_timeout;
        let is_open = settings.login.is_none() && !self.resp_without_password;
        if is_open && !address.ip().is_loopback() {
            return Err(format!(
                "RESP on {address} needs a password (TIDEGATE_RESP_PASSWORD), or to be told that it needs none \
                 (TIDEGATE_RESP_WITHOUT_PASSWORD)"
            ));
        }
        Ok(settings)
    }
}
