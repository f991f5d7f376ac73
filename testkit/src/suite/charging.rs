//! Properties of charges: the amount that each call charges, and the calls that charge nothing.

use std::time::Duration;

use tidegate_core::{Charge, Operation, Outcome};

use super::fixture::Fixture;
use super::harness::{case, each, each_case, policy};
use super::report::{check, check_eq};

/// Without defect B01, a denial leaves the store unchanged, byte for byte, and the wait of the
/// subject does not become longer.
pub(super) fn b01_a_denial_writes_nothing<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.take(&policy, 4).await;
        let charge = Charge::new(&policy, "s");
        let before = harness.snapshot(&[charge]).await;
        for _ in 0..3 {
            let _ = harness.refused(&policy, 2).await;
        }
        check_eq!(harness.snapshot(&[charge]).await, before, "{policy}");
        // A denial also writes nothing under a key without a state, or under a key whose records
        // have expired.
        let other = Charge::new(&policy, "other");
        let denied = harness.ask(Operation::Acquire, &[other.cost(6)]).await;
        check!(denied.is_denied());
        check_eq!(harness.snapshot(&[charge]).await, before, "{policy}");
        harness.advance(Duration::from_micros(3));
        let _ = harness.acquire(&policy, 1).await;
        harness.advance(Duration::from_micros(9));
        let before = harness.snapshot(&[charge]).await;
        let _ = harness.refused(&policy, 6).await;
        check_eq!(harness.snapshot(&[charge]).await, before, "{policy}");
    });
}

/// Checks that a peek, a cost of 0 and a call that fails write nothing.
pub(super) fn a_peek_a_cost_of_zero_and_a_failed_call_write_nothing<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        // The shadow policy `twin` shares the state of `policy`. A call that charges both is an
        // error, because the two policies are not equal.
        let twin = policy.clone().shadow();
        for used in [0, 3] {
            harness.does(Operation::Acquire, &policy, used).await;
            let charge = Charge::new(&policy, "s");
            let before = harness.snapshot(&[charge]).await;
            harness.does(Operation::Peek, &policy, 1).await;
            harness.does(Operation::Peek, &policy, 9).await;
            harness.does(Operation::Acquire, &policy, 0).await;
            harness.does(Operation::Refund, &policy, 0).await;
            let mixed_up = [charge, Charge::new(&twin, "s")];
            check!(harness.try_ask(Operation::Acquire, &mixed_up).await.is_err());
            check!(harness.try_ask(Operation::Acquire, &[]).await.is_err());
            check_eq!(harness.snapshot(&[charge]).await, before, "{policy}");
        }
    });
}

/// Without defect B02, a cost above the limit is never admitted, and leaves the store unchanged.
pub(super) fn b02_a_cost_above_the_limit_is_never_admitted<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let charge = Charge::new(&policy, "s");
        let before = harness.snapshot(&[charge]).await;
        for cost in [6, 1 << 40, u64::MAX] {
            let decision = harness.refused(&policy, cost).await;
            check_eq!(decision.retry_after(), None, "{policy}, cost {cost}");
        }
        check_eq!(harness.snapshot(&[charge]).await, before, "{policy}");
        harness.take(&policy, 5).await;
    });
}

/// Without defect B03, a request is admitted only if its whole cost fits into the limit, even if a
/// part of the cost would fit.
pub(super) fn b03_the_cost_is_weighed_not_only_counted<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.take(&policy, 4).await;
        check_eq!(harness.remaining(&policy).await, 1, "{policy}");
        let _ = harness.refused(&policy, 5).await;
        let _ = harness.refused(&policy, 2).await;
        harness.take(&policy, 1).await;
    });
}

/// Without defect B04, if one of several policies denies, no policy is charged, regardless of the
/// order of the charges.
pub(super) fn b04_a_denied_decision_charges_no_member<F: Fixture>(fixture: &F) {
    for wide in each() {
        case(fixture, async |harness| {
            let narrow = harness.hourly("narrow", 1, "");
            harness.take(&narrow, 1).await;
            let charges = [
                Charge::new(&wide, "s").cost(2),
                Charge::new(&narrow, "s"),
                Charge::new(&wide, "t").cost(3),
            ];
            let before = harness.snapshot(&charges).await;
            for turn in 0..3 {
                let mut charges = charges;
                charges.rotate_left(turn);
                let decision = harness.ask(Operation::Acquire, &charges).await;
                check!(decision.is_denied());
                let refused: Vec<_> = decision.refused_by().collect();
                check_eq!(
                    refused,
                    [(4 - turn) % 3],
                    "{wide}: the index of the charge that refuses"
                );
            }
            check_eq!(harness.snapshot(&charges).await, before, "{wide}");
        });
    }
}

