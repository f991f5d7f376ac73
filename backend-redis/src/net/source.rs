//! Where connections come from: one server, or whichever one Sentinel names.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Where to connect to, and how long that and an answer may take.
#[derive(Debug)]
pub struct Source {
    /// The server.
    pub target: Target,
    /// How long connecting may take, asking the Sentinels included.
    pub connect_timeout: Duration,
    /// How long to wait for an answer.
    pub response_timeout: Duration,
}

/// Where to connect to.
pub enum Target {
    /// This server.
    Server(Client),
    /// Whichever server the Sentinels say is the primary.
    Sentinel {
        /// What asks them.
        group: Mutex<SentinelClient>,
        /// The name of the group.
        primary: String,
    },
}

impl Source {
    /// A new connection, to what is the primary now.
    ///
    /// # Errors
    ///
    /// If there is none in time.
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        // Sentinels are asked one after the other, and each may be silent.
        let connect = async {
            let client = self.client().await?;
            client.get_multiplexed_async_connection_with_config(&config).await
        };
        timeout(self.connect_timeout, connect).await.unwrap_or_else(|_| {
            Err(RedisError::from(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("no connection within {:?}", self.connect_timeout),
            )))
        })
    }

    async fn client(&self) -> RedisResult<Client> {
        match &self.target {
            Target::Server(client) => Ok(client.clone()),
            Target::Sentinel { group, .. } => group.lock().await.async_get_client().await,
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither passwords nor much else: this ends up in logs.
        match self {
            Self::Server(client) => {
                write!(f, "Server({})", client.get_connection_info().addr())
            }
            Self::Sentinel { primary, .. } => write!(f, "Sentinel({primary})"),
        }
    }
}
