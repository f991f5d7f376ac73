//! A running Redis server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::access::Access;
use crate::binary::Version;
use crate::error::Error;
use crate::resp::{Client, Reply};
use crate::wait::eventually;
use crate::watchdog::{State, Watchdog};

/// The maximum time for a server to start, to end, or to replicate another server.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The data of a server after a restart: kept or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// The server keeps its data. Before the restart, a running server saves its data. After a
    /// crash, a server has only the data that it has written to its disk.
    Kept,
    /// The server loses its data, and starts without any keys.
    Lost,
}

/// A Redis (or Valkey) server that belongs to one test. The server listens on 127.0.0.1 and on a
/// unix socket.
///
/// By default, the server does not write its data to disk, and the command `DEBUG` is enabled.
/// Dropping this value kills the server.
///
/// ```no_run
/// use tidegate_test_servers::Redis;
///
/// # async fn run() {
/// let redis = Redis::start().await.unwrap();
/// redis.command(&["SET", "key", "value"]).await.unwrap();
/// assert_eq!(redis.command(&["GET", "key"]).await.unwrap().text(), "value");
/// # }
/// ```
#[derive(Debug)]
pub struct Redis {
    pub(super) port: u16,
    pub(super) access: Access,
    pub(super) version: Version,
    pub(super) process: Watchdog,
}

impl Redis {
    /// Returns the server's port on 127.0.0.1. A restart does not change the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the server, with the password of the default user if it has one.
    pub fn url(&self) -> String {
        self.access.url(self.port)
    }

