//! Calls across slots, step by step: the requests to each node, and the outcome if a step fails.

use std::time::Duration;

use tidegate_cluster::{Call, Charge, ErrorKind, Operation, Policy, Store};
use tidegate_testkit::servers::eventually;

use super::node::Say;
use super::{HIGH, LOW, two_nodes};

/// Returns a policy whose limit is far from exhausted.
fn policy() -> Policy {
    "p: fixed-window 1000/1s".parse().unwrap()
}

/// Returns a charge in each half of the slots.
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

    // If the second request is admitted, its charge is undone, and the call stays refused.
    high.says([Say::Refuse, Say::Admit, Say::Admit]);
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
    assert_eq!((low.calls(), high.calls()), (2, 5));

    // A cost above the limit does not block.
    high.says([Say::Refuse]);
    let charges = [charges[0], charges[1].cost(11)];
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
    assert_eq!((low.calls(), high.calls()), (3, 6));
}

/// Many concurrent calls may see the last unit of a limit. That limit is charged first, so that all
/// but one of these calls charge no other limit.
#[tokio::test]
async fn a_nearly_exhausted_limit_is_charged_first() {
    let [plenty, little] = ["plenty: fixed-window 16/1s", "little: fixed-window 15/1s"]
        .map(|text| text.parse::<Policy>().unwrap());
    for charges in [
        [Charge::new(&plenty, LOW), Charge::new(&little, HIGH)],
        [Charge::new(&little, HIGH), Charge::new(&plenty, LOW)],
        // A limit also counts as nearly exhausted if the cost is large compared with it.
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

        // If the other slot refuses, the first charge is undone.
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
        // The failed undo has changed nothing, but the call was charged before.
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

/// One slot reports that nothing was written, and the other does not answer. The call as a whole
/// may be charged, regardless of the order of the two slots.
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

    // If every slot reports that nothing was written, the call is definitely not charged.
    for node in [&low, &high] {
        node.says([Say::Error("OOM command not allowed".to_owned())]);
    }
    let error = store.decide(Call::new(Operation::Refund, &charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}

/// A caller may be cancelled, for example by a timeout, after its call was charged and before it is
/// undone.
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
