//! Tests limits of slots: a request takes slots under an id, and its end frees them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use tidegate_core::{DenyCache, ErrorKind, ManualClock, Store, StoreExt, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, DecideError, Decider, HeaderNames};
use tidegate_server::envoy::request::RateLimitDescriptor;
use tidegate_server::envoy::service::Service;
use tidegate_server::store::{OnStoreError, StoreSettings, open};
use tidegate_test_servers::{Cluster, Redis};
use tidegate_testkit::faults::{Fault, Faults, FaultyStore};

use crate::scene::{
    START, Scene, block_on, decider, descriptor, hits, is_ok, is_over, limit, read, refund, request,
};

const CONFIG: &str = "domain: d
descriptors:
- key: customer
  policy: fixed-window 4/1d
  descriptors:
  - {key: id, policy: concurrent 2 lease 1m, hold_id: true}
- {key: id, policy: concurrent 3 lease 1m, hold_id: true}
- {key: counted, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: rate, policy: fixed-window 1/1d}
";

/// Returns the descriptor for a slot of customer `a`.
fn slot(id: &str) -> RateLimitDescriptor {
    descriptor(&[("customer", "a"), ("id", id)])
}

/// Returns the descriptor that frees the slot.
fn end(id: &str) -> RateLimitDescriptor {
    refund(&[("customer", "a"), ("id", id)], 1)
}

fn passes(scene: &Scene, descriptors: &[RateLimitDescriptor]) -> bool {
    is_ok(&scene.ask(&request("d", descriptors.to_vec())))
}

/// Returns the number of free slots of customer `a`.
fn free(scene: &Scene) -> u32 {
    block_on(free_now(scene))
}

async fn free_now(scene: &Scene) -> u32 {
    let look = hits(&[("customer", "a"), ("id", "look")], 0);
    let decided = scene.decider.decide(&request("d", vec![look])).await.unwrap();
    decided.response.statuses[0].limit_remaining
}

fn remaining(scene: &Scene, entries: &[(&str, &str)]) -> u32 {
    scene.status_of("d", hits(entries, 0)).limit_remaining
}

#[test]
fn a_request_takes_a_slot_and_its_end_frees_the_slot() {
    let scene = Scene::new(CONFIG);
    assert!(passes(&scene, &[slot("1")]) && passes(&scene, &[slot("2")]));
    let status = scene.status_of("d", slot("3"));
    assert!(is_over(&status));
    assert_eq!((&*limit(&status), status.limit_remaining), ("2/UNKNOWN", 0));
    assert_eq!(status.duration_until_reset, None);
    assert!(passes(&scene, &[descriptor(&[("customer", "b"), ("id", "3")])]), "another customer");
    let status = scene.status_of("d", end("1"));
    assert_eq!((is_over(&status), status.limit_remaining), (false, 1));
    let status = scene.status_of("d", slot("3"));
    assert_eq!((is_over(&status), status.limit_remaining), (false, 0));
    assert_eq!(status.duration_until_reset, None);
}

#[test]
fn an_end_of_a_request_without_slots_is_answered_and_frees_nothing() {
    let scene = Scene::new(CONFIG);
    assert!(passes(&scene, &[slot("1")]) && passes(&scene, &[slot("2")]));
    // Envoy also sends the end of a request that was refused.
    assert!(!passes(&scene, &[slot("3")]));
    assert!(passes(&scene, &[end("3")]) && passes(&scene, &[end("never seen")]));
    assert_eq!(free(&scene), 0);
    assert!(passes(&scene, &[end("1")]) && passes(&scene, &[end("1")]), "sent twice");
    assert_eq!(free(&scene), 1);
}

#[test]
fn slots_are_free_after_the_lease_even_if_the_end_is_lost() {
    let scene = Scene::new(CONFIG);
    assert!(passes(&scene, &[slot("1")]) && passes(&scene, &[slot("2")]));
    scene.advance(59);
    assert!(!passes(&scene, &[slot("3")]));
    scene.advance(1);
    assert!(passes(&scene, &[slot("3")]) && passes(&scene, &[slot("4")]));
    // The late end of a request frees no slot of another request.
    assert!(passes(&scene, &[end("1")]));
    assert!(!passes(&scene, &[slot("5")]));
    scene.advance(120);
    assert!(passes(&scene, &[end("1")]), "the store has forgotten the hold");
}

