//! Tests callers that wait in one queue, over many connections and processes, by the server's
//! clock.
//!
//! The machines that run the tests are sometimes very slow. Therefore these tests check the maximum
//! number of admissions, the order of admissions, and the debt afterwards. They do not check the
//! time that callers need.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_redis::{Limiter, RedisStore, Store, Timestamp};
use tidegate_test_servers::eventually;
use tokio::time::{Instant, timeout};

use crate::common::{fresh_prefix, policy, server};

const HOUR: Duration = Duration::from_secs(3600);

/// A maximum wait that no caller in these tests reaches.
const LONG: Duration = Duration::from_secs(3600 * 2000);

/// The maximum time until all calls in flight have ended.
const PATIENCE: Duration = Duration::from_secs(20);

async fn store(prefix: &str) -> RedisStore {
    let builder = RedisStore::builder().url(server().await.url()).prefix(prefix);
    builder.response_timeout(Duration::from_secs(30)).build().unwrap()
}

async fn limiter(prefix: &str, text: &str) -> Limiter<RedisStore> {
    Limiter::new(store(prefix).await, [policy(text)]).unwrap().max_wait(LONG)
}

/// Runs four callers per store. Each caller waits for `each` admissions. Returns the times of the
/// admissions by the server's clock, in order.
async fn admissions(prefix: &str, policy: &str, stores: u64, each: u64) -> Vec<Timestamp> {
    let mut tasks = vec![];
    for _ in 0..stores {
        let limiter = limiter(prefix, policy).await;
        for _ in 0..4 {
            let limiter = limiter.clone();
            tasks.push(tokio::spawn(async move {
                let mut times = vec![];
                for _ in 0..each {
                    assert!(limiter.until_ready("api").await.is_ok());
                    // The server's time is read after the admission, so it is never earlier than
                    // the admission.
                    times.push(limiter.store().now().await.unwrap());
                }
                times
            }));
        }
    }
    let mut times = vec![];
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times.sort_unstable();
    times
}

/// Five stores have four callers each. The admitted amount is at most the initial content of the
/// bucket plus the refill since the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_stores_share_one_queue_and_never_admit_more_than_its_rate() {
    let start = store(&fresh_prefix()).await.now().await.unwrap().as_micros();
    let times = admissions(&fresh_prefix(), "gcra 200/1s burst 5", 5, 15).await;
    assert_eq!(times.len(), 300);
    for (count, admitted_at) in (1..).zip(&times) {
        let max = 5 + (admitted_at.as_micros() - start) * 200 / 1_000_000;
        assert!(count <= max, "{count} were admitted by {admitted_at:?}; the maximum is {max}");
    }
}

/// Callers that wait for a window call again when the window ends. At most ten calls are admitted
/// per window of the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_stores_wait_for_a_window_and_never_admit_more_than_its_limit() {
    let started = Instant::now();
    let times = admissions(&fresh_prefix(), "fixed-window 10/250ms", 3, 5).await;
    assert_eq!(times.len(), 60);
    // Sixty admissions need six windows of 250 ms. Four whole windows are between the first and the
    // last of these windows, so the admissions take at least a second.
    assert!(started.elapsed() >= Duration::from_secs(1));
}

/// Without defect B51, places in the queue are granted in the order of the requests, regardless of
/// the caller and the connection.
#[tokio::test]
async fn b51_places_are_granted_first_come_first_served_across_stores() {
    let prefix = fresh_prefix();
    let limiters = [limiter(&prefix, "gcra 1/1m").await, limiter(&prefix, "gcra 1/1m").await];
    let mut last = Duration::ZERO;
    for turn in 0..20_u32 {
        let limiter = &limiters[turn as usize % 2];
        let wait = limiter.subject("s").reserve(LONG).await.unwrap().wait();
        // The wait is at most one minute per earlier reservation.
        assert!(wait <= Duration::from_secs(60) * turn);
        assert!(turn == 0 || wait > last, "{wait:?} after {last:?}");
        last = wait;
    }
}

/// Without defect B51, a cancelled wait for a place in the queue leads to a refund of the place,
/// regardless of the time of the cancellation.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b51_cancelled_waits_refund_their_places() {
    let prefix = fresh_prefix();
    let limiters = [limiter(&prefix, "gcra 1/1h").await, limiter(&prefix, "gcra 1/1h").await];
    assert!(limiters[0].until_ready("s").await.is_ok());
    let callers = (0..100_u64).map(|caller| {
        let limiter = limiters[usize::from(caller % 2 == 0)].clone();
        tokio::spawn(async move {
            // The callers are cancelled at different times. The first caller is cancelled
            // immediately, later callers while the call is in flight, and the last callers long
            // after the booking.
            let patience = Duration::from_micros(caller * caller * 10);
            assert!(timeout(patience, limiter.until_ready("s")).await.is_err());
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!([limiters[0].waiters(), limiters[1].waiters()], [0, 0]);
    // When the refunds in flight have arrived, only the first admission is still charged, so the
    // wait is at most an hour.
    let owed = async || limiters[0].subject("s").peek().await.unwrap().retry_after().unwrap();
    let all_refunded = async || (owed().await <= HOUR).then_some(());
    eventually(PATIENCE, "all places to be refunded", all_refunded).await.unwrap();
    assert!(
        owed().await > HOUR - Duration::from_secs(60),
        "only the cancelled places are refunded"
    );
}

/// Without defect B52, when callers are dropped under load, their tasks and the store are dropped
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b52_no_task_is_left_when_a_thousand_callers_are_dropped() {
    let limiter = limiter(&fresh_prefix(), "gcra 1/1h").await;
    assert!(limiter.until_ready("s").await.is_ok());
    // At this point, only the tasks of the connection itself are running.
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

/// Runs in the child process of `b51_a_process_that_dies_loses_its_places_and_no_more`. Books five
/// places in the queue and waits for them.
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

/// Without defect B51, the places in the queue of a process that dies pass unused, because no other
/// process refunds them. After the last of these places, the bucket has no debt.
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
    // One caller of the child process proceeds immediately, and the other four book places. The
    // last place is 4 s away.
    let owed = async || limiter.subject("s").peek().await.unwrap().retry_after().unwrap();
    let booked = async || (owed().await > Duration::from_secs(3)).then_some(());
    eventually(PATIENCE, "five places to be booked", booked).await.unwrap();
    drop(child);

    let wait = limiter.until_ready("s").await.unwrap().wait();
    assert!(
        wait <= Duration::from_secs(5),
        "the wait after the places of the dead process is {wait:?}"
    );
    let wait = limiter.subject("s").reserve(LONG).await.unwrap().wait();
    assert!(
        wait <= Duration::from_secs(1),
        "the places of the dead process have passed, but the wait is {wait:?}"
    );
}
