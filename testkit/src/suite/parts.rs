//! Properties of charges beyond the limit, of "acquire up to", and of check-only charges.

use std::time::Duration;

use tidegate_core::{Charge, ErrorKind, MAX_EXACT, Operation, Outcome};

use super::fixture::Fixture;
use super::harness::{case, each_case, policy};
use super::report::{check, check_eq};

const UP_TO: Operation = Operation::AcquireUpTo { min: 1 };

/// Checks that a charge beyond the limit delays later requests: a request fails one microsecond
/// before its `retry_after` is over, and succeeds after it. Also checks that a refund of the whole
/// charge leaves no usage.
pub(super) fn a_charge_beyond_the_limit_is_paid_for<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let charge = [Charge::new(&policy, "s").cost(12)];
        let fresh = harness.snapshot(&charge).await;
        harness.take(&policy, 2).await;
        let charged = harness.ask(Operation::Charge, &charge).await;
        check_eq!(charged.amounts(), [12], "{policy}");
        check_eq!(charged.verdicts()[0].remaining(), 0, "{policy}");

        let refused = harness.refused(&policy, 1).await;
        let wait = refused.retry_after().unwrap_or_default();
        harness.advance(wait - Duration::from_micros(1));
        let _ = harness.refused(&policy, 1).await;
        harness.advance(Duration::from_micros(1));
        harness.take(&policy, 1).await;
        let _ = harness.ask(Operation::Reset, &charge).await;

        check_eq!(harness.ask(Operation::Charge, &charge).await.amounts(), [12], "{policy}");
        let refund = [charge[0].cost(20)];
        check_eq!(harness.ask(Operation::Refund, &refund).await.amounts(), [12], "{policy}");
        harness.at(0);
        check_eq!(harness.snapshot(&charge).await, fresh, "{policy}");
    });
}

/// Checks that a charge beyond the limit records at most the maximum that a state can contain. The
/// answer contains the recorded amount.
pub(super) fn a_charge_stops_at_what_a_state_can_hold<F: Fixture>(fixture: &F) {
    // A debt must be repaid within 2^51 µs. This is 2,251,799,813 s, rounded down, so a bucket that
    // refills one token per second records at most this many tokens.
    for (text, holds) in [
        ("p: fixed-window 5/1h", MAX_EXACT),
        ("p: sliding-log 5/1h", MAX_EXACT),
        ("p: sliding-log 5/1h grain 1m", MAX_EXACT),
        ("p: sliding-counter 5/1h", MAX_EXACT),
        ("p: token-bucket 1/1s burst 5", 2_251_799_813),
        ("p: token-bucket 1/1s burst 5 by-interval", 2_251_799_813),
        ("p: token-bucket 3/1us burst 5 by-interval", MAX_EXACT),
    ] {
        case(fixture, async |harness| {
            let policy = policy(text);
            for (cost, amount) in [(holds - 3, holds - 3), (10, 3), (1, 0), (u64::MAX, 0)] {
                let charge = [Charge::new(&policy, "s").cost(cost)];
                let charged = harness.ask(Operation::Charge, &charge).await;
                check_eq!(charged.amounts(), [amount], "{text}: a charge of {cost}");
            }
            let charge = [Charge::new(&policy, "t").cost(u64::MAX), Charge::new(&policy, "t")];
            let charged = harness.ask(Operation::Charge, &charge).await;
            check_eq!(charged.amounts(), [holds, 0], "{text}");
            let refund = [charge[0].cost(holds - 1), charge[1].cost(7)];
            let refunded = harness.ask(Operation::Refund, &refund).await;
            check_eq!(refunded.amounts(), [holds - 1, 1], "{text}");
        });
    }
}

