//! Tasks that call the service as often as they may.

use std::error::Error;
use std::time::Duration;

use http::{Request, StatusCode};
use reqwest::Body;
use tidegate_http::client::ClientErrorKind;
use tidegate_redis::{Limiter, RedisStore, Store};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt;

use crate::client::client;

/// What all tasks of all processes together keep to, by themselves.
pub const POLICY: &str = "service: gcra 30/1s burst 3";

/// The number of tasks in a process that shares nothing.
pub const TASKS: u32 = 8;

/// Calls `url` until the time is over, with `tasks` tasks. Returns how many requests were answered.
///
/// # Errors
///
/// If the store gives no decision, or the service cannot be reached.
pub async fn work<S: Store + 'static>(
    limiter: Limiter<S>,
    url: &str,
    tasks: u32,
    time: Duration,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let client = client(limiter);
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (client, url) = (client.clone(), url.to_owned());
        running.spawn(async move {
            let mut answered = 0;
            loop {
                let request = Request::get(&url).body(Body::default())?;
                match timeout_at(end, client.clone().oneshot(request)).await {
                    Err(_) => return Ok(answered),
                    Ok(Ok(response)) => answered += u64::from(response.status() == StatusCode::OK),
                    Ok(Err(error)) if error.kind() == ClientErrorKind::WaitTooLong => {}
                    Ok(Err(error)) => return Err(Box::<dyn Error + Send + Sync>::from(error)),
                }
            }
        });
    }
    let mut answered = 0;
    while let Some(task) = running.join_next().await {
        answered += task??;
    }
    Ok(answered)
}

/// The process of a fleet: [`work`] with one task, on a Redis that all share.
///
/// # Errors
///
/// As [`work`], and if an argument is not valid.
pub async fn process(
    redis: &str,
    prefix: &str,
    url: &str,
    millis: &str,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = RedisStore::builder().url(redis).prefix(prefix).build()?;
    store.ready().await?;
    let limiter = Limiter::new(store, [POLICY.parse()?])?;
    work(limiter, url, 1, Duration::from_millis(millis.parse()?)).await?;
    Ok(())
}
