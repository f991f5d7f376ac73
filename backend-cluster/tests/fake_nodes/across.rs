//! Calls across slots whose second step goes wrong.

use tidegate_cluster::{Call, Charge, ErrorKind, Store};

use crate::node::Say;
use crate::{HIGH, LOW, policy, two_nodes};

#[tokio::test]
async fn what_cannot_be_given_back_is_an_error_and_never_a_plain_refusal() {
    for (say, kind) in [
        (Say::Close, ErrorKind::Unavailable),
        (Say::Nothing, ErrorKind::Timeout),
        // Nothing was done by the undoing; but the call has taken.
        (Say::Error("OOM command not allowed".to_owned()), ErrorKind::Unavailable),
    ] {
        let (low, high, store) = two_nodes().await;
        low.says([Say::Admit, say]);
        high.says([Say::Refuse]);
        let policy = policy();
        let charges = [LOW, HIGH].map(|subject| Charge::new(&policy, subject));
        let error = store.decide(Call::acquire(&charges)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.kind().is_surely_not_charged());
        assert!(error.to_string().contains("could not be given back"), "{error}");
        assert_eq!((low.calls(), high.calls()), (2, 1));
    }
}

#[tokio::test]
async fn all_that_was_taken_is_given_back_where_one_slot_does_not_answer() {
    let (low, high, store) = two_nodes().await;
    high.says([Say::Nothing]);
    let policy = policy();
    let charges = [LOW, HIGH].map(|subject| Charge::new(&policy, subject));
    let error = store.decide(Call::acquire(&charges)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!((low.calls(), high.calls()), (2, 1));
}

#[tokio::test]
async fn what_all_slots_admit_takes_one_round_trip() {
    let (low, high, store) = two_nodes().await;
    let policy = policy();
    let charges = [LOW, HIGH].map(|subject| Charge::new(&policy, subject));
    assert!(store.decide(Call::acquire(&charges)).await.unwrap().is_allowed());
    assert_eq!((low.calls(), high.calls()), (1, 1));
}
