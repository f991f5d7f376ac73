//! The debug port of envoyproxy/ratelimit.

use clap::Args;

#[derive(Args)]
#[command(next_help_heading = "JSON, health and metrics")]
pub(crate) struct Debug {
    /// Address of the debug port.
    #[arg(long, value_name = "ADDRESS", env = "DEBUG_HOST", default_value = "127.0.0.1")]
    debug_host: String,
    /// Port for `/rlconfig` and `/stats` of envoyproxy/ratelimit; 0 for any. Without it, they are
    /// not served.
    #[arg(long, value_name = "PORT", env = "DEBUG_PORT")]
    debug_port: Option<u16>,
}

impl Debug {
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        self.debug_port.map(|port| (&*self.debug_host, port))
    }
}
