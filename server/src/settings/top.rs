//! The arguments of the command `top`.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use tidegate_server::net::login::Login;
use tidegate_server::observe::activity::{LimitColumn, LimitsQuery};
use tidegate_server::observe::top::{self, Client, TopTls};

#[derive(Args)]
pub(crate) struct Top {
    /// URL of the page.
    #[arg(default_value = "http://127.0.0.1:6060")]
    url: String,
    /// Write the present state as text, and exit. This is the default if the output is not a
    /// terminal.
    #[arg(long)]
    once: bool,
    /// User of the page.
    #[arg(long, value_name = "USER", default_value = "default")]
    user: String,
    /// Password of the page. Set it by the variable, because other processes can read arguments.
    #[arg(long, value_name = "PASSWORD", env = "TIDEGATE_PAGE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Part of the names of the listed limits.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    name: String,
    /// Column by which limits are sorted: limit, admitted, refused, shadow or minute.
    #[arg(long, value_name = "COLUMN", default_value = "refused")]
    sort: LimitColumn,
    /// Reverse the order of the limits.
    #[arg(long)]
    reversed: bool,
    /// Maximum number of listed limits.
    #[arg(long, value_name = "NUMBER", default_value = "50", value_parser = clap::value_parser!(u16).range(1..=500))]
    rows: u16,
    /// File with the root certificates of a page at https:// (PEM). Default: the roots of the
    /// system
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Name in the certificate of the page. Default: the host of its URL
    #[arg(long, value_name = "NAME")]
    tls_san: Option<String>,
    /// File with the certificate that the page receives (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Top {
    pub(crate) fn run(&self) -> io::Result<()> {
        let password = self.password.as_ref().filter(|password| !password.is_empty());
        let login =
            password.map(|password| Login { user: self.user.clone(), password: password.clone() });
        let mut query = LimitsQuery::default();
        query.name.clone_from(&self.name);
        (query.sort, query.is_reversed) = (self.sort, self.reversed);
        query.rows = self.rows.into();
        let mut tls = TopTls::default();
        tls.roots.clone_from(&self.tls_ca);
        tls.server_name.clone_from(&self.tls_san);
        tls.identity = self.tls_cert.clone().zip(self.tls_key.clone());
        let client = Client::new(&self.url, login.as_ref(), &tls).map_err(io::Error::other)?;
        let client = client.limits(&query);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if self.once || !io::stdout().is_terminal() {
            let text = runtime.block_on(top::once(&client)).map_err(io::Error::other)?;
            return io::stdout().write_all(text.as_bytes());
        }
        top::watch(&runtime, &client)
    }
}