/// Checks that a charge beyond the limit to a full sliding log moves the newest record to the
/// current time, so that the charge counts for a whole window.
pub(super) fn a_charge_to_a_full_log_counts_from_now<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = policy("p: sliding-log 2/10us");
        for micros in [0, 2] {
            harness.at(micros);
            harness.take(&policy, 1).await;
        }
        harness.at(4);
        let charge = [Charge::new(&policy, "s")];
        check_eq!(harness.ask(Operation::Charge, &charge).await.amounts(), [1]);
        // The charge has moved the record from 2 µs to 4 µs, and has raised its cost to 2.
        harness.at(13);
        let _ = harness.refused(&policy, 1).await;
        harness.at(14);
        harness.take(&policy, 2).await;
    });
}

/// Checks that a charge beyond the limit is recorded even if the subject is blocked, and that the
/// block continues. Such a charge is also recorded under a shadow.
pub(super) fn a_charge_passes_blocks_and_shadows<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let charge = [Charge::new(&policy, "s").cost(5)];
        let block = |micros| Operation::Block { span: Duration::from_micros(micros) };
        let _ = harness.ask(block(60), &charge).await;
        let charged = harness.ask(Operation::Charge, &charge).await;
        check_eq!(charged.amounts(), [5], "{policy}");
        check_eq!(charged.verdicts()[0].outcome(), Outcome::Blocked, "{policy}");
        let _ = harness.ask(block(0), &charge).await;
        let _ = harness.refused(&policy, 1).await;

        let shadow = policy.clone().shadow();
        let charge = [Charge::new(&shadow, "t").cost(7)];
        let charged = harness.ask(Operation::Charge, &charge).await;
        check_eq!(charged.amounts(), [7], "{policy}");
        check_eq!(charged.verdicts()[0].remaining(), 0, "{policy}");
    });
}

/// Checks that an "acquire up to" charges its cost, or the remaining amount if the remaining amount
/// is less than the cost.
pub(super) fn an_acquire_up_to_takes_all_that_remains<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.take(&policy, 1).await;
        let charge = [Charge::new(&policy, "s").cost(2)];
        check_eq!(harness.ask(UP_TO, &charge).await.amounts(), [2], "{policy}");
        let charge = [charge[0].cost(9)];
        let too_much = Operation::AcquireUpTo { min: 3 };
        let before = harness.snapshot(&charge).await;
        let refused = harness.ask(too_much, &charge).await;
        check!(refused.is_denied(), "{policy}");
        check_eq!(refused.amounts(), [0], "{policy}");
        check_eq!(harness.snapshot(&charge).await, before, "{policy}");
        let taken = harness.ask(UP_TO, &charge).await;
        check_eq!(taken.amounts(), [2], "{policy}");
        check_eq!(taken.verdicts()[0].remaining(), 0, "{policy}");

        let refused = harness.ask(UP_TO, &charge).await;
        check_eq!(refused.amounts(), [0], "{policy}");
        let acquire = harness.refused(&policy, 1).await;
        check_eq!(
            refused.verdicts(),
            acquire.verdicts(),
            "{policy}: the verdicts of an acquire of 1"
        );
    });
}

/// Checks that an "acquire up to" with several policies charges the same amount to all policies. A
/// shadow does not bound this amount.
pub(super) fn an_acquire_up_to_takes_one_amount_of_all<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let other = harness.hourly("other", 9, "");
        let shadow = harness.hourly("shadow", 1, " shadow");
        let checked = harness.hourly("checked", 4, "");
        harness.take(&other, 7).await;
        let charges = [
            Charge::new(&policy, "s").cost(4),
            Charge::new(&other, "s").cost(9),
            Charge::new(&shadow, "s").cost(9),
            Charge::new(&checked, "s").cost(4).check_only(),
        ];
        let before = harness.snapshot(&charges).await;
        let refused = harness.ask(Operation::AcquireUpTo { min: 3 }, &charges).await;
        check!(refused.is_denied(), "{policy}");
        check_eq!(refused.amounts(), [0; 4], "{policy}");
        check_eq!(harness.snapshot(&charges).await, before, "{policy}");

        let taken = harness.ask(UP_TO, &charges).await;
        check!(taken.is_allowed(), "{policy}");
        check_eq!(taken.amounts(), [2, 2, 0, 0], "{policy}");
        let remaining: Vec<_> =
            taken.verdicts().iter().map(|verdict| verdict.remaining()).collect();
        check_eq!(remaining, [3, 0, 1, 4], "{policy}");

        let _ = harness.ask(Operation::Refund, &charges[1..2]).await;
        harness.take(&checked, 1).await;
        let before = harness.snapshot(&charges).await;
        let refused = harness.ask(UP_TO, &charges).await;
        check_eq!(refused.refused_by().collect::<Vec<_>>(), [3], "{policy}");
        check_eq!(harness.snapshot(&charges).await, before, "{policy}");
    });
}

