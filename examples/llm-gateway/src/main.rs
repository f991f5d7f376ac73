//! Serves the gateway. `MODEL_URL`, `REDIS_URL` and `LISTEN` are its settings: see README.md.

use std::env;
use std::error::Error;
use std::sync::Arc;

use tidegate_example_llm_gateway::{app, limits, model};
use tidegate_memory::MemoryStore;
use tidegate_redis::core::hold::Estimator;
use tidegate_redis::{Breaker, Limiter, RedisStore, Share, Store, StoreExt};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listen = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let model = match env::var("MODEL_URL") {
        Ok(url) => url,
        Err(_) => model::start().await?,
    };
    let store = store()?;
    store.ready().await?; // a wrong URL or password is an error here, and no outage later
    let limiter = Limiter::new(store, limits::policies()?)?;
    // 9 of 10 answers of a model are within its estimate. Of a model that is not known yet: 1,000 tokens.
    let app = app(limiter, model, Estimator::new(Share::new(9, 10)?, 1_000))?;

    let listener = TcpListener::bind(listen).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// In memory, or on a Redis. While that is down, requests are refused: a budget that each process keeps by itself is
/// none.
fn store() -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let Ok(url) = env::var("REDIS_URL") else { return Ok(Arc::new(MemoryStore::new())) };
    Ok(Arc::new(RedisStore::new(&url)?.breaker(Breaker::new()).or_fail_closed()))
}
