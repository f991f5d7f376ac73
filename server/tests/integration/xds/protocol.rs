//! Tests the protocol: subscriptions, acknowledgements, refusals and ignored messages.

use tidegate_server::limits::LoadError;
use tidegate_server::limits::xds::Header;

use super::*;

#[tokio::test]
async fn a_subscription_names_the_node_and_the_type() {
    let mut server = Management::start().await;
    let mut settings = server.settings();
    settings.node_id = "envoy-ratelimit".into();
    settings.node_metadata = vec![("zone".into(), "b".into())];
    settings.headers = vec![Header::new("X-Token", "S3CRET").unwrap()];
    assert!(!format!("{settings:?}").contains("S3CRET"));
    let _client = Client::start(settings);
    let (peer, request) = server.stream().await;
    assert_eq!(request.type_url, TYPE_URL);
    assert!(request.resource_names.is_empty(), "all resources");
    assert_eq!((&*request.version_info, &*request.response_nonce), ("", ""));
    let node = request.node.unwrap();
    assert_eq!(node.id, "envoy-ratelimit");
    let metadata = node.metadata.unwrap().fields;
    assert_eq!(format!("{:?}", metadata["zone"].kind), r#"Some(StringValue("b"))"#);
    assert_eq!(peer.metadata.get("x-token").unwrap(), "S3CRET");
}

#[tokio::test]
async fn a_response_is_answered_by_its_nonce_and_the_version_in_force() {
    let mut server = Management::start().await;
    let mut client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    // No version is in force yet, so the version in the refusal is empty.
    peer.send("1", "n1", &[bad()]);
    assert_eq!(peer.refused("", "n1").await, BAD);
    peer.send("2", "n2", &[per_day(2)]);
    peer.accepted("2", "n2").await;
    peer.send("3", "n3", &[bad()]);
    assert_eq!(peer.refused("2", "n3").await, BAD);
    // The management server repeats a version and a nonce with other limits, which the client
    // loads.
    peer.send("2", "n2", &[per_day(3)]);
    peer.accepted("2", "n2").await;
    assert_eq!(client.limit().await, "3/DAY");

    assert!(matches!(client.event().await, Event::Connected));
    assert!(matches!(client.event().await, Event::Refused(LoadError::Config(_))));
    assert!(matches!(client.event().await, Event::Loaded));
    assert!(matches!(client.event().await, Event::Refused(LoadError::Config(_))));
    assert!(matches!(client.event().await, Event::Loaded));
}

#[tokio::test]
async fn responses_that_were_sent_together_are_answered_one_by_one_in_order() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(1)]);
    peer.send("2", "n2", &[bad()]);
    peer.send("3", "n3", &[per_day(3)]);
    peer.accepted("1", "n1").await;
    peer.refused("1", "n2").await;
    peer.accepted("3", "n3").await;
    assert_eq!(client.limit().await, "3/DAY");
}

#[tokio::test]
async fn responses_of_other_types_are_ignored() {
    let mut server = Management::start().await;
    let mut client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(1)]);
    let other = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    for type_url in [other, ""] {
        let response = response("9", "n9", vec![packed(&per_day(9))]);
        peer.send_response(DiscoveryResponse { type_url: type_url.into(), ..response });
    }
    peer.send("2", "n2", &[bad()]);
    peer.accepted("1", "n1").await;
    // The client ignores responses of other types, so their version 9 is not in force.
    peer.refused("1", "n2").await;
    assert_eq!(client.limit().await, "1/DAY");
    assert!(matches!(client.event().await, Event::Connected));
    assert!(matches!(client.event().await, Event::Loaded));
    assert!(matches!(client.event().await, Event::Ignored { type_url } if type_url == other));
}

#[tokio::test]
async fn what_is_not_a_resource_of_limits_is_refused() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[per_day(1)]);
    peer.accepted("1", "n1").await;

    let other = Any { type_url: "type.googleapis.com/a.B".into(), ..packed(&per_day(2)) };
    let garbage = Any { type_url: TYPE_URL.into(), value: b"\x0a\xff garbage".to_vec() };
    let nameless = RateLimitConfig { name: String::new(), ..bad() };
    for (resource, reason) in [
        (
            other,
            "resource 2: its type is 'type.googleapis.com/a.B', not 'type.googleapis.com/ratelimit.",
        ),
        (garbage, "resource 2: failed to decode Protobuf message"),
        (packed(&nameless), "resource 2: descriptor has empty key"),
    ] {
        let first = packed(&config("e", vec![]));
        peer.send_response(response("2", "n2", vec![first, resource]));
        let error = peer.refused("1", "n2").await;
        assert!(error.starts_with(reason), "{error}");
        assert_eq!(client.limit().await, "1/DAY");
    }
}

#[tokio::test]
async fn fields_that_are_not_known_are_left_out() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    let mut resource = packed(&per_day(1));
    // The unknown field has the number 15 and two bytes.
    resource.value.extend(b"\x7a\x02hi");
    peer.send_response(response("1", "n1", vec![resource]));
    peer.accepted("1", "n1").await;
    assert_eq!(client.limit().await, "1/DAY");
}

#[tokio::test]
async fn a_new_stream_begins_with_no_version_of_an_earlier_one() {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    peer.send("1", "n1", &[bad()]);
    peer.refused("", "n1").await;
    drop(peer);
    // The client has received no valid limits yet, so it sends an empty version on the new stream.
    let (mut peer, request) = server.stream().await;
    assert_eq!((&*request.version_info, &*request.response_nonce), ("", ""));
    peer.send("5", "n1", &[per_day(1)]);
    peer.accepted("5", "n1").await;
    drop(peer);
    // On a new stream, version 5 would be wrong: a restarted management server counts its versions
    // from 1, and can use 5 for other limits. An empty version would be wrong too: go-control-plane
    // without limits would not respond to it.
    for n in 2..=3 {
        let (mut peer, request) = server.stream().await;
        assert_eq!((&*request.version_info, &*request.response_nonce), (EARLIER, ""));
        assert_eq!(client.limit().await, format!("{}/DAY", n - 1));
        peer.send("6", "n1", &[bad()]);
        peer.refused(EARLIER, "n1").await;
        peer.send("5", "n2", &[per_day(n)]);
        peer.accepted("5", "n2").await;
        assert_eq!(client.limit().await, format!("{n}/DAY"));
    }
    // The client sends the version `EARLIER` also after a stream without responses.
    drop(server.stream().await);
    let (mut peer, request) = server.stream().await;
    assert_eq!(request.version_info, EARLIER);
    // The version of go-control-plane without limits is empty.
    peer.send("", "n1", &[]);
    peer.accepted("", "n1").await;
    assert_eq!(client.limit().await, "");
}

#[tokio::test]
async fn the_text_of_a_refusal_is_short_whatever_was_sent() {
    let mut server = Management::start().await;
    let _client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    let long = "x\n".repeat(100_000);
    let name = RateLimitConfig { name: long.clone(), ..bad() };
    let twice = config("d", vec![limited(&long, 1, DAY), limited(&long, 1, DAY)]);
    let other = Any { type_url: long, value: vec![] };
    for resource in [packed(&name), packed(&twice), other] {
        peer.send_response(response("1", "n1", vec![resource]));
        let error = peer.refused("", "n1").await;
        assert!(error.len() < 1_000 && !error.contains('\n'), "{} bytes", error.len());
    }
}
