//! The settings of the page.

use std::net::SocketAddr;

use clap::Args;
use tidegate_server::v1::Access;

use super::http::access;
use super::values::switch;

#[derive(Args)]
#[command(next_help_heading = "The page")]
pub(crate) struct Page {
    /// The address of the page that shows what the server does now.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_PAGE_HOST", default_value = "127.0.0.1")]
    page_host: String,
    /// The port of the page; 0 for any. Without it, the page is not served, and nothing is recorded for it.
    #[arg(long, value_name = "PORT", env = "TIDEGATE_PAGE_PORT")]
    page_port: Option<u16>,
    /// The user that readers of the page log in as.
    #[arg(long, value_name = "USER", env = "TIDEGATE_PAGE_USER", default_value = "default")]
    page_user: String,
    /// The password of readers of the page; set it by the variable, as others see the arguments of a process.
    #[arg(long, value_name = "PASSWORD", env = "TIDEGATE_PAGE_PASSWORD", hide_env_values = true)]
    page_password: Option<String>,
    /// The page needs no password on addresses of other machines either.
    #[arg(
        long,
        env = "TIDEGATE_PAGE_WITHOUT_PASSWORD",
        value_parser = switch
    )]
    page_without_password: bool,
    /// The page shows subjects: what clients are limited by, such as addresses and accounts.
    #[arg(long, env = "TIDEGATE_PAGE_SUBJECTS", value_parser = switch)]
    pub(crate) page_subjects: bool,
}

impl Page {
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        self.page_port.map(|port| (&*self.page_host, port))
    }

    /// The readers of the page on an address.
    pub(crate) fn access(&self, address: SocketAddr) -> Access {
        access(address, &self.page_user, &self.page_password, self.page_without_password)
    }
}
