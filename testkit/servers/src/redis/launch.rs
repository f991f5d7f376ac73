//! The start and the restart of a Redis server.

use std::path::Path;
use std::{fs, io};

use super::builder::RedisBuilder;
use super::server::{Data, PATIENCE, Redis};
use crate::binary::Binary;
use crate::error::Error;
use crate::port::free_port;
use crate::resp::Client;
use crate::wait::eventually;
use crate::watchdog::{State, Watchdog, tail};

/// The maximum number of ports that the start of a server tries.
const PORTS: u8 = 10;

pub(crate) enum Refusal {
    PortTaken(Error),
    Other(Error),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let (Refusal::PortTaken(error) | Refusal::Other(error)) = refusal;
        error
    }
}

impl Redis {
    pub(super) async fn launch(builder: RedisBuilder, binary: &Binary) -> Result<Self, Error> {
        let mut redis = Self::prepare(&builder, binary)?;
        redis.run_somewhere(&builder).await?;
        Ok(redis)
    }

    /// Runs the server. If another process has taken the port of the server, runs the server on
    /// another port.
    async fn run_somewhere(&mut self, builder: &RedisBuilder) -> Result<(), Error> {
        for _ in 1..PORTS {
            match self.run().await {
                Err(Refusal::PortTaken(_)) if builder.fixed_port().is_none() => {}
                result => return result.map_err(Error::from),
            }
            self.port = free_port()?;
            builder.write(self.process.dir(), self.port, &self.version)?;
        }
        self.run().await.map_err(Error::from)
    }

    /// Creates the directory and the settings of a server, without starting the server.
    pub(crate) fn prepare(builder: &RedisBuilder, binary: &Binary) -> Result<Self, Error> {
        let dir = builder.make_dir();
        let dir = dir.map_err(|error| Error::io("cannot make a directory for a server", error))?;
        let port = builder.fixed_port().map_or_else(free_port, Ok)?;
        builder.write(dir.path(), port, &binary.version)?;
        let config = dir.path().join("redis.conf");
        let mode = Path::new("--sentinel");
        let command = [binary.path.as_path(), config.as_path(), mode];
        let command = if builder.is_sentinel() { &command[..] } else { &command[..2] };
        // From now on, the watchdog script removes the directory, even if the test process is
        // killed.
        let process = Watchdog::new(dir.keep(), command)?;
        let (access, version) = (builder.access().clone(), binary.version.clone());
        Ok(Self { port, access, version, process })
    }

    /// Starts the server again, on the same port and with the same settings. If the server still
    /// runs, ends the running process first.
    pub async fn restart(&self, data: Data) -> Result<(), Error> {
        if data == Data::Kept && self.pid().is_some() {
            self.resume().await?;
            self.command(&["SAVE"]).await?;
        }
        self.kill().await?;
        if data == Data::Lost {
            self.forget()?;
        }
        eventually(PATIENCE, "the port of the server to be free again", async || {
            match self.run().await {
                Err(Refusal::PortTaken(_)) => None,
                result => Some(result.map_err(Error::from)),
            }
        })
        .await?
    }

    fn forget(&self) -> Result<(), Error> {
        let remove = |result: io::Result<()>, name: &str| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("cannot remove {name}"), error))
            }
            _ => Ok(()),
        };
        let dir = self.process.dir();
        remove(fs::remove_file(dir.join("dump.rdb")), "dump.rdb")?;
        remove(fs::remove_file(dir.join("appendonly.aof")), "appendonly.aof")?;
        remove(fs::remove_dir_all(dir.join("appendonlydir")), "appendonlydir")
    }

    pub(crate) async fn run(&self) -> Result<(), Refusal> {
        let start = self.process.log_len();
        self.process.start().map_err(Refusal::Other)?;
        let outcome =
            eventually(PATIENCE, "the server to answer", async || match self.process.state() {
                State::Idle => None,
                State::Exited => Some(false),
                State::Running(_) | State::Paused(_) => self.answers().await.then_some(true),
            });
        match outcome.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refusal(start, "ended")),
            Err(_) => Err(self.refusal(start, "does not answer")),
        }
    }

    /// Returns `true` if the server answers and has loaded its data, even if the server requires a
    /// password.
    async fn answers(&self) -> bool {
        let Ok(mut client) = Client::connect_unix(&self.socket_path()).await else { return false };
        client.call(&["PING"]).await.is_ok_and(|reply| !reply.text().starts_with("LOADING"))
    }

    fn refusal(&self, start: usize, what: &str) -> Refusal {
        let log = self.process.log(start);
        let message = format!("{} {what}; its log ends with\n{}", self.version, tail(&log));
        if log.contains("Address already in use") {
            return Refusal::PortTaken(Error::new(message));
        }
        Refusal::Other(Error::new(message))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_port_taken_by_another_process_is_replaced() {
        let (builder, binary) = (Redis::builder(), Binary::find(None).unwrap());
        let mut redis = Redis::prepare(&builder, &binary).unwrap();
        let lost = redis.port;
        let _faster = TcpListener::bind((Ipv4Addr::LOCALHOST, lost)).unwrap();
        redis.run_somewhere(&builder).await.unwrap();
        assert_ne!(redis.port, lost);
        let mut client = Client::connect(redis.port).await.unwrap();
        assert_eq!(client.call(&["PING"]).await.unwrap().text(), "PONG");
    }
}
