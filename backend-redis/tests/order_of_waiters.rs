//! Tests that 1,000 callers in ten processes get slots in the order in which the server received
//! their calls.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod processes;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_redis::core::layers::{Layer, Layered};
use tidegate_redis::protocol::Keys;
use tidegate_redis::{
    Answer, Call, Charge, Decision, Error, Limiter, Policy, RedisStore, Store, StoreExt,
};
use tidegate_test_servers::{Redis, eventually};

use processes::Process;

const PROCESSES: usize = 10;
const CALLERS: usize = 100;
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// A layer that notes the place of each caller by the caller's id.
#[derive(Debug, Default)]
struct Places(Mutex<BTreeMap<Vec<u8>, u64>>);

impl<S: Store> Layer<S> for Places {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        inner.decide(call).inspect(move |answer| {
            let place = answer.as_ref().ok().and_then(Decision::place);
            if let (Some(place), Some(id)) = (place, call.id) {
                self.0.lock().unwrap().insert(id.id.to_vec(), place.number);
            }
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        inner.decide_many(calls)
    }
}

fn policy(slots: &str) -> Policy {
    format!("slots{slots}: concurrent {slots} lease 1h").parse().unwrap()
}

fn limiter(url: &str, slots: &str) -> Limiter<Arc<Layered<Places, RedisStore>>> {
    let builder = RedisStore::builder().url(url).connect_timeout(MINUTE);
    let store = builder.response_timeout(MINUTE).build().unwrap().layer(Places::default());
    Limiter::new(Arc::new(store), [policy(slots)]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_callers_in_ten_processes_are_admitted_in_order() {
    let redis = Redis::start().await.unwrap();
    for slots in ["1", "4"] {
        let limiter = limiter(&redis.socket_url(), slots);
        let hold = limiter.subject("s").cost(slots.parse().unwrap()).hold(slots, HOUR);
        let ticket = hold.await.unwrap().into_ticket().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ledger = |number: usize| folder.path().join(number.to_string());
        let mut processes: Vec<Process> = (0..PROCESSES)
            .map(|number| {
                Process::start("process_with_callers", |command| {
                    command
                        .env("ORDER_URL", redis.socket_url())
                        .env("ORDER_SLOTS", slots)
                        .env("ORDER_LEDGER", ledger(number))
                })
            })
            .collect();
        let policy = policy(slots);
        let key = Keys::new("tidegate").key(&Charge::new(&policy, "s"));
        let all_wait = async || {
            let waiting = redis.command(&[b"ZCOUNT", &key[..], b"(0", b"(1"]).await.unwrap();
            (waiting.text() == (PROCESSES * CALLERS).to_string()).then_some(())
        };
        eventually(MINUTE, "all callers to wait", all_wait).await.unwrap();

        let started = Instant::now();
        limiter.settle(&ticket, []).await.unwrap();
        for process in &mut processes {
            let ended = || std::future::ready(process.0.try_wait().unwrap());
            assert!(eventually(MINUTE, "the process to end", ended).await.unwrap().success());
        }
        println!("{slots} slots: all callers admitted after {:?}", started.elapsed());
        let mut places: BTreeMap<u64, u64> = BTreeMap::new();
        for number in 0..PROCESSES {
            for line in fs::read_to_string(ledger(number)).unwrap().lines() {
                let (fence, place) = line.split_once(' ').unwrap();
                places.insert(fence.parse().unwrap(), place.parse().unwrap());
            }
        }
        assert_eq!(places.len(), PROCESSES * CALLERS, "each grant has its own fence");
        let places: Vec<u64> = places.into_values().collect();
        assert!(places.is_sorted_by(|one, other| one < other), "{places:?}");
    }
}

/// The code of each process: all callers wait for a slot, and free it immediately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run by the test above"]
async fn process_with_callers() {
    let Ok(url) = std::env::var("ORDER_URL") else { return };
    let limiter = limiter(&url, &std::env::var("ORDER_SLOTS").unwrap());
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let id = format!("{} {number}", std::process::id());
                let hold = limiter.subject("s").hold_within(&id, HOUR, HOUR).await.unwrap();
                let ticket = hold.into_ticket().unwrap();
                limiter.settle(&ticket, []).await.unwrap();
                let fence = ticket.fence(limiter.policies()[0].name()).unwrap();
                let places = limiter.store().as_layer().0.lock().unwrap();
                format!("{fence} {}\n", places[id.as_bytes()])
            })
        })
        .collect();
    let mut ledger = String::new();
    for caller in callers {
        ledger.push_str(&caller.await.unwrap());
    }
    fs::write(std::env::var_os("ORDER_LEDGER").unwrap(), ledger).unwrap();
}
