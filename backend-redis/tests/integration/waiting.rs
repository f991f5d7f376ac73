//! Waiting in one queue from many connections and processes, by the server's own clock.
//!
//! Machines that run tests stall: so what is held here is that never more passes than may, in which
//! order, and what is owed afterwards; not how quickly.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_redis::{Limiter, RedisStore, Store, Timestamp};
use tidegate_testkit::servers::eventually;
use tokio::time::{Instant, timeout};

use crate::common::{fresh_prefix, policy, server};

const HOUR: Duration = Duration::from_secs(3600);

/// Nobody in these tests waits so long.
const LONG: Duration = Duration::from_secs(3600 * 2000);

/// How long what is on its way may take.
const PATIENCE: Duration = Duration::from_secs(20);

async fn store(prefix: &str) -> RedisStore {
    let builder = RedisStore::builder().url(server().await.url()).prefix(prefix);
    builder.response_timeout(Duration::from_secs(30)).build().unwrap()
}

async fn limiter(prefix: &str, text: &str) -> Limiter<RedisStore> {
    Limiter::new(store(prefix).await, [policy(text)]).unwrap().max_wait(LONG)
}

/// When each has passed, by the server's clock, in the order of passing.
async fn passes(prefix: &str, policy: &str, stores: u64, each: u64) -> Vec<Timestamp> {
    let mut tasks = vec![];
    for _ in 0..stores {
        let limiter = limiter(prefix, policy).await;
        for _ in 0..4 {
            let limiter = limiter.clone();
            tasks.push(tokio::spawn(async move {
                let mut passes = vec![];
                for _ in 0..each {
                    assert!(limiter.until_ready("api").await.is_ok());
                    // The server tells a time that is not before the pass.
                    passes.push(limiter.store().now().await.unwrap());
                }
                passes
            }));
        }
    }
    let mut passes = vec![];
    for task in tasks {
        passes.extend(task.await.unwrap());
    }
    passes.sort_unstable();
    passes
}

/// Five stores of four callers: by any time at most what the bucket has held and refilled by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_stores_share_one_queue_and_never_pass_more_than_it_lets() {
    let start = store(&fresh_prefix()).await.now().await.unwrap().as_micros();
    let passes = passes(&fresh_prefix(), "gcra 200/1s burst 5", 5, 15).await;
    assert_eq!(passes.len(), 300);
    for (place, passed) in (1..).zip(&passes) {
        let most = 5 + (passed.as_micros() - start) * 200 / 1_000_000;
        assert!(place <= most, "{place} passed by {passed:?}, {most} may");
    }
}

/// The same for a window, which is asked again: never more than five in one second of the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_stores_wait_for_a_window_and_never_pass_more_than_it_lets() {
    let started = Instant::now();
    let passes = passes(&fresh_prefix(), "fixed-window 10/250ms", 3, 5).await;
    assert_eq!(passes.len(), 60);
    // Six windows: so at least four whole ones went by between the first and the last.
    assert!(started.elapsed() >= Duration::from_secs(1));
}

/// B51: places are given in the order asked, whoever asks on whatever connection.
#[tokio::test]
async fn b51_places_are_given_first_come_first_served_across_stores() {
    let prefix = fresh_prefix();
    let limiters = [limiter(&prefix, "gcra 1/1m").await, limiter(&prefix, "gcra 1/1m").await];
    let mut last = Duration::ZERO;
    for turn in 0..20_u32 {
        let limiter = &limiters[turn as usize % 2];
        let wait = limiter.subject("s").reserve(LONG).await.unwrap().wait();
        // A minute behind the one before, less what has gone by since.
        assert!(wait <= Duration::from_secs(60) * turn);
        assert!(turn == 0 || wait > last, "{wait:?} after {last:?}");
        last = wait;
    }
}

