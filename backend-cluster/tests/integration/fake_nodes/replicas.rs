//! Tests of stores that require that replicas acknowledge each write.

use std::time::Duration;

use tidegate_cluster::{Call, Charge, ClusterStore, ErrorKind, Operation, Store};

use super::node::{Node, Say};
use super::{LOW, acquire, policy};

async fn careful_store() -> (Node, ClusterStore) {
    let node = Node::start().await;
    node.sees(&[(0, 16_383, &node)]);
    let builder = ClusterStore::builder().urls([node.url()]);
    let builder = builder.wait_for_replicas(2, Duration::from_millis(20));
    (node, builder.build().unwrap())
}

#[tokio::test]
async fn an_admission_that_enough_replicas_acknowledge_succeeds() {
    let (node, store) = careful_store().await;
    node.has_replicas(2);
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    let commands: Vec<_> = node.received().into_iter().map(|command| command.words).collect();
    assert_eq!(commands.last().unwrap()[..], ["WAIT", "2", "20"]);
    assert!(commands[commands.len() - 2][0] == "EVALSHA", "WAIT follows the script call");
}

#[tokio::test]
async fn an_admission_that_too_few_replicas_acknowledge_is_an_error_and_may_be_charged() {
    let (node, store) = careful_store().await;
    node.has_replicas(1);
    let error = acquire(&store, LOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("1 of 2 required replicas acknowledged the write"),
        "{error}"
    );
    let policy = policy();
    let charges = [Charge::new(&policy, LOW)];
    let block = Operation::Block { span: Duration::from_secs(1) };
    assert!(store.decide(Call::new(block, &charges)).await.is_err());
    for answer in store.decide_many(&[Call::acquire(&charges)]).await {
        assert!(answer.is_err());
    }
}

#[tokio::test]
async fn a_refusal_and_a_peek_need_no_replicas() {
    let (node, store) = careful_store().await;
    node.says([Say::Refuse]);
    assert!(acquire(&store, LOW).await.unwrap().is_denied());
    let policy = policy();
    let charges = [Charge::new(&policy, LOW)];
    let waits = |node: &Node| node.commands().iter().filter(|word| *word == "WAIT").count();
    let before = waits(&node);
    assert!(store.decide(Call::new(Operation::Peek, &charges)).await.unwrap().is_allowed());
    assert_eq!(waits(&node), before);
}

#[tokio::test]
async fn a_call_across_slots_that_too_few_replicas_acknowledge_is_undone() {
    let (low, high, _) = super::two_nodes().await;
    let builder = ClusterStore::builder().urls([low.url()]);
    let store = builder.wait_for_replicas(1, Duration::from_millis(20)).build().unwrap();
    low.has_replicas(1);
    let policy = policy();
    let charges = [LOW, super::HIGH].map(|subject| Charge::new(&policy, subject));
    let error = store.decide(Call::acquire(&charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!((low.calls(), high.calls()), (3, 3), "peeked, charged and undone");
    high.has_replicas(1);
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
}