    /// Returns the URL of the server with this user and password.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.access.url_for(user, password, self.port)
    }

    /// Returns the URL of the server's unix socket, with the password of the default user if it has
    /// one.
    pub fn socket_url(&self) -> String {
        self.access.socket_url(&self.socket_path())
    }

    /// Returns the path of the server's unix socket.
    pub fn socket_path(&self) -> PathBuf {
        self.process.dir().join("redis.sock")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.process.dir()
    }

    /// Returns the name and the version of the server program.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the process id of the server, or `None` if the server does not run.
    pub fn pid(&self) -> Option<u32> {
        match self.process.state() {
            State::Running(pid) | State::Paused(pid) => Some(pid),
            State::Idle | State::Exited => None,
        }
    }

    pub(crate) fn is_awake(&self) -> bool {
        matches!(self.process.state(), State::Running(_))
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        self.process.log(0)
    }

    /// Opens a new connection to the server over its unix socket.
    pub async fn client(&self) -> Result<Client, Error> {
        let mut client = Client::connect_unix(&self.socket_path()).await?;
        if let Some(password) = &self.access.password {
            accepted("AUTH", client.call(&["AUTH", password]).await?)?;
        }
        Ok(client)
    }

    /// Sends a command over a new connection. Returns the reply of the server.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached, does not reply within 10 s, or replies
    /// with an error.
    pub async fn command(&self, command: &[impl AsRef<[u8]>]) -> Result<Reply, Error> {
        let reply = self.client().await?.call(command).await?;
        let name = command.first().map(|name| String::from_utf8_lossy(name.as_ref()));
        accepted(&name.unwrap_or_default(), reply)
    }

    /// Returns the keys that begin with `prefix` and a colon, and their values, as bytes. If no
    /// such key or value changes between two calls of this function, both calls return the same
    /// bytes.
    pub async fn dump(&self, prefix: &str) -> Result<Vec<u8>, Error> {
        const DUMP: &str = "local all = {} \
             for i, key in ipairs(redis.call('KEYS', ARGV[1])) do \
               all[i] = #key .. ':' .. key .. redis.call('DUMP', key) \
             end \
             table.sort(all) return table.concat(all)";
        match self.command(&["EVAL", DUMP, "0", &format!("{prefix}:*")]).await? {
            Reply::Bytes(dump) => Ok(dump),
            other => Err(Error::new(format!("the reply to a dump is {other:?}; it must be bytes"))),
        }
    }

    /// Returns a field of `INFO`, such as `master_link_status`.
    pub async fn info(&self, field: &str) -> Result<String, Error> {
        let info = self.command(&["INFO"]).await?.text();
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.map(str::to_owned).ok_or_else(|| Error::new(format!("INFO has no field {field:?}")))
    }

    /// Returns the CPU time that all threads of the server have used so far, in user mode and
    /// system mode.
    pub async fn cpu_time(&self) -> Result<Duration, Error> {
        let info = self.command(&["INFO", "cpu"]).await?.text();
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let (seconds, micros) = value.trim().split_once('.')?;
            let seconds = Duration::from_secs(seconds.parse().ok()?);
            Some(seconds + Duration::from_micros(format!("{micros:0<6}").get(..6)?.parse().ok()?))
        };
        let times = (field("used_cpu_user"), field("used_cpu_sys"));
        let (Some(user), Some(system)) = times else {
            return Err(Error::new(format!("no CPU times in {info:?}")));
        };
        Ok(user + system)
    }

    /// Makes this server a replica of `primary`. Returns when this server has copied the data of
    /// `primary` and receives all further writes.
    pub async fn replica_of(&self, primary: &Self) -> Result<(), Error> {
        if let Some(password) = &primary.access.password {
            self.command(&["CONFIG", "SET", "masterauth", password]).await?;
        }
        self.command(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]).await?;
        eventually(PATIENCE, "the replica to have the data of its primary", async || {
            primary.streams_to(self).await.then_some(())
        })
        .await
    }

    /// Returns `true` if this server and `replica` both report that the replica receives the writes
    /// of this server. The field `master_link_status` of the replica is not sufficient: in the
    /// first second after the value becomes `up`, the primary possibly sends no writes. A failover
    /// in this second would lose writes.
    pub(crate) async fn streams_to(&self, replica: &Self) -> bool {
        let status = replica.info("master_link_status").await;
        let Ok(replicas) = self.command(&["INFO", "replication"]).await else { return false };
        let entry = format!("port={},state=online,", replica.port);
        status.is_ok_and(|status| status == "up") && replicas.text().contains(&entry)
    }

    /// Ends the server with SIGTERM, as an operator would. Returns when the process has ended.
    pub async fn stop(&self) -> Result<(), Error> {
        if self.pid().is_some() {
            self.process.signal("CONT")?;
        }
        self.end("TERM").await
    }

    /// Ends the server with SIGKILL, like a crash. Returns when the process has ended.
    pub async fn kill(&self) -> Result<(), Error> {
        self.end("KILL").await
    }

    /// Pauses the server with SIGSTOP. A paused server keeps its connections and does not answer.
    ///
    /// # Errors
    /// Returns an error if the server does not run.
    pub async fn pause(&self) -> Result<(), Error> {
        self.must_run()?;
        self.process.signal("STOP")?;
        let is_paused = |state| matches!(state, State::Paused(pid) if is_stopped(pid));
        self.process.wait_for(PATIENCE, "the server to pause", is_paused).await.map(drop)
    }

    /// Resumes a paused server with SIGCONT.
    ///
    /// # Errors
    /// Returns an error if the server does not run.
    pub async fn resume(&self) -> Result<(), Error> {
        self.must_run()?;
        self.process.signal("CONT")?;
        let is_running = |state| matches!(state, State::Running(_));
        self.process.wait_for(PATIENCE, "the server to resume", is_running).await.map(drop)
    }

    fn must_run(&self) -> Result<(), Error> {
        self.pid().map(drop).ok_or_else(|| Error::new("the server does not run"))
    }

    async fn end(&self, signal: &str) -> Result<(), Error> {
        if self.pid().is_some() {
            self.process.signal(signal)?;
        }
        let has_ended = |state| state == State::Exited;
        self.process.wait_for(PATIENCE, "the server to end", has_ended).await.map(drop)
    }
}

/// Converts a reply that reports an error to an `Error`.
fn accepted(command: &str, reply: Reply) -> Result<Reply, Error> {
    match reply {
        Reply::Error(refusal) => Err(Error::new(format!("{command} failed: {refusal}"))),
        reply => Ok(reply),
    }
}

/// Returns `true` if the system has stopped the process. The system stops the process a moment
/// after the signal was sent. If the system has no `/proc`, the function assumes that the process
/// has stopped.
fn is_stopped(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(true, |status| status.lines().any(|line| line.starts_with("State:\tT")))
}