/// Without defect B05, if several charges of one call have the same key, their costs add up, and
/// the sum must fit into the limit.
pub(super) fn b05_charges_to_one_key_add_up<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let twins = |a, b| [Charge::new(&policy, "s").cost(a), Charge::new(&policy, "s").cost(b)];
        let denied = harness.ask(Operation::Acquire, &twins(3, 3)).await;
        check_eq!(denied.retry_after(), None, "{policy}: a total of 6 at a limit of 5 never fits");
        check_eq!(denied.refused_by().count(), 2, "{policy}: both charges refuse");
        let overflow = harness.ask(Operation::Acquire, &twins(u64::MAX, u64::MAX)).await;
        check!(overflow.is_denied(), "{policy}");
        let allowed = harness.ask(Operation::Acquire, &twins(2, 2)).await;
        check!(allowed.is_allowed(), "{policy}");
        for verdict in allowed.verdicts() {
            check_eq!(verdict.remaining(), 1, "{policy}: 4 of 5 are used");
        }
        let denied = harness.ask(Operation::Acquire, &twins(1, 1)).await;
        check!(denied.is_denied(), "{policy}: each charge fits, but their sum does not");
        check_eq!(harness.remaining(&policy).await, 1, "{policy}");
    });
}

/// Without defect B06, a refund refunds at most the charged amount, and creates no state for a
/// subject without a state.
pub(super) fn b06_a_refund_stops_at_full_and_creates_nothing<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let charge = Charge::new(&policy, "s");
        let fresh = harness.snapshot(&[charge]).await;
        harness.does(Operation::Refund, &policy, 3).await;
        check_eq!(harness.snapshot(&[charge]).await, fresh, "{policy}: a refund creates no state");
        harness.take(&policy, 3).await;
        let after = harness.does(Operation::Refund, &policy, 1).await;
        check_eq!(after.remaining(), 3, "{policy}");
        let after = harness.does(Operation::Refund, &policy, u64::MAX).await;
        check_eq!(after.remaining(), 5, "{policy}");
        check_eq!(
            harness.snapshot(&[charge]).await,
            fresh,
            "{policy}: after everything is refunded"
        );
        harness.take(&policy, 5).await;
        let _ = harness.refused(&policy, 1).await;
    });
}

/// Without defect B07, a store admits no request of a subject in debt until the debt is repaid.
pub(super) fn b07_nothing_is_granted_in_debt<F: Fixture>(fixture: &F) {
    for text in ["p: token-bucket 1/1ms burst 2", "p: token-bucket 1/1ms burst 2 by-interval"] {
        case(fixture, async |harness| {
            let bucket = policy(text);
            harness.take(&bucket, 2).await;
            let max_wait = Duration::from_secs(1);
            for place in 1..=5 {
                let charge = [Charge::new(&bucket, "s")];
                let booked = harness.ask(Operation::Reserve { max_wait }, &charge).await;
                check_eq!(booked.wait(), Duration::from_millis(place), "{text}");
            }
            check_eq!(harness.remaining(&bucket).await, 0, "{text}");
            let denied = harness.refused(&bucket, 1).await;
            check_eq!(denied.retry_after(), Some(Duration::from_millis(6)), "{text}");
            harness.at(5_999);
            let _ = harness.refused(&bucket, 1).await;
            harness.at(6_000);
            harness.take(&bucket, 1).await;
        });
    }
}

/// Without defect B08, an admitted request is charged exactly its cost. A request is never admitted
/// in part.
pub(super) fn b08_what_is_granted_is_what_is_charged<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.take(&policy, 2).await;
        let denied = harness.refused(&policy, 4).await;
        check_eq!(denied.verdicts()[0].remaining(), 3, "{policy}");
        let allowed = harness.acquire(&policy, 2).await;
        check_eq!(allowed.verdicts()[0].outcome(), Outcome::Allowed);
        check_eq!(allowed.verdicts()[0].remaining(), 1, "{policy}");
        check_eq!(harness.remaining(&policy).await, 1, "{policy}");
    });
}

/// Without defect B09, a bucket with 9.5 tokens contains 0.5 tokens after a charge of 9.
pub(super) fn b09_the_fraction_of_a_token_is_kept<F: Fixture>(fixture: &F) {
    for text in ["p: token-bucket 1/1s burst 10", "p: gcra 1/1s burst 10"] {
        case(fixture, async |harness| {
            let bucket = policy(text);
            harness.take(&bucket, 10).await;
            harness.at(9_500_000);
            check_eq!(harness.remaining(&bucket).await, 9, "{text}");
            harness.take(&bucket, 9).await;
            let denied = harness.refused(&bucket, 1).await;
            check_eq!(denied.retry_after(), Some(Duration::from_millis(500)), "{text}");
        });
    }
}

/// Without defect B10, `remaining` counts a token from the microsecond at which the token is
/// completely refilled, and not earlier.
pub(super) fn b10_remaining_is_rounded_down<F: Fixture>(fixture: &F) {
    for text in ["p: token-bucket 3/7s burst 10", "p: gcra 3/7s burst 10"] {
        case(fixture, async |harness| {
            let bucket = policy(text);
            harness.take(&bucket, 10).await;
            // One token is refilled in 7/3 s. The first two times are 7/3 s and 14/3 s, rounded up
            // to microseconds.
            for (due, tokens) in [(2_333_334, 1), (4_666_667, 2), (7_000_000, 3)] {
                harness.at(due - 1);
                check_eq!(harness.remaining(&bucket).await, tokens - 1, "{text} at {due} - 1");
                harness.at(due);
                check_eq!(harness.remaining(&bucket).await, tokens, "{text} at {due}");
            }
        });
    }
}