#[test]
fn a_repeated_request_shares_the_slot_of_the_first() {
    let scene = Scene::new(CONFIG);
    assert!(passes(&scene, &[slot("1")]) && passes(&scene, &[slot("2")]));
    assert!(passes(&scene, &[slot("1")]), "although no slot is free");
    assert!(passes(&scene, &[end("1")]));
    assert_eq!(free(&scene), 1);
    // A later request must not use the id again, because its slot would already be free.
    let error = scene.decided(&request("d", vec![slot("1")])).unwrap_err();
    assert!(matches!(error, DecideError::Request(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "an earlier request has used the id for the slots of the limit at limits.yaml:6:23; each \
         request needs its own id"
    );
    assert_eq!(free(&scene), 1);
}

#[test]
fn an_id_has_1_to_256_bytes_and_any_bytes_are_valid() {
    let scene = Scene::new(CONFIG);
    for (id, len) in [(String::new(), 0), ("x".repeat(257), 257)] {
        let error = scene.decided(&request("d", vec![slot(&id)])).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "the id for the slots of the limit at limits.yaml:6:23 has {len} bytes; it must \
                 have 1 to 256"
            )
        );
    }
    let mut any_bytes = slot("");
    any_bytes.entries[1].value = b"\xff|=*\0"[..].into();
    assert!(passes(&scene, &[slot(&"x".repeat(256))]) && passes(&scene, &[any_bytes]));
    assert_eq!(free(&scene), 0);
}

#[test]
fn hits_are_slots_and_no_hits_ask_for_a_free_slot() {
    let scene = Scene::new(CONFIG);
    let (entries, other) =
        (&[("customer", "a"), ("id", "1")][..], &[("customer", "a"), ("id", "2")]);
    assert!(is_over(&scene.status_of("d", hits(entries, 3))), "more than there are");
    assert!(is_over(&scene.status_of("d", hits(entries, u64::from(u32::MAX)))));
    assert!(!is_over(&scene.status_of("d", hits(entries, 0))));
    assert!(!is_over(&scene.status_of("d", hits(entries, 2))));
    assert!(is_over(&scene.status_of("d", hits(other, 0))));
    // The end frees all slots of the request, regardless of its hits.
    scene.status_of("d", refund(entries, 1));
    assert_eq!(free(&scene), 2);
}

#[test]
fn a_refusal_by_slots_charges_no_policy() {
    let scene = Scene::new(CONFIG);
    let customer = &[("customer", "a")][..];
    assert!(passes(&scene, &[slot("1"), descriptor(customer)]));
    assert!(passes(&scene, &[descriptor(customer), slot("2")]));
    for id in ["3", "4"] {
        let response = scene.ask(&request("d", vec![descriptor(customer), slot(id)]));
        assert!(!is_ok(&response));
        assert_eq!(response.statuses.iter().map(is_over).collect::<Vec<_>>(), [false, true]);
        assert_eq!(response.statuses[0].limit_remaining, 2);
    }
    assert!(passes(&scene, &[end("1")]));
    assert!(passes(&scene, &[slot("5"), descriptor(customer)]));
    assert_eq!(remaining(&scene, customer), 1);
    // A `rate_limit:` counts refused requests, as in envoyproxy/ratelimit.
    let counted = &[("counted", "")][..];
    assert!(!passes(&scene, &[slot("6"), descriptor(counted)]));
    assert_eq!(remaining(&scene, counted), 4);
}

#[test]
fn a_refusal_by_another_limit_keeps_no_slot() {
    let scene = Scene::new(CONFIG);
    let (rate, counted) = (&[("rate", "")][..], &[("counted", "")][..]);
    assert!(passes(&scene, &[descriptor(rate)]));
    assert!(passes(&scene, &[hits(counted, 5)]));
    for (other, id) in [(rate, "1"), (counted, "2")] {
        let response = scene.ask(&request("d", vec![slot(id), descriptor(other)]));
        assert!(!is_ok(&response));
        let [slots, other] = &response.statuses[..] else { panic!("{response:?}") };
        assert_eq!((is_over(slots), slots.limit_remaining), (false, 2));
        assert!(is_over(other));
        assert_eq!(free(&scene), 2);
        assert!(passes(&scene, &[end(id)]));
        assert_eq!(free(&scene), 2);
    }
}

