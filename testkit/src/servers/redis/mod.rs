//! One Redis server.

mod access;
mod builder;
mod launch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use access::Access;
pub use builder::RedisBuilder;
pub(super) use launch::Refusal;

use super::watchdog::{State, Watchdog};
use super::{Client, Error, Reply, Version, eventually};

/// How long a server may take to start, to end, or to follow another.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a server knows after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// What it knew before, if it was still running; after a crash, what had reached the disk.
    Kept,
    /// Nothing.
    Lost,
}

/// A Redis (or Valkey) server of this test's own, on 127.0.0.1 and on a unix socket.
///
/// It writes nothing to disk unless told to, and `DEBUG` works. Dropping it kills it.
///
/// ```no_run
/// use tidegate_testkit::servers::Redis;
///
/// # async fn run() {
/// let redis = Redis::start().await.unwrap();
/// redis.command(&["SET", "key", "value"]).await.unwrap();
/// assert_eq!(redis.command(&["GET", "key"]).await.unwrap().text(), "value");
/// # }
/// ```
#[derive(Debug)]
pub struct Redis {
    port: u16,
    access: Access,
    version: Version,
    process: Watchdog,
}

impl Redis {
    /// Starts a server with the usual settings, and returns when it answers.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Starts a server with other settings.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// The port on 127.0.0.1. It stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens, with the password of the default user if there is one.
    pub fn url(&self) -> String {
        self.access.url(self.port)
    }

    /// Where it listens, for this user.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.access.url_for(user, password, self.port)
    }

    /// The URL of the unix socket, with the password of the default user if there is one.
    pub fn socket_url(&self) -> String {
        self.access.socket_url(&self.socket_path())
    }

    /// The path of the unix socket.
    pub fn socket_path(&self) -> PathBuf {
        self.process.dir().join("redis.sock")
    }

    /// The directory that it runs in.
    pub(in crate::servers) fn dir(&self) -> &Path {
        self.process.dir()
    }

    /// The program that runs, and its version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        match self.process.state() {
            State::Running(pid) | State::Paused(pid) => Some(pid),
            State::Idle | State::Exited => None,
        }
    }

    /// Whether it runs and is not held.
    pub(in crate::servers) fn is_awake(&self) -> bool {
        matches!(self.process.state(), State::Running(_))
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        self.process.log(0)
    }

    /// Opens a connection of its own, over the unix socket.
    ///
    /// # Errors
    /// If it cannot be reached, or refuses the password.
    pub async fn client(&self) -> Result<Client, Error> {
        let mut client = Client::connect_unix(&self.socket_path()).await?;
        if let Some(password) = &self.access.password {
            succeeded("AUTH", client.call(&["AUTH", password]).await?)?;
        }
        Ok(client)
    }

    /// Runs a command, over a new connection.
    ///
    /// # Errors
    /// If it cannot be reached, does not answer within 10 s, or refuses the command.
    pub async fn command(&self, command: &[impl AsRef<[u8]>]) -> Result<Reply, Error> {
        let reply = self.client().await?.call(command).await?;
        let name = command.first().map(|name| String::from_utf8_lossy(name.as_ref()));
        succeeded(&name.unwrap_or_default(), reply)
    }

    /// All keys that begin with a prefix and a colon, and what is under them: the same bytes as long as
    /// nothing changes there.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub async fn dump(&self, prefix: &str) -> Result<Vec<u8>, Error> {
        const DUMP: &str = "local all = {} \
             for i, key in ipairs(redis.call('KEYS', ARGV[1])) do \
               all[i] = #key .. ':' .. key .. redis.call('DUMP', key) \
             end \
             table.sort(all) return table.concat(all)";
        match self.command(&["EVAL", DUMP, "0", &format!("{prefix}:*")]).await? {
            Reply::Bytes(dump) => Ok(dump),
            other => Err(Error::new(format!("a dump is bytes, and not {other:?}"))),
        }
    }

    /// A field of `INFO`, such as `master_link_status`.
    ///
    /// # Errors
    /// As [`command`](Self::command), or if there is no such field.
    pub async fn info(&self, field: &str) -> Result<String, Error> {
        let info = self.command(&["INFO"]).await?.text();
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.map(str::to_owned).ok_or_else(|| Error::new(format!("INFO has no field {field:?}")))
    }

    /// The CPU time that the process has used so far, user and system, all threads.
    ///
    /// # Errors
    /// As [`command`](Self::command).
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

    /// Makes it a replica of another server, and returns when it has that server's data and gets all that
    /// is written from then on.
    ///
    /// # Errors
    /// If either cannot be reached, or the data does not arrive.
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

    /// Whether a replica gets what is written here, according to both. That it is linked, as it says
    /// itself, is not enough: for up to a second more it may get nothing, and nothing is lost more easily.
    pub(in crate::servers) async fn streams_to(&self, replica: &Self) -> bool {
        let status = replica.info("master_link_status").await;
        let Ok(replicas) = self.command(&["INFO", "replication"]).await else { return false };
        let entry = format!("port={},state=online,", replica.port);
        status.is_ok_and(|status| status == "up") && replicas.text().contains(&entry)
    }

    /// Ends it by SIGTERM, as an operator would; returns when it is gone.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn stop(&self) -> Result<(), Error> {
        if self.pid().is_some() {
            // A server that is held would never get the other signal.
            self.process.signal("CONT")?;
        }
        self.end("TERM").await
    }

    /// Ends it by SIGKILL, as a crash would; returns when it is gone.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn kill(&self) -> Result<(), Error> {
        self.end("KILL").await
    }

    /// Holds it by SIGSTOP: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn pause(&self) -> Result<(), Error> {
        self.must_run()?;
        self.process.signal("STOP")?;
        let is_paused = |state| matches!(state, State::Paused(pid) if is_held(pid));
        self.process.wait_for(PATIENCE, "the server to be held", is_paused).await.map(drop)
    }

    /// Lets it go on by SIGCONT.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn resume(&self) -> Result<(), Error> {
        self.must_run()?;
        self.process.signal("CONT")?;
        let is_running = |state| matches!(state, State::Running(_));
        self.process.wait_for(PATIENCE, "the server to go on", is_running).await.map(drop)
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

/// A reply that is no refusal.
fn succeeded(command: &str, reply: Reply) -> Result<Reply, Error> {
    match reply {
        Reply::Error(refusal) => Err(Error::new(format!("{command} was refused: {refusal}"))),
        reply => Ok(reply),
    }
}

/// Whether the system has come to hold the process: the signal is sent a moment before. Where there is
/// no `/proc` to ask, sent must do.
fn is_held(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(true, |status| status.lines().any(|line| line.starts_with("State:\tT")))
}