/// Checks that the store does not make a check-only charge, and that it refuses the call if a
/// policy denies this charge.
pub(super) fn a_check_takes_nothing_and_refuses_the_whole<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let other = harness.hourly("other", 9, "");
        let charges = [Charge::new(&other, "s"), Charge::new(&policy, "s").cost(3).check_only()];
        for operation in [Operation::Acquire, Operation::Charge, Operation::Refund] {
            let decision = harness.ask(operation, &charges).await;
            check!(decision.is_allowed(), "{policy}, {operation:?}");
            check_eq!(harness.remaining(&policy).await, 5, "{policy}, {operation:?}");
        }
        check_eq!(harness.remaining(&other).await, 8, "{policy}");
        harness.take(&policy, 3).await;
        let before = harness.snapshot(&charges).await;
        let refused = harness.ask(Operation::Acquire, &charges).await;
        check_eq!(refused.refused_by().collect::<Vec<_>>(), [1], "{policy}");
        check_eq!(harness.snapshot(&charges).await, before, "{policy}");

        let _ = harness.ask(Operation::Reset, &charges).await;
        check_eq!(
            harness.remaining(&policy).await,
            5,
            "{policy}: a reset also resets a check-only charge"
        );
    });
}

/// Checks that a denied check-only charge blocks its subject if the policy blocks after a denial.
pub(super) fn a_check_that_is_refused_blocks<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = policy("p: fixed-window 5/10us block 1m");
        harness.needs(&policy);
        let other = harness.hourly("other", 9, "");
        harness.take(&policy, 4).await;
        let charges = [Charge::new(&other, "s"), Charge::new(&policy, "s").cost(2).check_only()];
        check!(harness.ask(Operation::Acquire, &charges).await.is_denied());
        let peek = harness.ask(Operation::Peek, &charges).await;
        check_eq!(peek.verdicts()[1].outcome(), Outcome::Blocked);
        check_eq!(harness.remaining(&other).await, 9);
    });
}

/// Checks that calls that are not valid are errors, and write nothing.
pub(super) fn parts_that_make_no_sense_are_errors<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let other = harness.hourly("other", 9, "");
        let (one, two) = (Charge::new(&policy, "s").cost(2), Charge::new(&other, "s").cost(3));
        let up_to = |min| Operation::AcquireUpTo { min };
        let before = harness.snapshot(&[one, two]).await;
        for (operation, charges) in [
            (up_to(0), vec![one]),
            (up_to(3), vec![one, two]),
            (up_to(1), vec![one, one]),
            (up_to(1), vec![one.check_only()]),
            (up_to(1), vec![one.cost(0), two]),
            (Operation::Acquire, vec![one, one.check_only()]),
            (Operation::Charge, vec![one.check_only(), two, one]),
        ] {
            let kind = harness.try_ask(operation, &charges).await.map_err(|error| error.kind());
            check_eq!(kind, Err(ErrorKind::InvalidCall), "{policy}, {operation:?}");
        }
        check_eq!(harness.snapshot(&[one, two]).await, before, "{policy}");
    });
}
