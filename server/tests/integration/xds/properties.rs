//! Tests random sequences of responses and broken streams.

use proptest::prelude::*;

use super::*;
use crate::scene::block_on;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Valid limits with this number.
    Good(u32),
    Empty,
    Bad,
    Garbage,
    OtherType,
    /// The stream ends. The client may or may not have read the last response.
    End,
    /// The stream ends with an error.
    Fail,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..1_000_u32).prop_map(Step::Good),
        1 => Just(Step::Empty),
        1 => Just(Step::Bad),
        1 => Just(Step::Garbage),
        1 => Just(Step::OtherType),
        1 => Just(Step::End),
        1 => Just(Step::Fail),
    ];
    prop::collection::vec(step, 1..12)
}

/// Checks that the limits in force are the limits of the last valid response, and that each
/// response is answered once, in order.
async fn hold(steps: &[Step]) {
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    let mut in_force: Option<String> = None;
    let mut version = String::new();
    for (index, step) in steps.iter().enumerate() {
        // The versions repeat after three steps, as they can after a restart of the management
        // server.
        let (next, nonce) = ((index % 3).to_string(), format!("n{index}"));
        let good = |resources: &[RateLimitConfig]| {
            response(&next, &nonce, resources.iter().map(packed).collect())
        };
        match step {
            Step::Good(n) => {
                peer.send_response(good(&[per_day(*n)]));
                peer.accepted(&next, &nonce).await;
                (in_force, version) = (Some(format!("{n}/DAY")), next);
            }
            Step::Empty => {
                peer.send_response(good(&[]));
                peer.accepted(&next, &nonce).await;
                (in_force, version) = (Some(String::new()), next);
            }
            Step::Bad => {
                peer.send_response(good(&[
                    per_day(7),
                    RateLimitConfig { domain: "e".into(), ..bad() },
                ]));
                assert_eq!(peer.refused(&version, &nonce).await, BAD);
            }
            Step::Garbage => {
                let garbage = Any { type_url: TYPE_URL.into(), value: vec![0xff; 9] };
                peer.send_response(response(&next, &nonce, vec![garbage]));
                peer.refused(&version, &nonce).await;
            }
            Step::OtherType => {
                peer.send_response(DiscoveryResponse {
                    type_url: "other".into(),
                    ..good(&[per_day(7)])
                });
            }
            Step::End | Step::Fail => {
                if let Step::Fail = step {
                    peer.responses.send(Err(Status::internal("on purpose"))).unwrap();
                }
                drop(peer);
                peer = server.stream().await.0;
                version = in_force.as_ref().map_or("", |_| EARLIER).to_owned();
            }
        }
        match &in_force {
            Some(limit) => assert_eq!(client.limit().await, *limit, "after step {index}"),
            None => assert!(!client.service.has_limits()),
        }
    }
    // The test has read all previous answers, so the next answer belongs to the response `last`.
    peer.send("last", "last", &[per_day(1_000)]);
    peer.accepted("last", "last").await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_limits_in_force_are_those_of_the_last_good_response(steps in steps()) {
        block_on(hold(&steps));
    }
}
