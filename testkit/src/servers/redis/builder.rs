//! How a server is set up.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::TempDir;

use super::{Access, Redis};
use crate::servers::binary::Binary;
use crate::servers::{Error, Version};

/// The choices for a server that is about to start.
///
/// ```no_run
/// use tidegate_testkit::servers::Redis;
///
/// # async fn start() {
/// let redis = Redis::builder().config("maxmemory", "1mb").password("secret").start().await.unwrap();
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RedisBuilder {
    binary: Option<PathBuf>,
    port: Option<u16>,
    sentinel: bool,
    access: Access,
    tls: Option<Tls>,
    lines: Vec<(String, String)>,
    home: Option<PathBuf>,
}

/// The files of a server's certificate.
#[derive(Debug, Clone)]
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    root: PathBuf,
}

impl RedisBuilder {
    /// Runs this program instead of the one that the environment names.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Listens on this port instead of a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Adds a line to the configuration file, as `redis.conf` would hold it: the value stands unquoted.
    /// A later line overrides an earlier one, and those that a test server has by default.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Requires this password; a connection with it is the user `default`.
    pub fn password(mut self, password: &str) -> Self {
        self.access.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Adds a user with a password and the rules of an ACL, such as `+@all ~tidegate:*`.
    pub fn user(self, name: &str, password: &str, rules: &str) -> Self {
        self.config("user", &format!("{name} on >{password} {rules}"))
    }

    /// Listens for encrypted connections only (but for the unix socket), with a certificate, its key and
    /// the root that signed it, all in PEM files. The servers of a Sentinel group, and the Sentinels, then
    /// talk to each other like that too. Clients need no certificate of their own.
    pub fn tls(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        root: impl Into<PathBuf>,
    ) -> Self {
        let (certificate, key, root) = (certificate.into(), key.into(), root.into());
        self.tls = Some(Tls { certificate, key, root });
        self.access.encrypted = true;
        self
    }

    /// The same program as a sentinel, which watches other servers; the rest is as by default.
    pub(in crate::servers) fn into_sentinel(self) -> Self {
        let access = Access { password: None, ..self.access };
        Self { binary: self.binary, sentinel: true, access, tls: self.tls, ..Self::default() }
    }

    /// Has its directory made in this one, instead of where temporary files go.
    pub(in crate::servers) fn home(mut self, home: Option<PathBuf>) -> Self {
        self.home = home;
        self
    }

    /// Makes the directory of a server.
    pub(super) fn make_dir(&self) -> io::Result<TempDir> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("tidegate-");
        self.home.as_ref().map_or_else(|| builder.tempdir(), |home| builder.tempdir_in(home))
    }

    pub(in crate::servers) fn binary_asked_for(&self) -> Option<&Path> {
        self.binary.as_deref()
    }

    /// The value of a setting, if it was given.
    pub(in crate::servers) fn setting(&self, wanted: &str) -> Option<&str> {
        let last = self.lines.iter().rfind(|(name, _)| name == wanted);
        last.map(|(_, value)| value.as_str())
    }

    pub(in crate::servers) fn is_encrypted(&self) -> bool {
        self.access.encrypted
    }

    pub(in crate::servers) fn password_of_default(&self) -> Option<&str> {
        self.access.password.as_deref()
    }

    /// Starts the server, and returns when it answers.
    ///
    /// # Errors
    /// If the program is missing or no server, or if the server refuses to start; its log says why.
    pub async fn start(self) -> Result<Redis, Error> {
        let binary = Binary::find(self.binary.as_deref())?;
        Redis::launch(self, &binary).await
    }

    pub(super) fn fixed_port(&self) -> Option<u16> {
        self.port
    }

    pub(super) fn is_sentinel(&self) -> bool {
        self.sentinel
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// Writes `redis.conf` into the directory of the server.
    pub(super) fn write(&self, dir: &Path, port: u16, version: &Version) -> Result<(), Error> {
        let path = dir.join("redis.conf");
        let text = self.text(dir, port, version)?;
        fs::write(&path, text)
            .map_err(|error| Error::io(format!("cannot write {}", path.display()), error))
    }

    fn text(&self, dir: &Path, port: u16, version: &Version) -> Result<String, Error> {
        let dir = dir.display();
        let mut text =
            format!("bind 127.0.0.1\nunixsocket {dir}/redis.sock\ndir {dir}\ndaemonize no\n");
        // Writing to a string cannot fail.
        let _ = match &self.tls {
            None => writeln!(text, "port {port}"),
            Some(Tls { certificate, key, root }) => writeln!(
                text,
                "port 0\ntls-port {port}\ntls-replication yes\ntls-auth-clients no\n\
                 tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}",
                certificate.display(),
                key.display(),
                root.display(),
            ),
        };
        if !self.sentinel {
            // By way of the disk, a replica is served at once: otherwise others are waited for for 5 s,
            // and an acknowledgement for 1 s.
            text.push_str("save \"\"\nappendonly no\nrepl-diskless-sync no\n");
            if version.numbers() >= [7, 0, 0] {
                text.push_str("enable-debug-command yes\nshutdown-timeout 1\n");
            }
        }
        for (name, value) in &self.lines {
            if [name, value].iter().any(|part| part.contains(['\n', '\r'])) {
                return Err(Error::new(format!(
                    "a line break in the setting {name:?} = {value:?}"
                )));
            }
            let _ = writeln!(text, "{name} {}", if value.is_empty() { "\"\"" } else { value });
        }
        Ok(text)
    }
}
