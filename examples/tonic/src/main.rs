//! Serves the health service. README.md describes its environment variables `REDIS_URL` and
//! `LISTEN`.

use std::env;
use std::error::Error;
use std::sync::Arc;

use tidegate_example_tonic::serve;
use tidegate_memory::MemoryStore;
use tidegate_redis::{Breaker, RedisStore, Store, StoreExt};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store: Arc<dyn Store> = match env::var("REDIS_URL") {
        Err(_) => Arc::new(MemoryStore::new()),
        Ok(url) => Arc::new(RedisStore::new(&url)?.breaker(Breaker::new()).or_fail_open()),
    };
    store.ready().await?; // a wrong URL or password ends the program here
    let listen = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:50051".to_owned());
    let listener = TcpListener::bind(listen).await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener, store).await
}
