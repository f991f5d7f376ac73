//! Properties of lists of alternatives.

use std::time::Duration;

use tidegate_core::Outcome::{Allowed, Blocked, Denied, Skipped};
use tidegate_core::{CallId, Charge, Decision, ErrorKind, Operation, Outcome, Policy};

use super::fixture::Fixture;
use super::harness::{Harness, case, each_case, policy};
use super::report::{check, check_eq};

const ACQUIRE: Operation = Operation::Acquire;
const TTL: Duration = Duration::from_secs(60);

/// Returns a charge of a list. All charges have one tenant, so that their states are in one slot.
fn option<'a>(policy: &'a Policy, list: u8) -> Charge<'a> {
    plain(policy).in_list(list)
}

fn plain(policy: &Policy) -> Charge<'_> {
    Charge::new(policy, "s").tenant("t")
}

fn outcomes(decision: &Decision) -> Vec<Outcome> {
    decision.verdicts().iter().map(|verdict| verdict.outcome()).collect()
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.verdicts().iter().map(|verdict| verdict.remaining()).collect()
}

async fn remaining_of<F: Fixture>(harness: &Harness<'_, F>, policy: &Policy) -> u64 {
    harness.ask(Operation::Peek, &[plain(policy).cost(0)]).await.verdicts()[0].remaining()
}

/// Checks that the first policy that admits its charge pays, that a peek reports it, and that
/// nothing else is charged.
pub(super) fn the_first_policy_that_admits_pays<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, own| {
        let (pool, last) = (harness.hourly("pool", 3, ""), harness.hourly("last", 9, ""));
        let charges = [option(&own, 7).cost(2), option(&pool, 7), option(&last, 7)];
        let first = [Allowed, Skipped, Skipped];
        let second = [Skipped, Allowed, Skipped];
        let third = [Skipped, Skipped, Allowed];
        // The policy has 5 tokens, so it admits two charges.
        let expected = [
            (first, [3, 3, 9]),
            (first, [1, 3, 9]),
            (second, [1, 2, 9]),
            (second, [1, 1, 9]),
            (second, [1, 0, 9]),
            (third, [1, 0, 8]),
        ];
        for (payer, rest) in expected {
            let peek = harness.ask(Operation::Peek, &charges).await;
            check_eq!(outcomes(&peek), payer, "{own}: a peek");
            let decision = harness.ask(ACQUIRE, &charges).await;
            check!(decision.is_allowed(), "{own}");
            check_eq!(outcomes(&decision), payer, "{own}");
            check_eq!(remaining(&decision), rest, "{own}");
            check_eq!(decision.retry_after(), Some(Duration::ZERO), "{own}");
        }
    });
}

/// Checks that a refused call charges nothing, whether a list or another charge refuses it.
pub(super) fn a_list_is_charged_with_the_whole_call_or_not_at_all<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, own| {
        let (pool, other) = (harness.hourly("pool", 2, ""), harness.hourly("other", 9, ""));
        let charges = [plain(&other), option(&own, 1), option(&pool, 1)];
        let too_much = [charges[0].cost(10), charges[1], charges[2]];
        let before = harness.snapshot(&charges.map(|charge| charge.in_list(0))).await;
        let refused = harness.ask(ACQUIRE, &too_much).await;
        check_eq!(outcomes(&refused), [Denied, Allowed, Skipped], "{own}");
        check_eq!(refused.refused_by().collect::<Vec<_>>(), [0], "{own}");
        let too_much = [charges[0], charges[1].cost(6), charges[2].cost(3)];
        let refused = harness.ask(ACQUIRE, &too_much).await;
        check!(refused.is_denied(), "{own}");
        check_eq!(refused.refused_by().count(), 1, "{own}: one charge stands for the list");
        let after = harness.snapshot(&charges.map(|charge| charge.in_list(0))).await;
        check_eq!(after, before, "{own}");
        check!(harness.ask(ACQUIRE, &charges).await.is_allowed(), "{own}");
        check_eq!(remaining_of(harness, &other).await, 8, "{own}");
        check_eq!(remaining_of(harness, &own).await, 4, "{own}");
        check_eq!(remaining_of(harness, &pool).await, 2, "{own}");
    });
}