/// B51: a wait that is cancelled before or while it is booked leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b51_cancelled_waits_give_back_what_they_booked() {
    let prefix = fresh_prefix();
    let limiters = [limiter(&prefix, "gcra 1/1h").await, limiter(&prefix, "gcra 1/1h").await];
    assert!(limiters[0].until_ready("s").await.is_ok());
    let callers = (0..100_u64).map(|caller| {
        let limiter = limiters[usize::from(caller % 2 == 0)].clone();
        tokio::spawn(async move {
            // From at once, the call still on its way, to long after it was booked.
            let patience = Duration::from_micros(caller * caller * 10);
            assert!(timeout(patience, limiter.until_ready("s")).await.is_err());
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!([limiters[0].waiters(), limiters[1].waiters()], [0, 0]);
    // The refunds are on their way. Then it is as if only the first had ever asked: an hour, not more.
    let owed = async || limiters[0].subject("s").peek().await.unwrap().retry_after().unwrap();
    let all_back = async || (owed().await <= HOUR).then_some(());
    eventually(PATIENCE, "all places to be back", all_back).await.unwrap();
    assert!(owed().await > HOUR - Duration::from_secs(60), "and no more than that");
}

/// B52: when callers are dropped under load, no task of theirs stays, nor the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b52_no_task_is_left_when_a_thousand_callers_are_dropped() {
    let limiter = limiter(&fresh_prefix(), "gcra 1/1h").await;
    assert!(limiter.until_ready("s").await.is_ok());
    // What the connection itself needs.
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let callers: Vec<_> = (0..1_000)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.until_ready("s").await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(5)).await;
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    for caller in callers {
        assert!(caller.await.unwrap_err().is_cancelled());
    }
    assert_eq!(limiter.waiters(), 0);
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let all_ended = async || (alive() <= before).then_some(());
    eventually(PATIENCE, "all tasks to end", all_ended).await.unwrap();
    let retry = limiter.subject("s").peek().await.unwrap().retry_after().unwrap();
    assert!(retry <= HOUR, "{retry:?}");
}

/// The other process of the test below: books five places, says so, and waits for them.
#[tokio::test]
#[ignore = "run by `b51_a_process_that_dies_loses_its_places_and_no_more`, in a process of its own"]
async fn the_process_that_dies() {
    let (url, prefix) =
        (std::env::var("WAITING_URL").unwrap(), std::env::var("WAITING_PREFIX").unwrap());
    let store = RedisStore::builder().url(url).prefix(prefix).build().unwrap();
    let limiter = Limiter::new(store, [policy("gcra 1/1s")]).unwrap().max_wait(LONG);
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.until_ready("s").await })
        })
        .collect();
    for caller in callers {
        let _ = caller.await;
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// B51: nobody gives back what a dead process has booked: its places come and go unused, at most the
/// longest wait away, and then nothing is owed.
#[tokio::test]
async fn b51_a_process_that_dies_loses_its_places_and_no_more() {
    let prefix = fresh_prefix();
    let limiter = limiter(&prefix, "gcra 1/1s").await;
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "waiting::the_process_that_dies"])
        .env("WAITING_URL", server().await.url())
        .env("WAITING_PREFIX", &prefix)
        .stdout(Stdio::null())
        .spawn();
    let child = Killed(child.unwrap());
    // One passes at once; four places are booked, the last 4 s away.
    let owed = async || limiter.subject("s").peek().await.unwrap().retry_after().unwrap();
    let booked = async || (owed().await > Duration::from_secs(3)).then_some(());
    eventually(PATIENCE, "five places to be booked", booked).await.unwrap();
    drop(child);

    let wait = limiter.until_ready("s").await.unwrap().wait();
    assert!(wait <= Duration::from_secs(5), "behind the dead: {wait:?}");
    let wait = limiter.subject("s").reserve(LONG).await.unwrap().wait();
    assert!(wait <= Duration::from_secs(1), "and nothing is left of them: {wait:?}");
}
