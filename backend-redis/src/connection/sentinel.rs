//! Which server of a group is the primary, by what its Sentinels say.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, RedisError, Value};
use tidegate_core::ErrorKind;
use tokio::time::{Instant, timeout_at};

use super::access::{Access, Progress};
use super::error::{self, ConnectError, Peer};
use super::live::{Driver, LiveConnection};
use super::race::STAGGER;

/// The Sentinels of a group, and how to connect to its servers.
pub(super) struct SentinelGroup<'a> {
    pub(super) access: &'a Access,
    pub(super) sentinels: &'a [ConnectionInfo],
    pub(super) name: &'a str,
    /// The servers, but for their addresses.
    pub(super) server: &'a ConnectionInfo,
}

/// A server's host and port.
type Address = (String, u16);

/// What an attempt comes to.
enum Outcome {
    /// What a Sentinel says, by its place.
    Named(usize, Result<Address, ConnectError>),
    /// Of the server that it named.
    Connected(Address, Result<(LiveConnection, Driver), ConnectError>),
}

impl SentinelGroup<'_> {
    /// Connects to the primary.
    ///
    /// Any Sentinel and any server may hang. So the Sentinels are asked one after the other, each 50 ms
    /// after the one before, or as soon as one has failed. They are asked again as long as a server that
    /// they named is being connected to, as they may name another by then. The first connection to a
    /// server that is a primary wins. No server is connected to twice at once.
    pub(super) async fn connect(&self) -> Result<(LiveConnection, Driver), ConnectError> {
        let mut running = FuturesUnordered::<BoxFuture<'_, Outcome>>::new();
        let mut idle: VecDeque<usize> = (0..self.sentinels.len()).collect();
        let (mut asked, mut next_question) = (0, Instant::now());
        // Those that are being connected to.
        let mut servers: Vec<Address> = vec![];
        let (mut no_sentinel, mut no_server) = (None, None);
        loop {
            if next_question <= Instant::now() {
                next_question = Instant::now() + STAGGER;
                if let Some(place) = idle.pop_front() {
                    running.push(self.ask(place).boxed());
                    asked += 1;
                }
            }
            match timeout_at(next_question, running.next()).await {
                Ok(Some(Outcome::Connected(_, Ok(connection)))) => return Ok(connection),
                Ok(Some(Outcome::Named(place, Ok(server)))) => {
                    idle.push_back(place);
                    if !servers.contains(&server) {
                        servers.push(server.clone());
                        running.push(self.connect_to(server).boxed());
                    }
                    continue;
                }
                Ok(Some(Outcome::Named(place, Err(error)))) => {
                    idle.push_back(place);
                    no_sentinel = Some(error);
                }
                Ok(Some(Outcome::Connected(server, Err(error)))) => {
                    servers.retain(|other| *other != server);
                    no_server = Some(error);
                }
                Ok(None) => {}
                Err(_) => continue,
            }
            // Something has failed.
            if asked < self.sentinels.len() {
                next_question = Instant::now();
            } else if servers.is_empty() && (no_server.is_some() || running.is_empty()) {
                // A Sentinel that hangs is waited for only if no other has named a server.
                let place = format!("the primary of `{}`", self.name);
                let error = no_server.or(no_sentinel).map(|error| error.within(&place));
                let none = || ConnectError::new(ErrorKind::Unavailable, "there are no Sentinels");
                return Err(error.unwrap_or_else(none));
            }
        }
    }

    /// Asks a Sentinel for the address of the primary.
    async fn ask(&self, place: usize) -> Outcome {
        let named = async {
            let sentinel = &self.sentinels[place];
            let peer = Peer::new("Sentinel", sentinel.addr());
            let connected = self.access.connect(&peer, sentinel, &Progress::default()).await;
            let (mut sentinel, mut driver) = connected?;
            let mut question = Cmd::new();
            question.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(self.name);
            let address = sentinel.ask::<Option<Address>>(&mut driver, &question).await;
            let address = address.map_err(|error| error::of_question(&peer, &error))?;
            address.ok_or_else(|| {
                let message = format!("{peer} knows no primary of this name");
                ConnectError::new(ErrorKind::Unavailable, message)
            })
        };
        Outcome::Named(place, named.await)
    }

    /// Connects to a server that a Sentinel has named.
    async fn connect_to(&self, server: Address) -> Outcome {
        let connected = self.connect_to_primary(&server).await;
        Outcome::Connected(server, connected)
    }

    async fn connect_to_primary(
        &self,
        (host, port): &Address,
    ) -> Result<(LiveConnection, Driver), ConnectError> {
        let (host, port) = (host.clone(), *port);
        let address = match self.server.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let peer = Peer::new("Redis", &address);
        let server = self.server.clone().set_addr(address);
        let connected = self.access.connect_to_server(&peer, &server, &Progress::default()).await;
        let (mut connection, mut driver) = connected?;
        let mut question = Cmd::new();
        question.arg("ROLE");
        match connection.ask::<Vec<Value>>(&mut driver, &question).await {
            Ok(role) if !is_primary(role.first()) => {
                let message = format!("{peer}, which the Sentinels name, is not a primary");
                Err(ConnectError::new(ErrorKind::Unavailable, message))
            }
            // Without permission to ask for the role, the Sentinels' answer counts.
            Err(error) if !is_forbidden(&error) => Err(error::of_question(&peer, &error)),
            _ => Ok((connection, driver)),
        }
    }
}

fn is_forbidden(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// Whether that is how a primary's answer to `ROLE` begins.
fn is_primary(role: Option<&Value>) -> bool {
    role.is_some_and(|role| String::from_redis_value_ref(role).is_ok_and(|role| role == "master"))
}