#[test]
fn a_request_takes_slots_of_all_limits_or_of_none() {
    let scene = Scene::new(CONFIG);
    let all = |id: &str| descriptor(&[("id", id)]);
    let free_of_all = || remaining(&scene, &[("id", "look")]);
    assert!(passes(&scene, &[slot("1"), all("1")]));
    assert!(passes(&scene, &[all("2"), slot("2")]));
    assert!(!passes(&scene, &[all("3"), slot("3")]));
    assert_eq!((free(&scene), free_of_all()), (0, 1));
    // Each limit has its own hold, so a request can end them in any order.
    assert!(passes(&scene, &[end("1")]));
    assert_eq!((free(&scene), free_of_all()), (1, 1));
    assert!(passes(&scene, &[refund(&[("id", "1")], 1), refund(&[("id", "2")], 1), end("2")]));
    assert_eq!((free(&scene), free_of_all()), (2, 3));
}

#[test]
fn headers_of_slots_have_no_reset() {
    let mut behaviour = Behaviour::default();
    behaviour.headers = Some(HeaderNames::default());
    let scene = Scene::with(CONFIG, behaviour);
    let headers = |descriptors| {
        let headers = scene.ask(&request("d", descriptors)).response_headers_to_add.into_iter();
        headers.map(|header| format!("{}: {}", header.key, header.value)).collect::<Vec<_>>()
    };
    let slots = ["RateLimit-Limit: 2", "RateLimit-Remaining: 1"];
    assert_eq!(headers(vec![slot("1"), descriptor(&[("customer", "a")])]), slots);
    let rate = ["RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Reset: 86352"];
    assert_eq!(headers(vec![descriptor(&[("rate", "")]), slot("2")]), rate);
    assert_eq!(headers(vec![slot("3")]), ["RateLimit-Limit: 2", "RateLimit-Remaining: 0"]);
}

#[test]
fn statistics_have_the_subject_without_the_id() {
    let scene = Scene::new(CONFIG);
    let tally = |descriptors| scene.decided(&request("d", descriptors)).unwrap().tallies;
    let numbers = |tally: &tidegate_server::envoy::decide::Tally| {
        (tally.total, tally.within, tally.near, tally.over)
    };
    let first = tally(vec![slot("1")]);
    assert_eq!(first[0].key.to_string(), "d.customer.id");
    assert_eq!(numbers(&first[0]), (1, 1, 0, 0));
    assert_eq!(numbers(&tally(vec![slot("2")])[0]), (1, 1, 1, 0));
    assert_eq!(numbers(&tally(vec![slot("3")])[0]), (1, 0, 0, 1));
    assert_eq!(tally(vec![end("1")]), []);
    assert!(passes(&scene, &[descriptor(&[("rate", "")])]));
    assert_eq!(numbers(&tally(vec![slot("4"), descriptor(&[("rate", "")])])[0]), (1, 0, 0, 0));
    assert!(!format!("{first:?}").contains("=1"), "{first:?}");
}

#[test]
fn a_shadow_takes_slots_and_refuses_nothing() {
    let mut shadow = Behaviour::default();
    shadow.is_shadow = true;
    let shadow_mode = CONFIG.replace("hold_id: true", "hold_id: true, shadow_mode: true");
    let in_text = CONFIG.replace("lease 1m", "lease 1m shadow");
    for (config, behaviour) in
        [(CONFIG, shadow), (&*shadow_mode, Behaviour::default()), (&*in_text, Behaviour::default())]
    {
        let scene = Scene::with(config, behaviour);
        let over = |id| scene.decided(&request("d", vec![slot(id)])).unwrap().tallies[0].over;
        assert_eq!(["1", "2", "3"].map(over), [0, 0, 1]);
        // The shadow prevents neither the charge of a policy nor a slot of another limit.
        let others = [descriptor(&[("customer", "a")]), descriptor(&[("id", "4")])];
        assert!(passes(&scene, &[&[slot("4")][..], &others].concat()));
        assert_eq!(remaining(&scene, &[("customer", "a")]), 3);
        assert_eq!(remaining(&scene, &[("id", "look")]), 2);
        assert!(passes(&scene, &[end("3")]) && passes(&scene, &[end("1")]));
        assert_eq!(free(&scene), 1);
        scene.advance(60);
        assert_eq!(free(&scene), 2);
    }
}

