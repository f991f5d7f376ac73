//! Tests limits that change while the server decides requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::scene::is_ok;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_snapshots_change_and_streams_end() {
    const SNAPSHOTS: u32 = 60;
    let mut server = Management::start().await;
    let client = Client::start(server.settings());
    let (mut peer, _) = server.stream().await;
    // The limit of snapshot `n` is 1,000,000 + n, so that no request is refused and each answer
    // shows its snapshot.
    let snapshot = |n: u32| per_day(1_000_000 + n);
    peer.send("0", "n0", &[snapshot(0)]);
    peer.accepted("0", "n0").await;

    let accepted = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(AtomicBool::new(false));
    let requests: Vec<_> = (0..4)
        .map(|_| {
            let (service, accepted, ends) =
                (Arc::clone(&client.service), Arc::clone(&accepted), Arc::clone(&ends));
            tokio::spawn(async move {
                let mut decided = 0_u64;
                while !ends.load(Ordering::Acquire) {
                    let oldest = accepted.load(Ordering::Acquire);
                    let asked = request("d", vec![descriptor(&[("a", "")])]);
                    let answer = service.should_rate_limit(&asked).await.unwrap();
                    assert!(is_ok(&answer));
                    let limit = answer.statuses[0].current_limit.as_ref().unwrap();
                    let snapshot = u64::from(limit.requests_per_unit - 1_000_000);
                    assert!(snapshot >= oldest, "{snapshot} after {oldest}");
                    decided += 1;
                    tokio::task::yield_now().await;
                }
                decided
            })
        })
        .collect();

    for n in 1..=SNAPSHOTS {
        let (version, nonce) = (n.to_string(), format!("n{n}"));
        if n % 20 == 0 {
            drop(peer);
            peer = server.stream().await.0;
        }
        peer.send(&version, &nonce, &[snapshot(n)]);
        peer.accepted(&version, &nonce).await;
        accepted.store(n.into(), Ordering::Release);
        if n % 20 == 10 {
            peer.send("bad", "bad", &[bad()]);
            peer.refused(&version, "bad").await;
        }
    }
    ends.store(true, Ordering::Release);
    let mut decided = 0;
    for task in requests {
        decided += within(task).await.unwrap();
    }
    // Each request was counted once, regardless of the limits in force.
    let asked = request("d", vec![descriptor(&[("a", "")])]);
    let answer = client.service.should_rate_limit(&asked).await.unwrap();
    let used = 1_000_000 + SNAPSHOTS - answer.statuses[0].limit_remaining;
    assert_eq!(u64::from(used), decided + 1);
}
