//! A process of workers. An application would contain this code.

use std::error::Error;
use std::time::Duration;

use tidegate_redis::{Limiter, RedisStore};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// The number of workers in a process. Each worker has at most one request in flight.
pub(crate) const WORKERS: u32 = 8;

/// The limit of all processes together: 50 requests per second, with a burst of 8. The API permits
/// a larger burst, because requests that were sent one after another can arrive together.
pub(crate) const POLICY: &str = "partner: gcra 50/1s burst 8";

/// Works until the time is over.
pub(crate) async fn run(
    redis: &str,
    prefix: &str,
    api: &str,
    seconds: &str,
) -> Result<(), Box<dyn Error>> {
    let store = RedisStore::builder().url(redis).prefix(prefix).build()?;
    let limiter = Limiter::new(store, [POLICY.parse()?])?.max_wait(Duration::from_secs(10));
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let workers = (0..WORKERS).map(|_| {
        let (limiter, api) = (limiter.clone(), api.to_owned());
        tokio::spawn(
            async move { work(&limiter, &api, end).await.map_err(|error| error.to_string()) },
        )
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    Ok(())
}

async fn work(
    limiter: &Limiter<RedisStore>,
    api: &str,
    end: Instant,
) -> Result<(), Box<dyn Error>> {
    let mut partner = BufReader::new(TcpStream::connect(api).await?);
    // At `end`, the wait for the limiter is dropped. A task then refunds the reserved place in the
    // queue, unless the whole program ends first.
    while let Ok(ready) = timeout_at(end, limiter.until_ready("partner")).await {
        ready?;
        call(&mut partner).await?;
    }
    Ok(())
}

/// Sends a request, and reads the head of the response. The response has no body.
async fn call(partner: &mut BufReader<TcpStream>) -> Result<(), Box<dyn Error>> {
    partner.write_all(b"GET / HTTP/1.1\r\nHost: partner\r\n\r\n").await?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if partner.read_line(&mut line).await? == 0 {
            return Err("the third party hung up".into());
        }
    }
    Ok(())
}