#[test]
fn a_changed_limit_keeps_the_slots_in_use_until_their_requests_end() {
    let scene = Scene::new(CONFIG);
    assert!(passes(&scene, &[slot("1")]) && passes(&scene, &[slot("2")]));
    let config = CONFIG.replace("concurrent 2", "concurrent 3");
    scene.decider.set_config(read(&config).unwrap()).unwrap();
    assert_eq!(free(&scene), 1);
    assert!(passes(&scene, &[end("1")]));
    assert_eq!(free(&scene), 2);
    scene.advance(60);
    assert_eq!(free(&scene), 3);
}

type Counting = Arc<FaultyStore<MemoryStore<ManualClock>>>;

/// Returns a scene whose store counts its calls and fails by the plan.
fn faulty(
    plan: Vec<Fault>,
    cache: impl FnOnce(Decider, ManualClock) -> Decider,
) -> (Scene, Counting) {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let store = Arc::new(store.layer(Faults::new(plan)));
    let decider = Decider::new(Arc::clone(&store) as Arc<dyn Store>, Behaviour::default());
    let decider = cache(decider, clock.clone());
    decider.set_config(read(CONFIG).unwrap()).unwrap();
    (Scene { decider, clock }, store)
}

#[test]
fn a_refusal_by_slots_is_never_cached() {
    for only_policies in [true, false] {
        let (scene, _) = faulty(vec![], |decider, clock| {
            let cache = DenyCache::new().clock(clock);
            if only_policies {
                decider.with_deny_cache_for_policies(cache.max_age(Duration::from_secs(1)))
            } else {
                decider.with_deny_cache(&cache)
            }
        });
        let rate = descriptor(&[("rate", "")]);
        assert!(passes(&scene, &[slot("1")]) && passes(&scene, &[slot("2"), rate.clone()]));
        for _ in 0..3 {
            assert!(!passes(&scene, &[slot("3")]) && !passes(&scene, &[slot("3"), rate.clone()]));
            assert!(is_over(&scene.status_of("d", hits(&[("customer", "a"), ("id", "3")], 0))));
        }
        assert!(passes(&scene, &[end("1")]));
        assert_eq!(free(&scene), 1);
        assert!(passes(&scene, &[slot("3")]));
    }
}

#[test]
fn a_request_that_the_cache_refuses_takes_no_slot() {
    let (scene, store) =
        faulty(vec![], |decider, clock| decider.with_deny_cache(&DenyCache::new().clock(clock)));
    let rate = descriptor(&[("rate", "")]);
    assert!(passes(&scene, std::slice::from_ref(&rate)));
    // The hold, the acquire and the settlement.
    let before = store.as_layer().calls();
    assert!(!passes(&scene, &[slot("1"), rate.clone()]));
    assert_eq!(store.as_layer().calls() - before, 3);
    // A peek of the slots.
    let before = store.as_layer().calls();
    assert!(!passes(&scene, &[slot("2"), rate]));
    assert_eq!(store.as_layer().calls() - before, 1);
    assert_eq!(free(&scene), 2);
}

#[test]
fn a_store_that_fails_after_the_hold_frees_the_slots() {
    let unavailable = Fault::Before(ErrorKind::Unavailable);
    // The hold succeeds, and the acquire fails. In the second request, the second hold fails.
    let (scene, _) = faulty(
        vec![Fault::None, unavailable, Fault::None, Fault::None, unavailable],
        |decider, _| decider,
    );
    for (id, other) in [("1", descriptor(&[("rate", "")])), ("2", descriptor(&[("id", "2")]))] {
        let error = scene.decided(&request("d", vec![slot(id), other])).unwrap_err();
        assert!(matches!(error, DecideError::Store(_)), "{error:?}");
    }
    assert_eq!(free(&scene), 2);
    assert_eq!(remaining(&scene, &[("id", "look")]), 3);
}

/// Envoy cancels its call if the client disconnects before the answer of the service.
#[tokio::test]
async fn a_cancelled_request_frees_its_slots() {
    let (scene, _) = faulty(vec![], |decider, _| decider);
    let asked = request("d", vec![slot("1")]);
    // The store answers immediately, but the future must first let the connection check whether
    // Envoy has cancelled the call.
    assert!(scene.decider.decide(&asked).now_or_never().is_none());
    tokio::task::yield_now().await;
    assert_eq!(free_now(&scene).await, 2);

    // The answer to the hold, to the acquire, or to the settlement after a refusal is late.
    for fault in 0..3 {
        let mut plan = vec![Fault::None; fault];
        plan.push(Fault::Late);
        let (scene, store) = faulty(plan, |decider, _| decider);
        let asked = vec![slot("1"), hits(&[("rate", "")], if fault == 2 { 9 } else { 1 })];
        let asked = request("d", asked);
        let mut decision = Box::pin(scene.decider.decide(&asked));
        while store.as_layer().in_flight() == 0 {
            assert!((&mut decision).now_or_never().is_none(), "{fault}");
        }
        drop(decision);
        // A task settles the hold.
        tokio::task::yield_now().await;
        assert_eq!(store.as_layer().calls(), [2, 3, 4][fault]);
        assert_eq!(free_now(&scene).await, 2, "{fault}");
    }
}

