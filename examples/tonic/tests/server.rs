//! Tests the behavior that the README describes, over a real socket and in virtual time.

use std::time::Duration;

use tidegate_example_tonic::serve;
use tidegate_memory::{ManualClock, MemoryStore};
use tokio::net::TcpListener;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

type Client = HealthClient<Channel>;

async fn server() -> (Client, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { serve(listener, store).await.map_err(|error| error.to_string()) });
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    (HealthClient::new(channel), clock)
}

fn shop() -> HealthCheckRequest {
    HealthCheckRequest { service: "shop".to_owned() }
}

async fn check(client: &mut Client) -> Result<Response<HealthCheckResponse>, Status> {
    client.check(shop()).await
}

#[tokio::test]
async fn calls_within_the_limit_are_served_and_tell_it() {
    let (mut client, _) = server().await;
    let response = check(&mut client).await.unwrap();
    assert_eq!(response.metadata().get("ratelimit").unwrap(), r#""ip";r=19;t=1"#);
    assert_eq!(response.into_inner().status(), tonic_health::ServingStatus::Serving.into());
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_told_so_as_grpc_does() {
    let (mut client, clock) = server().await;
    for _ in 0..20 {
        check(&mut client).await.unwrap();
    }
    let status = check(&mut client).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let metadata = status.metadata();
    assert_eq!(metadata.get("grpc-retry-pushback-ms").unwrap(), "100");
    assert_eq!(metadata.get("retry-after").unwrap(), "1");
    clock.advance(Duration::from_millis(100));
    check(&mut client).await.unwrap();
}

#[tokio::test]
async fn a_method_has_a_limit_of_its_own_too() {
    let (mut client, _) = server().await;
    for _ in 0..2 {
        client.watch(shop()).await.unwrap();
    }
    let status = client.watch(shop()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    // The refused stream was not charged to the limit `ip`: two streams and one check are charged,
    // so 17 of 20 remain.
    let response = check(&mut client).await.unwrap();
    assert_eq!(response.metadata().get("ratelimit").unwrap(), r#""ip";r=17;t=1"#);
}
