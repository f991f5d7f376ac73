//! Tests the wake-ups of calls that wait for slots: see `Store::until_turn`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate_redis::{
    Answer, Call, CallId, Charge, Credentials, Decision, Limiter, ManualClock, Operation, Policy,
    RedisStore, RedisStoreBuilder, Store, Timestamp,
};
use tidegate_test_servers::{Proxy, Redis, Sentinel, eventually};
use tokio::time::{Instant, timeout};

use crate::certificates::Certificates;
use crate::common::{fresh_prefix, key_with_prefix, policy, server};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);

/// A place that no script wakes.
const LAST: u64 = 1;

fn builder(url: &str) -> RedisStoreBuilder {
    RedisStore::builder().url(url).connect_timeout(PATIENCE).response_timeout(PATIENCE)
}

fn is_ready(turn: &mut Answer<'_, ()>) -> bool {
    Pin::new(turn).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Returns the wake-up of a call on the subject `s`, when the store is subscribed.
async fn turn<'a>(store: &'a RedisStore, policy: &Policy, place: u64) -> Answer<'a, ()> {
    let charges = [Charge::new(policy, "s")];
    let call = Call::new(Operation::Hold, &charges);
    let subscribed = async || store.until_turn(call.charges, place);
    eventually(PATIENCE, "the subscription", subscribed).await.unwrap()
}

/// Sends a message that wakes the call with the place [`LAST`]. Returns the number of connections
/// that receive the message.
async fn wake_last(redis: &Redis, channel: &str) -> String {
    let message = [&b"SPUBLISH"[..], channel.as_bytes(), &[0, 0, 0, 0, 0, 0, 1]];
    redis.command(&message).await.unwrap().text()
}

async fn subscribers(redis: &Redis) -> usize {
    redis.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).await.unwrap().text().lines().count()
}

/// Calls on the subject `s` of two policies, in virtual time.
struct Scene {
    store: RedisStore,
    clock: ManualClock,
    policies: [Policy; 2],
    channels: [String; 2],
}

impl Scene {
    async fn new(slots: u64) -> Self {
        let prefix = fresh_prefix();
        let policies =
            ["one", "two"].map(|name| policy(&format!("{name}: concurrent {slots} lease 1h")));
        let channels = [0, 1].map(|index| key_with_prefix(&prefix, &policies[index]));
        let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
        let store = builder(&server().await.socket_url()).prefix(prefix).clock(clock.clone());
        Self { store: store.build().unwrap(), clock, policies, channels }
    }

    async fn decide(&self, operation: Operation, id: &str, costs: [u64; 2]) -> Decision {
        let charges = [0, 1].map(|index| Charge::new(&self.policies[index], "s"));
        let charges = [0, 1].map(|index| charges[index].cost(costs[index]));
        let call = Call::new(operation, &charges);
        let call = match operation {
            Operation::Leave { .. } | Operation::Reset | Operation::Peek => call,
            _ => call.with_id(CallId::new(id, HOUR)),
        };
        self.store.decide(call).await.unwrap()
    }

    /// Makes a hold of slots of the first policy.
    async fn hold(&self, id: &str, cost: u64) {
        assert!(self.decide(Operation::Hold, id, [cost, 0]).await.is_allowed());
    }

    async fn settle(&self, id: &str) {
        let _ = self.decide(Operation::Settle, id, [0, 0]).await;
    }

    /// Sends a call that must wait for slots of the first policy, and returns its place.
    async fn wait(&self, id: &str, cost: u64) -> u64 {
        let decision = self.decide(Operation::HoldInTurn { place: 0 }, id, [cost, 0]).await;
        decision.place().unwrap().number
    }

    /// Sends a call again, and returns `true` if it is admitted.
    async fn again(&self, place: u64, id: &str, cost: u64) -> bool {
        self.decide(Operation::HoldInTurn { place }, id, [cost, 0]).await.is_allowed()
    }

    /// Executes `event`, and returns the indices of the places whose calls it wakes.
    async fn woken_by(&self, places: &[u64], event: impl AsyncFnOnce()) -> Vec<usize> {
        let mut turns = vec![];
        for place in places {
            turns.push(self.turn(*place).await);
        }
        let last = self.turn(LAST).await;
        event().await;
        // A connection receives all messages in order, so all other wake-ups have arrived before.
        for channel in &self.channels {
            assert_eq!(wake_last(server().await, channel).await, "1");
        }
        timeout(PATIENCE, last).await.unwrap();
        (0..places.len()).filter(|&index| is_ready(&mut turns[index])).collect()
    }

