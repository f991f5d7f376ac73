//! Tests of batches of many calls on fake nodes.

use tidegate_cluster::{Call, Charge, Decision, Error, ErrorKind, Operation, Store};

use super::node::{Say, usual_script};
use super::{HIGH, LOW, acquire, policy, slot, two_nodes};

async fn acquire_all(store: &impl Store, subjects: &[String]) -> Vec<Result<Decision, Error>> {
    let policy = policy();
    let charges: Vec<_> = subjects.iter().map(|subject| [Charge::new(&policy, subject)]).collect();
    let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
    store.decide_many(&calls).await
}

/// Returns twenty subjects with slots in the first half of all slots, or in the second half if
/// `is_low` is `false`.
fn subjects(is_low: bool) -> Vec<String> {
    let all = (0..).map(|n| format!("s{n}"));
    all.filter(|subject| (slot(subject) < 8_192) == is_low).take(20).collect()
}

#[tokio::test]
async fn only_redirected_calls_are_sent_again() {
    let (low, high, store) = two_nodes().await;
    let subjects = [subjects(true), subjects(false)].concat();
    let mut says = vec![Say::Admit; 20];
    says[3] = high.redirect("MOVED", slot(&subjects[3]));
    says[7] = high.redirect("ASK", slot(&subjects[7]));
    says[9] = Say::Refuse;
    says[11] = Say::Error("OOM no".to_owned());
    low.says(says);
    let answers = acquire_all(&store, &subjects).await;
    for (index, answer) in answers.iter().enumerate() {
        match (index, answer) {
            (9, Ok(decision)) => assert!(decision.is_denied()),
            (11, Err(error)) => assert_eq!(error.kind(), ErrorKind::OutOfMemory),
            (_, Ok(decision)) => assert!(decision.is_allowed(), "{index}"),
            (_, Err(error)) => panic!("{index}: {error}"),
        }
    }
    assert_eq!((low.calls(), high.calls()), (20, 22));
}

#[tokio::test]
async fn a_lost_node_fails_only_its_own_calls() {
    let (low, high, store) = two_nodes().await;
    low.says([Say::Admit, Say::Close]);
    let subjects = [subjects(true), subjects(false)].concat();
    let answers = acquire_all(&store, &subjects).await;
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer.as_ref().is_err(), index < 20, "{index}: {answer:?}");
    }
    assert_eq!((low.calls(), high.calls()), (2, 20), "the later calls were not sent again");
}

#[tokio::test]
async fn a_missing_script_is_sent_once_for_all_calls_of_a_batch() {
    let (low, _high, store) = two_nodes().await;
    low.says(vec![Say::Error("NOSCRIPT No matching script.".to_owned()); 20]);
    for answer in acquire_all(&store, &subjects(true)).await {
        assert!(answer.unwrap().is_allowed());
    }
    let commands = low.commands();
    assert_eq!(commands.iter().filter(|word| *word == "EVAL").count(), 1);
    assert_eq!(commands.iter().filter(|word| *word == "EVALSHA").count(), 39);
}

#[tokio::test]
async fn calls_of_one_slot_are_one_script_call_unless_their_keys_are_on_two_nodes() {
    let (low, _high, store) = two_nodes().await;
    let tenant = LOW;
    let policy = policy();
    let subjects: Vec<_> = (0..5).map(|n| format!("s{n}")).collect();
    let charges: Vec<_> =
        subjects.iter().map(|subject| [Charge::new(&policy, subject).tenant(tenant)]).collect();
    let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
    for answer in store.decide_many(&calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    assert_eq!(low.calls(), 1);
    low.says([Say::Error("TRYAGAIN Multiple keys request during rehashing".to_owned())]);
    for answer in store.decide_many(&calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    assert_eq!(low.calls(), 1 + 1 + 5, "each call is sent by itself");
}

#[tokio::test]
async fn an_invalid_call_does_not_affect_the_other_calls_of_a_batch() {
    let (low, high, store) = two_nodes().await;
    let policy = policy();
    let (good, other) = ([Charge::new(&policy, LOW)], [Charge::new(&policy, HIGH)]);
    let calls = [Call::acquire(&good), Call::acquire(&[]), Call::acquire(&other)];
    let answers = store.decide_many(&calls).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::InvalidCall);
    assert_eq!((low.calls(), high.calls()), (1, 1));
    assert!(store.decide_many(&[]).await.is_empty());
    assert!(acquire(&store, LOW).await.is_ok());
}

/// The calls in one write share one timeout and fail together. So the store splits a long batch: a
/// write has at most 1,024 charges, like a script call.
#[tokio::test]
async fn a_long_batch_of_one_slot_is_sent_in_several_writes() {
    let (low, _high, store) = two_nodes().await;
    let policy = policy();
    let charge = [Charge::new(&policy, LOW)];
    let calls = vec![Call::acquire(&charge); 2_500];
    let failed =
        |answers: &[Result<Decision, Error>]| answers.iter().filter(|a| a.is_err()).count();
    low.says([Say::Admit, Say::Close]);
    let answers = store.decide_many(&calls).await;
    assert_eq!(answers.len(), 2_500);
    // A reply of the fake node has one verdict per key. All calls have the same key, so the reply
    // to a script call has too few verdicts, and its calls fail with `Protocol`.
    let kind = |index: usize| answers[index].as_ref().unwrap_err().kind();
    assert_eq!(failed(&answers), 2_500);
    assert_eq!([kind(0), kind(1_023)], [ErrorKind::Protocol; 2]);
    assert_eq!([kind(1_024), kind(2_047)], [ErrorKind::Unavailable; 2]);
    assert_eq!([kind(2_048), kind(2_499)], [ErrorKind::Protocol; 2]);
    assert_eq!(low.calls(), 3);
}

#[tokio::test]
async fn a_batch_of_usual_calls_in_one_slot_uses_the_script_for_usual_batches() {
    let (low, _high, store) = two_nodes().await;
    let policy = policy();
    let subjects = ["a", "b", "c"];
    let charges = subjects.map(|subject| [Charge::new(&policy, subject).tenant(LOW)]);
    let mut calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
    for answer in store.decide_many(&calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    calls[1] = Call::new(Operation::Peek, &charges[1]);
    for answer in store.decide_many(&calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    let heard = low.received().into_iter().filter(|received| received.words[0] == "EVALSHA");
    let is_usual: Vec<bool> = heard.map(|heard| heard.words[1] == usual_script().0).collect();
    assert_eq!(is_usual, [true, false, false]);
}
