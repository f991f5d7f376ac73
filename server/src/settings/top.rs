//! The settings of `top`, and what it does.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use tidegate_server::activity::{LimitColumn, LimitsQuery};
use tidegate_server::top::{self, Client, TopTls};
use tidegate_server::v1::Login;

use super::values::given;

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
    /// File with the root certificates of a page at https:// (PEM). Default: the roots of the system
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOP_TLS_CACERT")]
    tls_ca: Option<String>,
    /// Name in the certificate of the page. Default: the host of its URL
    #[arg(long, value_name = "NAME", env = "TIDEGATE_TOP_TLS_SAN")]
    tls_san: Option<String>,
    /// File with the certificate that the page is shown (PEM).
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOP_TLS_CERT")]
    tls_cert: Option<String>,
    /// File with the private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOP_TLS_KEY")]
    tls_key: Option<String>,
}

impl Top {
    pub(crate) fn run(&self) -> io::Result<()> {
        let login = given(&self.password)
            .map(|password| Login { user: self.user.clone(), password: password.clone() });
        let mut query = LimitsQuery::default();
        query.name.clone_from(&self.name);
        (query.sort, query.is_reversed) = (self.sort, self.reversed);
        query.rows = self.rows.into();
        let tls = self.tls().map_err(io::Error::other)?;
        let client = Client::new(&self.url, login.as_ref(), &tls).map_err(io::Error::other)?;
        let client = client.limits(&query);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if self.once || !io::stdout().is_terminal() {
            let text = runtime.block_on(top::once(&client)).map_err(io::Error::other)?;
            return io::stdout().write_all(text.as_bytes());
        }
        top::watch(&runtime, &client)
    }

    fn tls(&self) -> Result<TopTls, String> {
        let mut tls = TopTls::default();
        tls.roots = given(&self.tls_ca).map(Into::into);
        tls.server_name = given(&self.tls_san).cloned();
        tls.identity = match (given(&self.tls_cert), given(&self.tls_key)) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => {
                return Err(
                    "TIDEGATE_TOP_TLS_CERT needs TIDEGATE_TOP_TLS_KEY, which is not set".into()
                );
            }
            (None, Some(_)) => {
                return Err(
                    "TIDEGATE_TOP_TLS_KEY needs TIDEGATE_TOP_TLS_CERT, which is not set".into()
                );
            }
        };
        Ok(tls)
    }
}