    async fn turn(&self, place: u64) -> Answer<'_, ()> {
        let charges = [0, 1].map(|index| Charge::new(&self.policies[index], "s"));
        let call = Call::new(Operation::Hold, &charges);
        let subscribed = async || self.store.until_turn(call.charges, place);
        eventually(PATIENCE, "the subscription", subscribed).await.unwrap()
    }
}

#[tokio::test]
async fn free_slots_wake_as_many_calls_as_can_take_them() {
    let scene = Scene::new(3).await;
    for id in ["1", "2", "3"] {
        scene.hold(id, 1).await;
    }
    let mut places = vec![];
    for number in 4..30 {
        places.push(scene.wait(&number.to_string(), 1).await);
    }
    let woken = scene.woken_by(&places, async || scene.settle("1").await).await;
    assert_eq!(woken, [0]);
    // Two slots are free, so the next settlement wakes two calls.
    let woken = scene.woken_by(&places, async || scene.settle("2").await).await;
    assert_eq!(woken, [0, 1]);
    // Only the settlement of a hold with slots wakes calls.
    let others = async || {
        let _ = scene.decide(Operation::Peek, "", [1, 0]).await;
        let _ = scene.decide(Operation::Extend, "3", [0, 0]).await;
        let _ = scene.decide(Operation::SettleSoFar, "3", [0, 0]).await;
    };
    assert_eq!(scene.woken_by(&places, others).await, []);
    // A reset frees all slots.
    let reset = async || drop(scene.decide(Operation::Reset, "", [1, 1]).await);
    assert_eq!(scene.woken_by(&places, reset).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_message_wakes_at_most_sixteen_calls() {
    let scene = Scene::new(20).await;
    scene.hold("all", 20).await;
    let mut places = vec![];
    for number in 0..18 {
        places.push(scene.wait(&number.to_string(), 1).await);
    }
    let woken = scene.woken_by(&places, async || scene.settle("all").await).await;
    assert_eq!(woken, (0..16).collect::<Vec<_>>());
    // Each admission wakes further calls, so that the last two are woken too.
    let again = async || assert!(scene.again(places[0], "0", 1).await);
    assert_eq!(scene.woken_by(&places, again).await, (1..17).collect::<Vec<_>>());
}

/// The first call needs two slots. When it has left the queue, the slot that was free before is for
/// the next call.
#[tokio::test]
async fn a_call_that_leaves_the_queue_wakes_the_next_call() {
    for is_admitted in [true, false] {
        let scene = Scene::new(3).await;
        scene.hold("1", 1).await;
        scene.hold("2", 2).await;
        let places = [scene.wait("3", 2).await, scene.wait("4", 1).await];
        let woken = scene.woken_by(&places, async || scene.settle("1").await).await;
        assert_eq!(woken, [0]);
        assert!(!scene.again(places[0], "3", 2).await && !scene.again(places[1], "4", 1).await);
        if is_admitted {
            let woken = scene.woken_by(&places, async || scene.settle("2").await).await;
            assert_eq!(woken, [0, 1]);
            let again = async || assert!(scene.again(places[0], "3", 2).await);
            assert_eq!(scene.woken_by(&places, again).await, [1]);
        } else {
            let leave = Operation::Leave { place: places[0] };
            let leave = async || drop(scene.decide(leave, "", [1, 1]).await);
            assert_eq!(scene.woken_by(&places, leave).await, [1]);
        }
        assert!(scene.again(places[1], "4", 1).await);
    }
}

#[tokio::test]
async fn a_call_whose_place_has_ended_is_not_woken() {
    let scene = Scene::new(1).await;
    scene.hold("1", 1).await;
    let places = [scene.wait("2", 1).await, scene.wait("3", 1).await];
    scene.clock.advance(4 * SECOND);
    assert!(!scene.again(places[1], "3", 1).await);
    scene.clock.advance(2 * SECOND);
    let woken = scene.woken_by(&places, async || scene.settle("1").await).await;
    assert_eq!(woken, [1]);
}

/// The first call waits for slots of both policies. While it lacks slots of the second policy only,
/// it does not hold back the other calls.
#[tokio::test]
async fn a_call_that_lacks_slots_of_another_policy_is_not_woken_and_wakes_the_next_call() {
    let scene = Scene::new(1).await;
    scene.hold("1", 1).await;
    assert!(scene.decide(Operation::Hold, "2", [0, 1]).await.is_allowed());
    let both = scene.decide(Operation::HoldInTurn { place: 0 }, "3", [1, 1]).await;
    let place = both.place().unwrap().number;
    let places = [place, scene.wait("4", 1).await, scene.wait("5", 1).await];
    let woken = scene.woken_by(&places, async || scene.settle("1").await).await;
    assert_eq!(woken, [0]);
    let in_turn = Operation::HoldInTurn { place };
    let again = async || assert!(scene.decide(in_turn, "3", [1, 1]).await.is_denied());
    assert_eq!(scene.woken_by(&places, again).await, [1]);
    assert!(scene.again(places[1], "4", 1).await);
    let woken = scene.woken_by(&places, async || scene.settle("4").await).await;
    assert_eq!(woken, [2]);
    assert!(scene.again(places[2], "5", 1).await);
    let woken = scene.woken_by(&places, async || scene.settle("2").await).await;
    assert_eq!(woken, [0]);
}

fn limiter(store: RedisStore) -> Limiter<RedisStore> {
    Limiter::new(store, [policy("slots: concurrent 1 lease 1h")]).unwrap()
}

/// Makes callers that wait in order, and settles their holds one after the other. Returns the
/// numbers of the callers in the order of their admissions.
async fn order_of_admissions(limiter: &Limiter<RedisStore>, callers: usize) -> Vec<usize> {
    let (sender, mut admitted) = tokio::sync::mpsc::unbounded_channel();
    let holder = limiter.subject("s").hold("holder", HOUR).await.unwrap().into_ticket().unwrap();
    for number in 0..callers {
        let (limiter, sender) = (limiter.clone(), sender.clone());
        let waiting = limiter.clone();
        tokio::spawn(async move {
            let id = number.to_string();
            let hold = limiter.subject("s").hold_within(&id, HOUR, HOUR).await.unwrap();
            let _ = sender.send((number, hold.into_ticket().unwrap()));
        });
        let waits = async || (waiting.waiters() == number + 1).then_some(());
        eventually(PATIENCE, "the caller to wait", waits).await.unwrap();
    }
    limiter.settle(&holder, []).await.unwrap();
    let mut order = vec![];
    for _ in 0..callers {
        let (number, ticket) = timeout(PATIENCE, admitted.recv()).await.unwrap().unwrap();
        order.push(number);
        limiter.settle(&ticket, []).await.unwrap();
    }
    order
}

/// The documented minimum of permissions of a user that uses slots.
const RULES: &str = "~tidegate:* +evalsha +eval +time +get +mget +set +psetex +getrange +setrange \
                     +exists +pttl +pexpire +unlink +llen +lindex +lset +ltrim +rpush +zadd +zrem \
                     +zscore +zrevrange +zrangebyscore +zrevrangebyscore +zremrangebyscore +zcount";

/// The documented permissions for wake-ups.
const WAKE_RULES: &str = "&tidegate:* +spublish +ssubscribe +sunsubscribe";

/// A user lacks the permission for all commands, for the channels, or for nothing.
#[tokio::test]
async fn callers_are_admitted_in_order_regardless_of_the_permissions_for_wake_ups() {
    for (more, is_subscribed) in [
        ("resetchannels".to_owned(), false),
        (WAKE_RULES.replace("&tidegate:*", "resetchannels"), false),
        (WAKE_RULES.replace("+spublish", ""), true),
        (WAKE_RULES.to_owned(), true),
    ] {
        let rules = format!("{RULES} {more}");
        let redis = Redis::builder().user("limiter", "secret", &rules).start().await.unwrap();
        let store = builder(&redis.url_for("limiter", "secret")).build().unwrap();
        let limiter = limiter(store);
        assert_eq!(order_of_admissions(&limiter, 5).await, [0, 1, 2, 3, 4], "{more}");
        // A holder renews its slots, and a repetition of its call renews them too.
        let hour = Duration::from_secs(3_600);
        let hold = async || limiter.subject("renewed").hold("id", hour).await.unwrap();
        let ticket = hold().await.into_ticket().unwrap();
        limiter.extend(&ticket, hour).await.unwrap();
        assert!(hold().await.ticket().is_some());
        let charges = [Charge::new(&limiter.policies()[0], "s")];
        let call = Call::new(Operation::Hold, &charges);
        if is_subscribed {
            drop(turn(limiter.store(), &limiter.policies()[0], LAST).await);
        }
        assert_eq!(limiter.store().until_turn(call.charges, LAST).is_some(), is_subscribed);
        if more == "resetchannels" {
            let grant = format!("ACL SETUSER limiter {WAKE_RULES}");
            let _ = redis.command(&grant.split(' ').collect::<Vec<_>>()).await.unwrap();
            drop(turn(limiter.store(), &limiter.policies()[0], LAST).await);
        }
    }
}

/// Each refused subscription is an entry in the ACL log of the server.
#[tokio::test]
async fn a_refused_subscription_is_repeated_only_after_seconds() {
    let redis = Redis::builder().user("limiter", "secret", RULES).start().await.unwrap();
    let store = builder(&redis.url_for("limiter", "secret")).build().unwrap();
    let policy = policy("concurrent 1 lease 1h");
    let charges = [Charge::new(&policy, "s")];
    let refused = async || {
        assert!(store.until_turn(Call::new(Operation::Hold, &charges).charges, LAST).is_none());
        let stats = redis.command(&["INFO", "commandstats"]).await.unwrap().text();
        let (_, stats) = stats.split_once("cmdstat_ssubscribe:")?;
        let (_, count) = stats.split_once("rejected_calls=")?;
        count.split(',').next()?.parse::<u64>().ok().filter(|count| *count > 0)
    };
    eventually(PATIENCE, "the first refusal", refused).await.unwrap();
    let mut count = 0;
    for _ in 0..200 {
        count = refused().await.unwrap();
    }
    assert!(count < 10, "{count}");
}

/// The pause before each connection doubles: 40, 80, 160 and 320 ms.
#[tokio::test]
async fn the_pauses_between_failed_connections_grow() {
    let redis = Redis::builder().user("limiter", "secret", RULES).start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await.unwrap();
    let url = format!("redis://limiter:wrong@127.0.0.1:{}", proxy.port());
    let (store, policy) = (builder(&url).build().unwrap(), policy("concurrent 1 lease 1h"));
    let charges = [Charge::new(&policy, "s")];
    let started = Instant::now();
    let fifth = async || {
        assert!(store.until_turn(Call::new(Operation::Hold, &charges).charges, LAST).is_none());
        (proxy.counts().connections >= 5).then_some(())
    };
    eventually(PATIENCE, "the fifth connection", fifth).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(600), "{:?}", started.elapsed());
}

/// Credentials that must be renewed are renewed by a new connection.
#[tokio::test]
async fn the_connection_ends_with_its_credentials() {
    let rules = format!("{RULES} {WAKE_RULES}");
    let redis = Redis::builder().user("limiter", "secret", &rules).start().await.unwrap();
    let credentials = || Credentials::new("limiter", "secret").renew_after(SECOND);
    let store = builder(&redis.url()).credentials(move || std::future::ready(Ok(credentials())));
    let (store, policy) = (store.build().unwrap(), policy("concurrent 1 lease 1h"));
    let ended = turn(&store, &policy, 7).await;
    timeout(PATIENCE, ended).await.unwrap();
    drop(turn(&store, &policy, 7).await);
}

/// The runtime of the first caller ends. The next caller subscribes on its own runtime.
#[test]
fn a_store_subscribes_again_if_its_runtime_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let setup = runtime();
    let redis = setup.block_on(Redis::start()).unwrap();
    let (store, policy) = (builder(&redis.url()).build().unwrap(), policy("concurrent 1 lease 1h"));
    drop(runtime().block_on(turn(&store, &policy, 7)));
    setup.block_on(async {
        let last = turn(&store, &policy, LAST).await;
        assert_eq!(wake_last(&redis, &key_with_prefix("tidegate", &policy)).await, "1");
        timeout(PATIENCE, last).await.unwrap();
    });
}