/// Checks that each of several lists has its own payer, and that the lists need not be in order.
pub(super) fn each_list_has_a_payer<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let limit = |name| harness.hourly(name, 1, "");
        let (a, b, c, d) = (limit("a"), limit("b"), limit("c"), limit("d"));
        let charges = [option(&a, 2), option(&b, 1), option(&c, 2), option(&d, 1)];
        let steps = [[Allowed, Allowed, Skipped, Skipped], [Skipped, Skipped, Allowed, Allowed]];
        for expected in steps {
            check_eq!(outcomes(&harness.ask(ACQUIRE, &charges).await), expected);
        }
        check_eq!(harness.ask(ACQUIRE, &charges).await.refused_by().count(), 2);
        // A charge without alternatives is like a charge in no list.
        let alone = harness.ask(ACQUIRE, &charges[..1]).await;
        check_eq!(outcomes(&alone), [Denied]);
    });
}

/// Checks that a call that all alternatives refuse succeeds after its `retry_after`, and not a
/// microsecond earlier.
pub(super) fn a_refused_list_waits_for_its_first_admission<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, own| {
        let pool = harness.hourly("pool", 1, "");
        // The wait of the pool is longer than the wait of every policy of this test.
        let charges = [option(&pool, 1), option(&own, 1)];
        for _ in 0..6 {
            check!(harness.ask(ACQUIRE, &charges).await.is_allowed(), "{own}");
        }
        let refused = harness.ask(ACQUIRE, &charges).await;
        check_eq!(outcomes(&refused), [Skipped, Denied], "{own}");
        let wait = refused.retry_after().unwrap_or_default();
        check_eq!(refused.verdicts()[1].retry_after(), Some(wait), "{own}");
        check!(refused.verdicts()[0].retry_after() > Some(wait), "{own}: the pool waits longer");
        harness.advance(wait - Duration::from_micros(1));
        check!(harness.ask(ACQUIRE, &charges).await.is_denied(), "{own}: too early");
        harness.advance(Duration::from_micros(1));
        check_eq!(outcomes(&harness.ask(ACQUIRE, &charges).await), [Skipped, Allowed], "{own}");
    });
}

/// Checks that a blocked subject refuses the call although another policy of the list admits it.
pub(super) fn a_blocked_subject_of_a_list_refuses_the_call<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, own| {
        let pool = harness.hourly("pool", 9, "");
        let charges = [option(&pool, 1), option(&own, 1)];
        let span = Duration::from_secs(60);
        let _ = harness.ask(Operation::Block { span }, &[plain(&own)]).await;
        let before = remaining_of(harness, &pool).await;
        let refused = harness.ask(ACQUIRE, &charges).await;
        check_eq!(outcomes(&refused), [Allowed, Blocked], "{own}");
        check_eq!(refused.retry_after(), Some(span), "{own}");
        check_eq!(remaining_of(harness, &pool).await, before, "{own}");
        harness.advance(span);
        check!(harness.ask(ACQUIRE, &charges).await.is_allowed(), "{own}");
    });
}

/// Checks that the wait of a blocked alternative is the wait for the end of the block, if another
/// policy of the list admits the call then.
pub(super) fn a_blocked_alternative_waits_only_for_its_block<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, own| {
        let pool = harness.hourly("pool", 9, "");
        let charges = [option(&own, 1), option(&pool, 1)];
        let span = Duration::from_micros(1);
        check!(harness.ask(ACQUIRE, &[plain(&own).cost(5)]).await.is_allowed(), "{own}");
        let _ = harness.ask(Operation::Block { span }, &[plain(&own)]).await;
        let refused = harness.ask(ACQUIRE, &charges).await;
        check_eq!(outcomes(&refused), [Blocked, Allowed], "{own}");
        check_eq!(refused.retry_after(), Some(span), "{own}");
        harness.advance(span);
        check!(harness.ask(ACQUIRE, &charges).await.is_allowed(), "{own}");
    });
}

