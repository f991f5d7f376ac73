//! Calls across slots, step by step: what each node is asked, and what comes of it if a step fails.

use std::time::Duration;

use tidegate_cluster::{Call, Charge, ErrorKind, Operation, Policy, Store};
use tidegate_testkit::servers::eventually;

use super::node::Say;
use super::{HIGH, LOW, two_nodes};

/// Much more than what is called scarce.
fn policy() -> Policy {
    "p: fixed-window 1000/1s".parse().unwrap()
}

/// A charge in each half of the slots.
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
async fn a_refusal_that_blocks_takes_another_to_its_own_slot_alone() {
    let policies = ["p: fixed-window 1000/1s", "otp: fixed-window 10/1s block 15m"]
        .map(|text| text.parse::<Policy>().unwrap());
    let charges = [Charge::new(&policies[0], LOW), Charge::new(&policies[1], HIGH)];
    let (low, high, store) = two_nodes().await;
    high.says([Say::Refuse, Say::Refuse]);
    let decision = store.decide(Call::acquire(&charges)).await.unwrap();
    assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
    assert_eq!((low.calls(), high.calls()), (1, 2));

    // If it admits by then, that is undone, and the call stays refused.
    high.says([Say::Refuse, Say::Admit, Say::Admit]);
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
    assert_eq!((low.calls(), high.calls()), (2, 5));

    // A cost above the limit does not block.
    high.says([Say::Refuse]);
    let charges = [charges[0], charges[1].cost(11)];
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
    assert_eq!((low.calls(), high.calls()), (3, 6));
}

/// Of many calls at once that see the last of a limit, all but one must not take elsewhere.
#[tokio::test]
async fn what_is_nearly_used_up_is_taken_before_all_else() {
    let [plenty, little] = ["plenty: fixed-window 16/1s", "little: fixed-window 15/1s"]
        .map(|text| text.parse::<Policy>().unwrap());
    for charges in [
        [Charge::new(&plenty, LOW), Charge::new(&little, HIGH)],
        [Charge::new(&little, HIGH), Charge::new(&plenty, LOW)],
        // It is the cost that counts.
        [Charge::new(&plenty, LOW).cost(8), Charge::new(&little, HIGH).cost(8)],
    ] {
        let (low, high, store) = two_nodes().await;
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
        assert_eq!((low.calls(), high.calls()), (2, 2));

        high.says([Say::Admit, Say::Refuse]);
        let decision = store.decide(Call::acquire(&charges)).await.unwrap();
        let refused: Vec<_> = decision.refused_by().collect();
        assert_eq!(refused, [charges.iter().position(|it| it.policy == &little).unwrap()]);
        assert_eq!((low.calls(), high.calls()), (3, 4), "nothing was taken of the other");

        // If the other refuses, what came first is given back.
        low.says([Say::Admit, Say::Refuse]);
        assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_denied());
        assert_eq!((low.calls(), high.calls()), (5, 7));
    }
}

#[tokio::test]
async fn what_was_taken_is_given_back_if_a_slot_refuses_after_the_look() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Admit, Say::Refuse]);
    let policy = policy();
    let decision = store.decide(Call::acquire(&across(&policy))).await.unwrap();
    assert_eq!(decision.refused_by().collect::<Vec<_>>(), [1]);
    assert_eq!((low.calls(), high.calls()), (3, 2));
}

#[tokio::test]
async fn what_cannot_be_given_back_is_an_error_and_never_a_plain_refusal() {
    for (say, kind) in [
        (Say::Close, ErrorKind::Unavailable),
        (Say::Nothing, ErrorKind::Timeout),
        // Nothing was done by the undoing; but the call has taken.
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
async fn nothing_is_taken_where_one_slot_does_not_answer_the_look() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Nothing]);
    let policy = policy();
    let error = store.decide(Call::acquire(&across(&policy))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!((low.calls(), high.calls()), (1, 1));
}

#[tokio::test]
async fn all_that_was_taken_is_given_back_where_one_slot_does_not_answer() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Admit, Say::Nothing]);
    let policy = policy();
    let error = store.decide(Call::acquire(&across(&policy))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!((low.calls(), high.calls()), (3, 2));
}

/// One slot says that nothing was written, and of the other nothing is known: the call as a whole may be
/// charged, whichever of them comes first.
#[tokio::test]
async fn a_call_is_surely_not_charged_only_if_no_slot_may_be() {
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
async fn a_refund_that_is_done_in_one_slot_alone_does_not_say_that_nothing_was_written() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Error("OOM command not allowed".to_owned())]);
    let policy = policy();
    let charges = across(&policy);
    let error = store.decide(Call::new(Operation::Refund, &charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(format!("{error:#}").contains("OOM"), "{error}");

    // Where none has done it, nothing was.
    for node in [&low, &high] {
        node.says([Say::Error("OOM command not allowed".to_owned())]);
    }
    let error = store.decide(Call::new(Operation::Refund, &charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}

/// A caller that goes away, as at a timeout, while its call is between taking and undoing.
#[tokio::test]
async fn a_call_whose_caller_goes_away_is_undone_all_the_same() {
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
        answer = call => panic!("answered, though a node is silent: {answer:?}"),
        () = takes => {}
    }
    let undone = async || (low.calls() == 3).then_some(());
    eventually(Duration::from_secs(10), "the undoing", undone).await.unwrap();
}