/// While the connection for wake-ups is lost or receives nothing, callers are admitted in order.
#[tokio::test]
async fn callers_are_admitted_in_order_while_wake_ups_are_lost() {
    let redis = Redis::start().await.unwrap();
    let limiter = limiter(builder(&redis.url()).build().unwrap());
    let cuts = async {
        loop {
            let _ = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let order = tokio::select! {
        order = order_of_admissions(&limiter, 5) => order,
        () = cuts => unreachable!(),
    };
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_lost_connection_wakes_all_calls_and_is_replaced() {
    let redis = Redis::start().await.unwrap();
    let (store, policy) = (builder(&redis.url()).build().unwrap(), policy("concurrent 1 lease 1h"));
    let channel = key_with_prefix("tidegate", &policy);
    let lost = turn(&store, &policy, 7).await;
    assert_eq!(subscribers(&redis).await, 1);
    let _ = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
    timeout(PATIENCE, lost).await.unwrap();
    let earlier = turn(&store, &policy, LAST).await;
    let (last, mut other) = (turn(&store, &policy, LAST).await, turn(&store, &policy, 7).await);
    drop(earlier);
    assert_eq!(wake_last(&redis, &channel).await, "1");
    timeout(PATIENCE, last).await.unwrap();
    assert!(!is_ready(&mut other));
}

/// The server has possibly changed if the store has made a new connection for its calls.
#[tokio::test]
async fn a_new_connection_for_calls_replaces_the_connection_for_wake_ups() {
    let redis = Redis::start().await.unwrap();
    let (store, policy) = (builder(&redis.url()).build().unwrap(), policy("concurrent 1 lease 1h"));
    store.now().await.unwrap();
    let old = turn(&store, &policy, 7).await;
    let _ = redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    store.now().await.unwrap();
    let charges = [Charge::new(&policy, "s")];
    assert!(store.until_turn(Call::new(Operation::Hold, &charges).charges, 8).is_none());
    timeout(PATIENCE, old).await.unwrap();
    drop(turn(&store, &policy, 8).await);
    let one = async || (subscribers(&redis).await == 1).then_some(());
    eventually(PATIENCE, "the old connection to end", one).await.unwrap();
}

#[tokio::test]
async fn the_connection_ends_with_the_store_and_when_no_call_has_waited_for_a_while() {
    let redis = Redis::start().await.unwrap();
    let policies = ["a: concurrent 1 lease 1h", "b: concurrent 1 lease 1h"].map(policy);
    let none = async || (subscribers(&redis).await == 0).then_some(());
    let store = builder(&redis.url()).build().unwrap();
    drop(turn(&store, &policies[0], 7).await);
    drop(store);
    eventually(PATIENCE, "the connection to end", none).await.unwrap();

    let store = builder(&redis.url()).build().unwrap();
    let channel = key_with_prefix("tidegate", &policies[1]);
    drop(turn(&store, &policies[0], 7).await);
    let turn_of_b = turn(&store, &policies[1], 7).await;
    // A channel without calls is removed, while another channel has calls.
    let number_of_channels = async || {
        let channels = redis.command(&["PUBSUB", "SHARDCHANNELS"]).await.unwrap();
        channels.list().to_vec()
    };
    let removed = async || {
        let channels = number_of_channels().await;
        (channels.len() == 1).then(|| channels[0].text())
    };
    assert_eq!(eventually(PATIENCE, "the channel to end", removed).await.unwrap(), channel);
    assert_eq!(subscribers(&redis).await, 1);
    drop(turn_of_b);
    eventually(PATIENCE, "the connection to end", none).await.unwrap();
    drop(turn(&store, &policies[1], 7).await);
}

/// The wake-ups come from the same server as the decisions, over TLS and after a failover.
#[tokio::test]
async fn a_sentinel_group_wakes_calls_after_a_failover() {
    let certificates = Certificates::new();
    let group = Sentinel::builder().node(certificates.server()).start().await.unwrap();
    let store = RedisStore::builder().url("rediss://the-primary");
    let store = store.sentinel(group.sentinel_urls(), group.master_name());
    let store = store.root_certificates(certificates.root()).build().unwrap();
    let policy = policy("concurrent 1 lease 1h");
    let channel = key_with_prefix("tidegate", &policy);
    for round in 0..2 {
        if round == 1 {
            group.failover().await.unwrap();
        }
        let now = async || store.now().await.ok();
        eventually(PATIENCE, "the primary to answer", now).await.unwrap();
        let woken = async || {
            let last = turn(&store, &policy, LAST).await;
            let receivers = wake_last(group.primary().await.ok()?, &channel).await;
            (receivers == "1" && timeout(SECOND, last).await.is_ok()).then_some(())
        };
        eventually(PATIENCE, "the wake-up", woken).await.unwrap();
    }
}
