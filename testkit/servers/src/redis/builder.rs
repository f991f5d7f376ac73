//! The settings of a Redis server.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::TempDir;

use super::access::Access;
use super::server::Redis;
use crate::binary::{Binary, Version};
use crate::error::Error;

/// The settings of a Redis server that a test will start.
///
/// ```no_run
/// use tidegate_test_servers::Redis;
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

#[derive(Debug, Clone)]
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    root: PathBuf,
}

impl RedisBuilder {
    /// Runs this server program instead of the default program.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Makes the server listen on this port. By default, the server listens on any free port.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Adds a line to the configuration file `redis.conf` of the server. The value is written
    /// without quotes. The line overrides earlier lines with the same name, and the defaults of a
    /// test server.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the password of the user `default`, which Redis uses for connections without a user
    /// name.
    pub fn password(mut self, password: &str) -> Self {
        self.access.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Adds a user with a password and with rules of the access control list, such as `+@all
    /// ~tidegate:*`.
    pub fn user(self, name: &str, password: &str, rules: &str) -> Self {
        self.config("user", &format!("{name} on >{password} {rules}"))
    }

    /// Makes the server accept only encrypted connections, except on the unix socket. The arguments
    /// are PEM files: the server's certificate, its key, and the root certificate that signed it.
    /// In a Sentinel group, the servers and sentinels also encrypt the connections between each
    /// other. Clients need no certificate.
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

    /// Returns the settings of a sentinel that runs the same program with the same TLS settings.
    /// All other settings are defaults.
    pub(crate) fn into_sentinel(self) -> Self {
        let access = Access { password: None, ..self.access };
        Self { binary: self.binary, sentinel: true, access, tls: self.tls, ..Self::default() }
    }

    /// Creates the server's directory in `home` instead of the directory for temporary files.
    pub(crate) fn home(mut self, home: Option<PathBuf>) -> Self {
        self.home = home;
        self
    }

    pub(super) fn make_dir(&self) -> io::Result<TempDir> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("tidegate-");
        self.home.as_ref().map_or_else(|| builder.tempdir(), |home| builder.tempdir_in(home))
    }

    pub(crate) fn binary_path(&self) -> Option<&Path> {
        self.binary.as_deref()
    }

    pub(crate) fn setting(&self, wanted: &str) -> Option<&str> {
        let last = self.lines.iter().rfind(|(name, _)| name == wanted);
        last.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.access.encrypted
    }

    pub(crate) fn default_password(&self) -> Option<&str> {
        self.access.password.as_deref()
    }

    /// Starts the server. Returns when the server answers.
    ///
    /// # Errors
    /// Returns an error if the program is missing or is not a Redis server, or if the server does
    /// not start. The message contains the end of the server's log.
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
            // Replicas copy the data via the disk, because such a copy begins immediately. A
            // diskless copy first waits 5 s for further replicas, and delays the first
            // acknowledgement for WAIT by 1 s.
            text.push_str("save \"\"\nappendonly no\nrepl-diskless-sync no\n");
            if version.numbers() >= [7, 0, 0] {
                text.push_str("enable-debug-command yes\nshutdown-timeout 1\n");
            }
        }
        for (name, value) in &self.lines {
            if [name, value].iter().any(|part| part.contains(['\n', '\r'])) {
                return Err(Error::new(format!(
                    "the setting {name:?} is {value:?}; it must not contain a line break"
                )));
            }
            let _ = writeln!(text, "{name} {}", if value.is_empty() { "\"\"" } else { value });
        }
        Ok(text)
    }
}

impl Redis {
    /// Starts a server with the default settings. Returns when the server answers.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Returns a builder for a server with other settings.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }
}
