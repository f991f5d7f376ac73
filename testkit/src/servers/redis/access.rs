//! Who may connect, and by which URL.

use std::fmt::Write;
use std::path::Path;

/// The password of the default user, if it has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Access {
    pub(super) password: Option<String>,
}

impl Access {
    pub(super) fn url(&self, port: u16) -> String {
        match &self.password {
            Some(password) => Self::url_for("", password, port),
            None => format!("redis://127.0.0.1:{port}"),
        }
    }

    pub(super) fn url_for(user: &str, password: &str, port: u16) -> String {
        format!("redis://{}:{}@127.0.0.1:{port}", escape(user), escape(password))
    }

    pub(super) fn socket_url(&self, path: &Path) -> String {
        let path = path.display();
        match &self.password {
            Some(password) => format!("redis+unix://{path}?pass={}", escape(password)),
            None => format!("redis+unix://{path}"),
        }
    }
}

/// Percent-encodes all that could mean something in a URL.
fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}
