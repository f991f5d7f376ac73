//! The Redis of a benchmark, and the connections to it.

use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tidegate_redis::RedisStore;
use tidegate_test_servers::Redis;

use super::figures::middle;
use crate::Outcome;

/// The response timeout. Calls succeed within it even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The number of samples for the CPU time that Redis spends on one `INFO cpu` command. The
/// benchmark subtracts the median of these samples from each measurement.
const READINGS: usize = 31;

/// A Redis with two connections: one for the store, and one for all other commands.
pub(crate) struct Server {
    pub(crate) redis: Redis,
    pub(crate) store: RedisStore,
    pub(crate) connection: MultiplexedConnection,
    /// The CPU time that the server spends on a query for its CPU time. `cpu_of` subtracts it.
    reading: Duration,
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
        Ok(Self { redis, store, connection, reading: middle(readings) })
    }

    /// Returns the output of `work`, and the CPU time that the server spends during `work`.
    pub(crate) async fn cpu_of<T>(
        &self,
        work: impl Future<Output = Outcome<T>>,
    ) -> Outcome<(T, Duration)> {
        let before = self.redis.cpu_time().await?;
        let output = work.await?;
        let after = self.redis.cpu_time().await?;
        Ok((output, after.saturating_sub(before + self.reading)))
    }

    /// Returns the bytes of a key, or `None` if the key does not exist.
    pub(crate) async fn memory_of(&self, key: impl redis::ToRedisArgs) -> Outcome<Option<u64>> {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        Ok(usage.query_async(&mut self.connection.clone()).await?)
    }
}