/// Checks that a hold keeps only the charge that pays, and that its settlement changes no other
/// state.
pub(super) fn a_hold_keeps_the_charge_that_pays<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, own| {
        let pool = harness.hourly("pool", 9, "");
        let charges = [option(&own, 1).cost(4), option(&pool, 1).cost(4)];
        let [first, second] = ["first", "second"].map(|id| CallId::new(id, TTL));
        for (id, expected) in [(first, [Allowed, Skipped]), (second, [Skipped, Allowed])] {
            let held = harness.must(id, Operation::Hold, &charges).await;
            check_eq!(outcomes(&held), expected, "{own}");
            let again = harness.must(id, Operation::Hold, &charges).await;
            check_eq!(again, held, "{own}: a repeated hold");
        }
        check_eq!(remaining_of(harness, &pool).await, 5, "{own}");
        let actual = charges.map(|charge| charge.cost(1));
        let settled = harness.must(second, Operation::Settle, &actual).await;
        check_eq!(settled.amounts(), [0, 3], "{own}");
        check_eq!(remaining(&settled), [1, 8], "{own}");
        let settled = harness.must(first, Operation::Settle, &actual).await;
        check_eq!(settled.amounts(), [3, 0], "{own}");
        check_eq!(remaining(&settled), [4, 8], "{own}");
    });
}

/// Checks that slots can be alternatives, and that only the hold's own slots become free.
pub(super) fn slots_are_alternatives<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let own = policy("own: concurrent 1 lease 60s");
        let pool = policy("pool: concurrent 2 lease 60s");
        let charges = [option(&own, 1), option(&pool, 1)];
        let ids = ["a", "b", "c", "d"].map(|id| CallId::new(id, TTL));
        let paid = [[Allowed, Skipped], [Skipped, Allowed], [Skipped, Allowed]];
        for (id, expected) in ids.into_iter().zip(paid) {
            let held = harness.must(id, Operation::Hold, &charges).await;
            check_eq!(outcomes(&held), expected);
            let has_fence = held.fences().iter().map(Option::is_some);
            let has_slot = expected.iter().map(|outcome| *outcome == Allowed);
            check!(has_fence.eq(has_slot), "a fence for each slot, and not {:?}", held.fences());
        }
        let refused = harness.must(ids[3], Operation::Hold, &charges).await;
        check!(refused.is_denied());
        check_eq!(refused.retry_after(), None, "a slot can become free at any time");
        let free = charges.map(|charge| charge.cost(0));
        let _ = harness.must(ids[1], Operation::Settle, &free).await;
        check_eq!(remaining_of(harness, &own).await, 0);
        check_eq!(remaining_of(harness, &pool).await, 1);
        let held = harness.must(ids[3], Operation::Hold, &charges).await;
        check_eq!(outcomes(&held), [Skipped, Allowed]);
    });
}

/// Checks that calls with lists that are not valid are errors, and write nothing.
pub(super) fn lists_that_make_no_sense_are_errors<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, own| {
        let pool = harness.hourly("pool", 9, "");
        let shadow = harness.hourly("shadow", 9, " shadow");
        let blocking = harness.hourly("blocking", 9, " block 1m");
        let list = |policy| option(policy, 1);
        let before = harness.snapshot(&[plain(&own), plain(&pool)]).await;
        for (operation, charges) in [
            (ACQUIRE, [list(&own), list(&shadow)]),
            (ACQUIRE, [list(&own), list(&blocking)]),
            (ACQUIRE, [list(&own), list(&pool).check_only()]),
            (ACQUIRE, [list(&own), list(&own)]),
            (ACQUIRE, [plain(&own), list(&own)]),
            (ACQUIRE, [list(&own), option(&own, 2)]),
            (Operation::AcquireUpTo { min: 1 }, [list(&own), list(&pool)]),
            (Operation::Charge, [list(&own), list(&pool)]),
            (Operation::Refund, [list(&own), list(&pool)]),
        ] {
            let kind = harness.try_ask(operation, &charges).await.map_err(|error| error.kind());
            check_eq!(kind, Err(ErrorKind::InvalidCall), "{own}, {operation:?}, {charges:?}");
        }
        check_eq!(harness.snapshot(&[plain(&own), plain(&pool)]).await, before, "{own}");
    });
}
