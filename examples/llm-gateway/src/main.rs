//! Serves the gateway. README.md describes its environment variables `MODEL_URL`, `REDIS_URL`,
//! `LISTEN` and `GRACE_SECONDS`.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate_example_llm_gateway::serve::{serve, stop_signal};
use tidegate_example_llm_gateway::{app, limits, model};
use tidegate_memory::MemoryStore;
use tidegate_redis::{Breaker, Estimator, Limiter, RedisStore, Share, Store, StoreExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// The maximum time that the program waits at its end, until the holds of all cut answers are
/// settled.
const SETTLE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stop = stop_signal()?;
    let grace = grace()?;
    let listen = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let model = match env::var("MODEL_URL") {
        Ok(url) => url,
        Err(_) => model::start().await?,
    };
    let store = store()?;
    store.ready().await?; // a wrong URL or password ends the program here
    let limiter = Limiter::new(store, limits::policies()?)?;
    // The estimator learns from the answers of each model. Its estimate for a model covers 9 of 10
    // answers. For an unknown model, the estimate is 1,000 tokens.
    let app = app(limiter.clone(), model, Estimator::new(Share::new(9, 10)?, 1_000))?;

    let listener = TcpListener::bind(listen).await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener, app, stop, grace).await;
    // Tasks settle the holds of the answers that were cut. The program waits for these tasks,
    // because they would end with the program.
    if timeout(SETTLE, limiter.guards_settled()).await.is_err() {
        return Err(
            "some estimates stay charged until they lapse; the store did not settle them".into()
        );
    }
    Ok(())
}

/// Returns the time after SIGTERM within which open answers must end.
fn grace() -> Result<Duration, String> {
    let Ok(seconds) = env::var("GRACE_SECONDS") else { return Ok(Duration::from_secs(15)) };
    let parsed = seconds.parse().map(Duration::from_secs);
    parsed.map_err(|_| format!("GRACE_SECONDS is `{seconds}`; it must be a whole number"))
}

/// Returns a memory store, or a store on Redis. While Redis is down, the store on Redis refuses all
/// requests. With a fallback in memory, each process would have its own budget, and nothing would
/// bound the total spend.
fn store() -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let Ok(url) = env::var("REDIS_URL") else { return Ok(Arc::new(MemoryStore::new())) };
    Ok(Arc::new(RedisStore::new(&url)?.breaker(Breaker::new()).or_fail_closed()))
}
