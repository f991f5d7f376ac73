//! Tests of each step of calls across slots: the requests to each node, and the outcome if a step
//! fails.

use std::time::Duration;

use tidegate_cluster::{Call, Charge, ErrorKind, Operation, Policy, Store};
use tidegate_test_servers::eventually;

use super::node::Say;
use super::{HIGH, LOW, two_nodes};

/// Returns a policy with a limit that no test reaches.
fn policy() -> Policy {
    "p: fixed-window 1000/1s".parse().unwrap()
}

/// Returns a charge in the first half of the slots, and a charge in the second half.
fn across(policy: &Policy) -> [Charge<'_>; 2] {
    [LOW, HIGH].map(|subject| Charge::new(policy, subject))
}

#[tokio::test]
async fn an_admitted_call_takes_two_round_trips() {
    let (low, high, store) = two_nodes().await;
    let policy = policy();
    assert!(store.decide(Call::acquire(&across(&policy))).await.unwrap().is_allowed());
    assert_eq!((low.calls(), high.calls()), (2, 2));
}

#[tokio::test]
async fn a_refused_call_takes_one_round_trip_and_nothing_else() {
    let policy = policy();
    for refuses_low in [true, false] {
        let (low, high, store) = two_nodes().await;
        let refuses = if refuses_low { &low } else { &high };
        refuses.says([Say::Refuse]);
        let decision = store.decide(Call::acquire(&across(&policy))).await.unwrap();
        assert_eq!(decision.refused_by().collect::<Vec<_>>(), [usize::from(!refuses_low)]);
        assert_eq!((low.calls(), high.calls()), (1, 1));
    }
}

#[tokio::test]
async fn a_refusal_that_blocks_sends_one_more_request_to_its_own_slot_only() {
    let policies = ["p: fixed-window 1000/1s", "otp: fixed-window 10/1s block 15m"]
        .map(|text| text.parse::<Policy>().unwrap());
    let charges = [Charge::new(&policies[0], LOW), Charge::new(&policies[1], HIGH)];
    let (low, high, store) = two_nodes().await;
    high.says([Say::Refuse, Say::Refuse]);
    let decision = store.decide(Call::acquire(&charges)).await.unwrap();
    assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
    assert_eq!((low.calls(), high.calls()), (1, 2));

    // The node `high` refuses the peek, but admits the charge that the store then sends to write
    // the block. The store must undo this charge, and still refuse the call.
    high.says([Say::Refuse, Say::Admit, Say::Admit]);
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
    assert_eq!((low.calls(), high.calls()), (2, 5));

    // A charge with a cost above the limit does not cause a block.
    high.says([Say::Refuse]);
    let charges = [charges[0], charges[1].cost(11)];
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
    assert_eq!((low.calls(), high.calls()), (3, 6));
}

/// The peeks of many concurrent calls can report the same last unit of a limit. The store charges
/// this limit first, so that only one of these calls charges other limits.
#[tokio::test]
async fn a_nearly_exhausted_limit_is_charged_first() {
    let [plenty, little] = ["plenty: fixed-window 16/1s", "little: fixed-window 15/1s"]
        .map(|text| text.parse::<Policy>().unwrap());
    for charges in [
        [Charge::new(&plenty, LOW), Charge::new(&little, HIGH)],
        [Charge::new(&little, HIGH), Charge::new(&plenty, LOW)],
        // With a cost of 8, even an unused limit of 15 counts as nearly exhausted, because it
        // admits only one such call.
        [Charge::new(&plenty, LOW).cost(8), Charge::new(&little, HIGH).cost(8)],
    ] {
        let (low, high, store) = two_nodes().await;
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        assert_eq!((low.calls(), high.calls()), (2, 2));

        high.says([Say::Admit, Say::Refuse]);
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        let refused: Vec<_> = decision.refused_by().collect();
        assert_eq!(refused, [charges.iter().position(|charge| charge.policy == &little).unwrap()]);
        assert_eq!((low.calls(), high.calls()), (3, 4), "the other limit is not charged");

        // The slot that is charged second refuses its charge. So the store undoes the charge in the
        // slot that it charged first.
        low.says([Say::Admit, Say::Refuse]);
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
        assert_eq!((low.calls(), high.calls()), (5, 7));
    }
}

