//! A gRPC server with limits by address for each method.

use std::error::Error;

use tidegate_http::server::{GrpcStatus, Limit, RateLimitLayer};
use tidegate_http::subject::ClientAddress;
use tidegate_redis::{Limiter, Store};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic_health::ServingStatus;

/// Returns a layer with the limits. The layer answers a refused call with a gRPC status.
///
/// # Errors
///
/// Returns an error if the store does not support a policy.
pub fn limits<S: Store>(store: S) -> Result<RateLimitLayer<S, GrpcStatus>, Box<dyn Error>> {
    let policies =
        ["ip: token-bucket 10/1s burst 20".parse()?, "watch: token-bucket 1/1s burst 2".parse()?];
    let limiter = Limiter::new(store, policies)?;
    let client = ClientAddress::peer()
        .peer_by(|extensions| Some(extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    let limits = [
        Limit::by("ip", client.clone()),
        // In gRPC, the path of a request consists of its service and its method.
        Limit::by("watch", client)
            .only(|request| request.uri.path() == "/grpc.health.v1.Health/Watch"),
    ];
    Ok(RateLimitLayer::new(limiter, limits)?.respond(GrpcStatus))
}

/// Serves the health service until the returned future is dropped.
///
/// # Errors
///
/// Returns an error if the store does not support a policy, or if the server fails.
pub async fn serve(
    listener: TcpListener,
    store: impl Store + 'static,
) -> Result<(), Box<dyn Error>> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", ServingStatus::Serving).await;
    let server = Server::builder().layer(limits(store)?).add_service(health);
    server.serve_with_incoming(TcpIncoming::from(listener)).await?;
    Ok(())
}