#[test]
fn a_lost_answer_to_the_end_of_a_request_is_an_error() {
    let (scene, _) =
        faulty(vec![Fault::None, Fault::After(ErrorKind::Timeout)], |decider, _| decider);
    assert!(passes(&scene, &[slot("1")]));
    let error = scene.decided(&request("d", vec![end("1")])).unwrap_err();
    assert!(matches!(error, DecideError::Store(_)), "{error:?}");
    assert_eq!(free(&scene), 2);
}

#[derive(Debug, Clone)]
enum Step {
    /// A request of a customer. If the first flag is set, it also takes a slot of the domain. If
    /// the second flag is set, a rate refuses it.
    Begin(u8, bool, bool),
    End(prop::sample::Index),
    Repeat(prop::sample::Index),
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        4 => (0_u8..2, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(customer, all, rate)| Step::Begin(customer, all, rate)),
        3 => index().prop_map(Step::End),
        1 => index().prop_map(Step::Repeat),
        1 => (1_u64..40).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Compares the decisions with a model: a set of holds, each with the time of its lapse.
    #[test]
    fn requests_are_admitted_exactly_while_slots_are_free(steps in steps()) {
        let scene = Scene::new(CONFIG);
        prop_assert!(passes(&scene, &[descriptor(&[("rate", "")])]));
        let mut now = 0;
        // The times of the lapses by subject and id. The empty subject is the domain.
        let mut held: HashMap<(String, usize), u64> = HashMap::new();
        let mut begun: Vec<Vec<String>> = Vec::new();
        let descriptor_of = |subject: &str, id: usize| {
            let id = id.to_string();
            let entries = [("customer", subject), ("id", &*id)];
            descriptor(if subject.is_empty() { &entries[1..] } else { &entries })
        };
        for step in steps {
            let live = |held: &HashMap<(String, usize), u64>, subject: &str, now| {
                held.iter().filter(|((of, _), lapse)| of == subject && **lapse > now).count()
            };
            match step {
                Step::Advance(seconds) => {
                    scene.advance(seconds);
                    now += seconds;
                }
                Step::Begin(customer, all, rate) => {
                    let id = begun.len();
                    let mut subjects = vec![customer.to_string()];
                    subjects.extend(all.then(String::new));
                    let has_room = |subject: &String| {
                        live(&held, subject, now) < if subject.is_empty() { 3 } else { 2 }
                    };
                    let expected = subjects.iter().all(has_room) && !rate;
                    let mut asked: Vec<_> =
                        subjects.iter().map(|subject| descriptor_of(subject, id)).collect();
                    if rate {
                        asked.insert(0, descriptor(&[("rate", "")]));
                    }
                    prop_assert_eq!(passes(&scene, &asked), expected);
                    if expected {
                        held.extend(subjects.iter().map(|subject| ((subject.clone(), id), now + 60)));
                    }
                    begun.push(subjects);
                }
                Step::End(index) if !begun.is_empty() => {
                    let id = index.index(begun.len());
                    let asked = begun[id].iter().map(|subject| RateLimitDescriptor {
                        is_negative_hits: true,
                        ..descriptor_of(subject, id)
                    });
                    prop_assert!(passes(&scene, &asked.collect::<Vec<_>>()));
                    held.retain(|(_, of), _| *of != id);
                }
                Step::Repeat(index) if !begun.is_empty() => {
                    let id = index.index(begun.len());
                    let lapse = held.get(&(begun[id][0].clone(), id)).copied();
                    if lapse.is_some_and(|lapse| lapse > now) {
                        let asked = begun[id].iter().map(|subject| descriptor_of(subject, id));
                        prop_assert!(passes(&scene, &asked.collect::<Vec<_>>()));
                        for subject in &begun[id] {
                            held.insert((subject.clone(), id), now + 60);
                        }
                    }
                }
                Step::End(_) | Step::Repeat(_) => {}
            }
            for subject in ["0", "1", ""] {
                let entries = [("customer", subject), ("id", "look")];
                let entries = if subject.is_empty() { &entries[1..] } else { &entries };
                let limit = if subject.is_empty() { 3 } else { 2 };
                let used = usize::try_from(limit - remaining(&scene, entries)).unwrap();
                prop_assert_eq!(used, live(&held, subject, now), "{}", subject);
            }
        }
    }
}

