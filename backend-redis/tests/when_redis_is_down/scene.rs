//! A server that is down or paused, and stores that use this server.

use std::time::Duration;

use tidegate_redis::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Policy, RedisStore, Store,
};
use tidegate_test_servers::{Redis, eventually};

/// A time that is longer than every step of these tests, even on a busy machine, and shorter than
/// [`PATIENCE`].
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// The timeout of a patient store, which is much longer than all other timeouts.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn redis() -> Redis {
    Redis::start().await.unwrap()
}

pub(crate) async fn dead_redis() -> Redis {
    let redis = redis().await;
    redis.kill().await.unwrap();
    redis
}

pub(crate) fn store(redis: &Redis) -> RedisStore {
    RedisStore::builder().url(redis.url()).build().unwrap()
}

/// Returns a store that waits up to [`PATIENCE`] for an answer.
pub(crate) fn patient_store(redis: &Redis) -> RedisStore {
    RedisStore::builder().url(redis.url()).response_timeout(PATIENCE).build().unwrap()
}

pub(crate) fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

pub(crate) async fn decide(
    store: &impl Store,
    operation: Operation,
    policy: &Policy,
) -> Result<Decision, Error> {
    store.decide(Call::new(operation, &[Charge::new(policy, "s")])).await
}

pub(crate) async fn acquire(store: &impl Store, policy: &Policy) -> Result<Decision, Error> {
    decide(store, Operation::Acquire, policy).await
}

pub(crate) async fn error_kind(store: &impl Store, policy: &Policy) -> ErrorKind {
    acquire(store, policy).await.unwrap_err().kind()
}

/// Returns the used amount of a policy, according to the server.
pub(crate) async fn used(store: &RedisStore, policy: &Policy) -> u64 {
    let peek = decide(store, Operation::Peek, policy).await.unwrap();
    policy.limit() - peek.verdicts()[0].remaining()
}

/// Waits until the server decides calls again.
pub(crate) async fn until_it_decides(store: &impl Store, policy: &Policy) -> Decision {
    let decides = async || decide(store, Operation::Peek, policy).await.ok();
    let decides = async || decides().await.filter(|decision| decision.degraded().is_none());
    eventually(Duration::from_secs(20), "the store decides", decides).await.unwrap()
}

/// Returns the number of scripts that the server has run.
pub(crate) async fn scripts_run(redis: &Redis) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]).await.unwrap().text();
    let calls = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    let calls = calls.filter_map(|line| line.split_once("calls=")?.1.split(',').next());
    calls.map(|calls| calls.parse::<u64>().unwrap()).sum()
}
