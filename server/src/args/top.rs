//! The settings of `top`, and what it does.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use tidegate_server::top::{self, Client};
use tidegate_server::v1::Login;

use super::values::given;

/// The width of text that goes to no terminal.
const TEXT_WIDTH: usize = 120;

#[derive(Args)]
pub(crate) struct Top {
    /// The page of the server.
    #[arg(default_value = "http://127.0.0.1:6060")]
    url: String,
    /// Writes what is now as text, and ends. So it is also if the output is no terminal.
    #[arg(long)]
    once: bool,
    /// The user of the page.
    #[arg(long, value_name = "USER", env = "TIDEGATE_PAGE_USER", default_value = "default")]
    user: String,
    /// The password of the page; set it by the variable, as others see the arguments of a process.
    #[arg(long, value_name = "PASSWORD", env = "TIDEGATE_PAGE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

impl Top {
    pub(crate) fn run(&self) -> io::Result<()> {
        let login = given(&self.password)
            .map(|password| Login { user: self.user.clone(), password: password.clone() });
        let client = Client::new(&self.url, login.as_ref()).map_err(io::Error::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if self.once || !io::stdout().is_terminal() {
            let text =
                runtime.block_on(top::once(&client, TEXT_WIDTH)).map_err(io::Error::other)?;
            return io::stdout().write_all(text.as_bytes());
        }
        top::watch(&runtime, &client)
    }
}
