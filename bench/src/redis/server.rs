//! The server of a benchmark, and the connections to it.

use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tidegate_redis::RedisStore;
use tidegate_test_servers::Redis;

use super::Outcome;

/// Long enough that no busy machine ends a benchmark.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// How often the cost of asking for the CPU time is measured.
const READINGS: usize = 31;

/// The server, and the two connections to it: the store's, and the one for all others.
pub(crate) struct Server {
    pub(crate) redis: Redis,
    pub(crate) store: RedisStore,
    pub(crate) connection: MultiplexedConnection,
    /// What asking the server for its CPU time costs it.
    pub(crate) reading: Duration,
}

impl Server {
    pub(crate) async fn start() -> Outcome<Self> {
        let redis = Redis::start().await?;
        let url = redis.url();
        let store = RedisStore::builder().url(url.as_str()).response_timeout(TIMEOUT).build()?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
        let connection =
            redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
        let mut readings = Vec::with_capacity(READINGS);
        for _ in 0..READINGS {
            let before = redis.cpu_time().await?;
            readings.push(redis.cpu_time().await?.saturating_sub(before));
        }
        readings.sort_unstable();
        Ok(Self { redis, store, connection, reading: readings[READINGS / 2] })
    }
}