#[tokio::test]
async fn a_charge_is_undone_if_another_slot_refuses_after_the_peek() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Admit, Say::Refuse]);
    let policy = policy();
    let decision = store.decide(Call::acquire(&across(&policy))).await.unwrap();
    assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
    assert_eq!((low.calls(), high.calls()), (3, 2));
}

#[tokio::test]
async fn a_failed_undo_is_an_error_and_never_a_plain_refusal() {
    for (say, kind) in [
        (Say::Close, ErrorKind::Unavailable),
        (Say::Nothing, ErrorKind::Timeout),
        // The error OOM means that the node has not executed the undo, so the charge remains.
        (Say::Error("OOM command not allowed".to_owned()), ErrorKind::Unavailable),
    ] {
        let (low, high, store) = two_nodes().await;
        low.says([Say::Admit, Say::Admit, say]);
        high.says([Say::Admit, Say::Refuse]);
        let policy = policy();
        let error = store.decide(Call::acquire(&across(&policy))).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.kind().is_definitely_not_charged());
        assert!(error.to_string().contains("could not be undone"), "{error}");
        assert_eq!((low.calls(), high.calls()), (3, 2));
    }
}

#[tokio::test]
async fn nothing_is_charged_if_a_slot_does_not_answer_the_peek() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Nothing]);
    let policy = policy();
    let error = store.decide(Call::acquire(&across(&policy))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!((low.calls(), high.calls()), (1, 1));
}

#[tokio::test]
async fn all_charges_are_undone_if_a_slot_does_not_answer() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Admit, Say::Nothing]);
    let policy = policy();
    let error = store.decide(Call::acquire(&across(&policy))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!((low.calls(), high.calls()), (3, 2));
}

/// One slot reports that it has written nothing, and the other slot does not answer. So a part of
/// the call is possibly charged, and the store must not return an error that means "nothing was
/// charged". The test tries both orders of the slots.
#[tokio::test]
async fn a_call_is_definitely_not_charged_only_if_no_slot_may_be_charged() {
    let policy = policy();
    for silent_low in [true, false] {
        let (low, high, store) = two_nodes().await;
        let (silent, refuses) = if silent_low { (&low, &high) } else { (&high, &low) };
        silent.says([Say::Admit, Say::Nothing]);
        refuses.says([Say::Admit, Say::Error("OOM command not allowed".to_owned())]);
        let error = store.decide(Call::acquire(&across(&policy))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
}

#[tokio::test]
async fn a_refund_that_one_slot_executed_is_not_reported_as_unwritten() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Error("OOM command not allowed".to_owned())]);
    let policy = policy();
    let charges = across(&policy);
    let error = store.decide(Call::new(Operation::Refund, &charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(format!("{error:#}").contains("OOM"), "{error}");

    // If every slot reports that it has written nothing, the call is definitely not charged.
    for node in [&low, &high] {
        node.says([Say::Error("OOM command not allowed".to_owned())]);
    }
    let error = store.decide(Call::new(Operation::Refund, &charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}

/// A caller can be cancelled, for example by a timeout, between a charge of its call and the undo
/// of this charge. The store must still undo the charge.
#[tokio::test]
async fn the_charges_of_a_cancelled_call_are_undone() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Admit, Say::Nothing]);
    let policy = policy();
    let charges = across(&policy);
    let call = store.decide(Call::acquire(&charges));
    let takes = async {
        let both = async || (low.calls() == 2 && high.calls() == 2).then_some(());
        eventually(Duration::from_secs(10), "the second step", both).await.unwrap();
    };
    tokio::select! {
        answer = call => panic!("answered, although a node is silent: {answer:?}"),
        () = takes => {}
    }
    let undone = async || (low.calls() == 3).then_some(());
    eventually(Duration::from_secs(10), "the undoing", undone).await.unwrap();
}
