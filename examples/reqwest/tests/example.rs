//! Runs the example as the README describes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, and so do its helpers"
)]

use std::fmt::Debug;
use std::process::{Command, Output};

use http::{Request, Response, StatusCode};
use tidegate_example_reqwest::client::{client, hyper_client};
use tidegate_example_reqwest::service::Service as Api;
use tidegate_memory::{Limiter, MemoryStore};
use tidegate_test_servers::Redis;
use tower::{Service, ServiceExt};

fn run(redis: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-example-reqwest"));
    command.env_remove("REDIS_URL");
    command.envs(redis.map(|url| ("REDIS_URL", url)));
    command.output().unwrap()
}

/// Returns the number of answered requests, of refused requests, of pauses that clients received,
/// and of requests that were sent during a pause.
fn counts(output: &Output) -> [u64; 4] {
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    let numbers: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers.len(), 4, "{said}{errors}");
    numbers.try_into().unwrap()
}

/// Runs the example, and checks that no request was sent during a pause. On a busy machine, a run
/// may send so few requests that no pause is announced. Then this function runs the example again,
/// up to ten times.
fn leaves_the_service_alone(redis: Option<&str>) {
    for _ in 0..10 {
        let output = run(redis);
        let [answered, refused, received, too_early] = counts(&output);
        assert!(too_early == 0 && output.status.success(), "{output:?}");
        if answered > 0 && received > 0 && (refused > 0 || redis.is_none()) {
            return;
        }
    }
    panic!("ten runs without a pause");
}

#[test]
fn the_tasks_of_one_process_leave_the_service_alone_when_it_asks_for_that() {
    leaves_the_service_alone(None);
}

/// The service changes its limit and the announced time each second. The eight processes share
/// nothing but a Redis.
#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_leave_the_service_alone_when_it_asks_one_of_them_for_that() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let run = tokio::task::spawn_blocking(move || leaves_the_service_alone(Some(&url)));
    run.await.unwrap();
}

/// Sends eleven requests. The service admits nine requests in the first second, and its ninth
/// response announces that nothing remains. The client must then wait, so that the service refuses
/// no request.
async fn waits<C, B, R>(client: impl FnOnce(Limiter<MemoryStore>) -> C)
where
    C: Service<Request<B>, Response = Response<R>, Error: Debug> + Clone,
    B: Default,
{
    let service = Api::start().await.unwrap();
    let policy = "free: gcra 10000/1s burst 100".parse().unwrap();
    let client = client(Limiter::new(MemoryStore::new(), [policy]).unwrap());
    for _ in 0..11 {
        let request = Request::get(service.url()).body(B::default()).unwrap();
        assert_eq!(client.clone().oneshot(request).await.unwrap().status(), StatusCode::OK);
    }
    let books = service.books();
    assert_eq!((books.answered, books.refused), (11, 0));
}

#[tokio::test]
async fn the_clients_of_reqwest_and_of_hyper_wait_when_nothing_remains() {
    tokio::join!(waits(client), waits(hyper_client));
}

#[test]
fn a_wrong_argument_is_an_error_and_no_run() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-example-reqwest"));
    let output = command.arg("wrok").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: "));
}
