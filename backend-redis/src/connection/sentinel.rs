//! The search for the primary of a Sentinel group.

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

/// The Sentinels of a group, and the settings for connecting to its servers.
pub(super) struct SentinelGroup<'a> {
    pub(super) access: &'a Access,
    pub(super) sentinels: &'a [ConnectionInfo],
    pub(super) name: &'a str,
    /// The settings for connecting to the servers of the group. The address in these settings is
    /// not used, because a Sentinel reports the address of the primary.
    pub(super) server: &'a ConnectionInfo,
}

type Address = (String, u16);

/// The result of a query to a Sentinel, or of an attempt to connect to a server that a Sentinel
/// named.
enum Outcome {
    /// The reply of the Sentinel with this index: the address of the primary, or an error.
    Named(usize, Result<Address, ConnectError>),
    Connected(Address, Result<(LiveConnection, Driver), ConnectError>),
}

impl SentinelGroup<'_> {
    /// Returns the first connection that reaches the primary of the group.
    ///
    /// Any Sentinel and any server can hang. So the query to each Sentinel starts 50 ms after the
    /// query to the previous Sentinel, or as soon as a query has failed. While an attempt to
    /// connect to a server is in progress, the queries are repeated, because a Sentinel can name
    /// another server later. At most one attempt per server runs at the same time.
    pub(super) async fn connect(&self) -> Result<(LiveConnection, Driver), ConnectError> {
        let mut running = FuturesUnordered::<BoxFuture<'_, Outcome>>::new();
        let mut idle: VecDeque<usize> = (0..self.sentinels.len()).collect();
        let (mut queries, mut next_query) = (0, Instant::now());
        // The servers to which an attempt to connect is in progress.
        let mut servers: Vec<Address> = vec![];
        let (mut no_sentinel, mut no_server) = (None, None);
        loop {
            if next_query <= Instant::now() {
                next_query = Instant::now() + STAGGER;
                if let Some(place) = idle.pop_front() {
                    running.push(self.query(place).boxed());
                    queries += 1;
                }
            }
            match timeout_at(next_query, running.next()).await {
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
            // At this point, a query or an attempt to connect has failed.
            if queries < self.sentinels.len() {
                next_query = Instant::now();
            } else if servers.is_empty() && (no_server.is_some() || running.is_empty()) {
                // The store has queried every Sentinel, and no attempt to connect to a named server
                // is in progress. If such an attempt has failed, the search ends without waiting
                // for a Sentinel that hangs.
                let context = format!("the primary of `{}`", self.name);
                let error = no_server.or(no_sentinel).map(|error| error.with_context(&context));
                let none = || ConnectError::new(ErrorKind::Unavailable, "there are no Sentinels");
                return Err(error.unwrap_or_else(none));
            }
        }
    }

    async fn query(&self, place: usize) -> Outcome {
        let named = async {
            let sentinel = &self.sentinels[place];
            let peer = Peer::new("Sentinel", sentinel.addr());
            let connected = self.access.connect(&peer, sentinel, &Progress::default()).await;
            let (mut sentinel, mut driver) = connected?;
            let mut command = Cmd::new();
            command.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(self.name);
            let address = sentinel.query::<Option<Address>>(&mut driver, &command).await;
            let address = address.map_err(|error| error::setup_error(&peer, &error))?;
            address.ok_or_else(|| {
                let message = format!("{peer} knows no primary of this name");
                ConnectError::new(ErrorKind::Unavailable, message)
            })
        };
        Outcome::Named(place, named.await)
    }

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
        let mut command = Cmd::new();
        command.arg("ROLE");
        match connection.query::<Vec<Value>>(&mut driver, &command).await {
            Ok(role) if !is_primary(role.first()) => {
                let message = format!("{peer} is not a primary, although a Sentinel names it");
                Err(ConnectError::new(ErrorKind::Unavailable, message))
            }
            // If the user lacks the permission for `ROLE`, the store trusts the Sentinel.
            Err(error) if !is_forbidden(&error) => Err(error::setup_error(&peer, &error)),
            _ => Ok((connection, driver)),
        }
    }
}

fn is_forbidden(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// Returns `true` if the first value of a reply to `ROLE` says that the server is a primary.
fn is_primary(role: Option<&Value>) -> bool {
    role.is_some_and(|role| String::from_redis_value_ref(role).is_ok_and(|role| role == "master"))
}
