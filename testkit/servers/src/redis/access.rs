//! The access to a server: its passwords, its encryption, and the URLs for connections.

use std::fmt::Write;
use std::path::Path;

#[derive(Debug, Clone, Default)]
pub(super) struct Access {
    pub(super) password: Option<String>,
    pub(super) encrypted: bool,
}

impl Access {
    pub(super) fn url(&self, port: u16) -> String {
        match &self.password {
            Some(password) => self.url_for("", password, port),
            None => format!("{}://127.0.0.1:{port}", self.scheme()),
        }
    }

    pub(super) fn url_for(&self, user: &str, password: &str, port: u16) -> String {
        let scheme = self.scheme();
        format!("{scheme}://{}:{}@127.0.0.1:{port}", escape(user), escape(password))
    }

    fn scheme(&self) -> &'static str {
        if self.encrypted { "rediss" } else { "redis" }
    }

    pub(super) fn socket_url(&self, path: &Path) -> String {
        let path = path.display();
        match &self.password {
            Some(password) => format!("redis+unix://{path}?pass={}", escape(password)),
            None => format!("redis+unix://{path}"),
        }
    }
}

/// Percent-encodes every byte of a text except letters and digits, for a URL.
fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}
