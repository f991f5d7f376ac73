//! Tests the limit set that is kept on a cluster.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_cluster::{
    Call, Charge, CurrentLimits, LimitBook, LimitSet, Operation, Policy, Store, StoreExt,
};
use tidegate_test_servers::{Cluster, eventually};

use crate::common::patient;

async fn change(book: &LimitBook, line: &str) -> u64 {
    let kept = book.read().await.unwrap();
    let mut set = kept.set.clone();
    set.set_line(line).unwrap();
    book.change(&kept, &set, "alice", "a test").await.unwrap()
}

#[tokio::test]
async fn the_set_is_read_and_changed_while_its_slot_moves() {
    let cluster = Cluster::start().await.unwrap();
    let book = patient(&cluster).build().unwrap().limit_book();
    // Another process, whose connections know the slots only from redirects.
    let other = patient(&cluster).build().unwrap().limit_book();
    let mut version = 0;
    let mut expected = LimitSet::new();
    let mut next = async || {
        version += 1;
        let line = format!("a: fixed-window {version}/1m for subject s{}", version % 3);
        assert_eq!(change(&book, &line).await, version);
        expected.set_line(&line).unwrap();
        assert_eq!(other.read().await.unwrap().set, expected);
        assert_eq!(other.history(100).await.unwrap().len() as u64, version);
    };
    next().await;
    let slot = Cluster::slot_of(b"limits");
    let home = cluster.primary_of_slot(slot).await.unwrap();
    for to in [(home + 1) % 3, (home + 2) % 3, home] {
        cluster.begin_moving_slot(slot, to).await.unwrap();
        next().await;
        while cluster.move_keys(slot, to, 10).await.unwrap() > 0 {}
        next().await;
        cluster.finish_moving_slot(slot, to).await.unwrap();
        next().await;
    }
}

#[tokio::test]
async fn a_follower_reads_an_override_when_a_call_needs_it() {
    let cluster = Cluster::start().await.unwrap();
    let store = patient(&cluster).build().unwrap();
    let book = store.limit_book().max_loaded(NonZeroUsize::MIN);
    for number in 2..6 {
        let line = format!("a: fixed-window {number}/1h for subject s{number}");
        change(&book, &line).await;
    }
    let limits = CurrentLimits::default();
    let store = store.adjusted(limits.clone());
    let (current, inner) = (limits.clone(), store.inner().clone());
    let follower = tokio::spawn(async move { book.follow(current, inner, |_| {}).await });
    let is_there = async || (limits.set().overrides() == 4).then_some(());
    eventually(Duration::from_secs(20), "the overrides", is_there).await.unwrap();
    let policy: Policy = "a: fixed-window 1/1h".parse().unwrap();
    for number in (2..6).chain(2..6) {
        let subject = format!("s{number}");
        let charges = [Charge::new(&policy, &subject)];
        let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
        assert_eq!(peek.verdicts()[0].limit(), number);
    }
    assert_eq!(limits.set().lines().len(), 1);
    follower.abort();
}
