//! Serves the shop. README.md describes its environment variables `REDIS_URL`, `TRUSTED_PROXIES`
//! and `LISTEN`.

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_example_axum::app;
use tidegate_http::subject::ClientAddress;
use tidegate_memory::MemoryStore;
use tidegate_redis::{Breaker, RedisStore, Share, Store, StoreExt};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let listen = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let store = store()?;
    store.ready().await?; // a wrong URL or password ends the program here
    let app = app(store, client()?, metrics)?;

    let listener = TcpListener::bind(listen).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Returns a memory store, or a store on Redis. While Redis is down, the store on Redis enforces a
/// third of each limit in the memory of this process.
fn store() -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let Ok(url) = env::var("REDIS_URL") else {
        return Ok(Arc::new(MemoryStore::new().observed()));
    };
    let store = RedisStore::new(&url)?
        .breaker(Breaker::new())
        .or_fall_back_to(MemoryStore::new(), Share::new(1, 3)?)
        .observed();
    Ok(Arc::new(store))
}

fn client() -> Result<ClientAddress, Box<dyn Error>> {
    let Ok(networks) = env::var("TRUSTED_PROXIES") else {
        return Ok(ClientAddress::peer());
    };
    let client = ClientAddress::x_forwarded_for(networks.split(',').map(str::trim));
    Ok(client.map_err(|error| error.with_context("TRUSTED_PROXIES"))?)
}