/// Checks that two servers with one store decide like one server.
async fn decides(url: &str) {
    let settings = StoreSettings { timeout: Duration::from_secs(5), ..StoreSettings::default() };
    let server = || decider(open(url, &settings).unwrap(), CONFIG, Behaviour::default());
    let servers = [server(), server()];
    let ask = async |server: usize, descriptors| {
        servers[server].decide(&request("d", descriptors)).await.unwrap().response
    };
    let (rate, all) = (|| descriptor(&[("rate", "")]), |id| descriptor(&[("id", id)]));
    assert!(is_ok(&ask(0, vec![rate(), slot("1"), all("1")]).await));
    assert!(!is_ok(&ask(1, vec![rate(), slot("2"), all("2")]).await), "the rate refuses");
    assert!(is_ok(&ask(1, vec![slot("3"), all("3")]).await));
    assert!(!is_ok(&ask(0, vec![slot("4"), all("4")]).await), "a limit of slots refuses");
    assert!(is_ok(&ask(0, vec![all("5")]).await));
    assert!(is_ok(&ask(1, vec![end("1"), refund(&[("id", "1")], 1)]).await));
    let response = ask(0, vec![slot("6"), all("6")]).await;
    let remaining: Vec<u32> =
        response.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!((is_ok(&response), &*remaining), (true, &[0, 0][..]));
}

#[tokio::test]
async fn slots_are_shared_in_a_redis() {
    let redis = Redis::start().await.unwrap();
    decides(&redis.url()).await;
}

#[tokio::test]
async fn slots_are_shared_in_a_cluster() {
    let cluster = Cluster::start().await.unwrap();
    let hosts: Vec<String> = cluster.urls().iter().map(|url| url.replace("redis://", "")).collect();
    decides(&format!("redis-cluster://{}", hosts.join(","))).await;
}

#[tokio::test]
async fn a_server_without_its_store_shares_the_slots() {
    let redis = Redis::start().await.unwrap();
    let settings = StoreSettings { timeout: Duration::from_secs(5), ..StoreSettings::default() };
    let service = |on_error| {
        let decider = decider(open(&redis.url(), &settings).unwrap(), CONFIG, Behaviour::default());
        Service::new(decider.with_fallback(Arc::new(MemoryStore::new()))).on_store_error(on_error)
    };
    let passes = async |service: &Service, descriptors| {
        is_ok(&service.should_rate_limit(&request("d", descriptors)).await.unwrap())
    };
    let [allow, deny] = [OnStoreError::Allow, OnStoreError::Deny].map(service);
    let [half, third] =
        ["1/2", "1/3"].map(|share| service(OnStoreError::Share(share.parse().unwrap())));
    assert!(passes(&half, vec![slot("before")]).await);
    redis.kill().await.unwrap();
    assert!(passes(&allow, vec![slot("1")]).await && passes(&allow, vec![slot("1")]).await);
    assert!(!passes(&deny, vec![slot("1")]).await);
    // One of two slots, and the end of a request that has its slot in Redis.
    assert!(passes(&half, vec![end("before")]).await);
    for id in ["1", "2"] {
        assert!(passes(&half, vec![slot(id)]).await);
        assert!(!passes(&half, vec![slot("3")]).await);
        assert!(passes(&half, vec![end(id)]).await);
    }
    // A third of two slots is rounded down to none.
    assert!(!passes(&third, vec![slot("1")]).await);
    assert!(passes(&third, vec![end("1")]).await);
}

#[test]
fn limits_of_slots_are_listed_and_not_leased() {
    let config = read(CONFIG).unwrap().lease_all();
    let list: Vec<_> = config.list().into_iter().map(|limit| (limit.key, limit.limit)).collect();
    assert_eq!(list[2], ("d.customer.id".into(), "policy: concurrent 2 lease 1m".into()));
    let line = "d.id: policy=policy: concurrent 3 lease 1m, shadow_mode: false";
    assert!(config.dump().contains(line), "{}", config.dump());
}
