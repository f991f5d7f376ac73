//! Tasks that call the service as often as the limits permit.

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

use http::{Request, StatusCode};
use reqwest::Body;
use tidegate_http::client::{ClientErrorKind, ThrottleLayer};
use tidegate_redis::core::layers::Layer as StoreLayer;
use tidegate_redis::{
    Answer, Call, Decision, Error as StoreError, Limiter, RedisStore, Store, StoreExt,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, ServiceExt, service_fn};

use crate::client::reqwest_service;
use crate::service::{ANNOUNCEMENT, CHECKED, RECEIVED, now_micros};

/// The limit that all tasks of all processes share.
pub const POLICY: &str = "service: gcra 30/1s burst 3";

/// The number of tasks in a process that runs alone.
pub const TASKS: u32 = 8;

tokio::task_local! {
    /// The time at which this task last called its store, in microseconds since 1970.
    static LAST_CHECK: Cell<u64>;
}

/// A store layer that records the time of each call to the store. An application does not need this
/// layer. The stub service needs the times to find requests that should not have been sent.
#[derive(Debug)]
pub struct RecordCheck;

impl RecordCheck {
    fn record(&self) {
        // The client layer writes an announced block in its own task. `try_with` fails in this
        // task, which has no `LAST_CHECK`.
        let _ = LAST_CHECK.try_with(|last| last.set(now_micros()));
    }
}

impl<S: Store> StoreLayer<S> for RecordCheck {
    const MAY_WAIT: bool = false;

    fn decide<'a>(
        &'a self,
        inner: &'a S,
        call: Call<'a>,
    ) -> Answer<'a, Result<Decision, StoreError>> {
        self.record();
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, StoreError>>> {
        self.record();
        inner.decide_many(calls)
    }
}

/// Calls `url` with `tasks` tasks until the time is over. Returns the number of requests that were
/// answered.
///
/// # Errors
///
/// Returns an error if the store fails, or if the service cannot be reached.
pub async fn work<S: Store + 'static>(
    store: S,
    url: &str,
    tasks: u32,
    time: Duration,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let client = reqwest_service();
    let send = service_fn(move |mut request: Request<Body>| {
        let checked = LAST_CHECK.with(Cell::get);
        request.headers_mut().insert(CHECKED, checked.into());
        client.clone().oneshot(request)
    });
    // The layer retries no request, so that this function sees the response with each announcement.
    let limiter = Limiter::new(store.layer(RecordCheck), [POLICY.parse()?])?;
    let client = ThrottleLayer::new(limiter).max_wait(Duration::from_secs(10)).layer(send);
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (client, url) = (client.clone(), url.to_owned());
        running.spawn(LAST_CHECK.scope(Cell::new(0), async move {
            let (mut answered, mut received) = (0, None);
            loop {
                let mut request = Request::get(&url);
                if let Some(received) = &received {
                    request = request.header(RECEIVED, received);
                }
                let request = request.body(Body::default())?;
                match timeout_at(end, client.clone().oneshot(request)).await {
                    Err(_) => return Ok(answered),
                    Ok(Ok(response)) => {
                        answered += u64::from(response.status() == StatusCode::OK);
                        let number = response.headers().get(ANNOUNCEMENT);
                        let number = number.and_then(|number| number.to_str().ok());
                        received = number.map(|number| format!("{number}@{}", now_micros()));
                    }
                    Ok(Err(error)) if error.kind() == ClientErrorKind::WaitTooLong => {}
                    Ok(Err(error)) => return Err(Box::<dyn Error + Send + Sync>::from(error)),
                }
            }
        }));
    }
    let mut answered = 0;
    while let Some(task) = running.join_next().await {
        answered += task??;
    }
    Ok(answered)
}

/// Runs [`work`] with one task on a shared Redis. Each of the eight processes calls this function.
///
/// # Errors
///
/// Returns the errors of [`work`], and an error if an argument is invalid.
pub async fn process(
    redis: &str,
    prefix: &str,
    url: &str,
    millis: &str,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = RedisStore::builder().url(redis).prefix(prefix).build()?;
    store.ready().await?;
    work(store, url, 1, Duration::from_millis(millis.parse()?)).await?;
    Ok(())
}
