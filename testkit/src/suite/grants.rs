//! Grants, rolled-over quota, pro-rated quota and credits.

use std::time::Duration;

use tidegate_core::{CallId, Charge, Decision, ErrorKind, Operation, Policy, Timestamp};

use super::fixture::Fixture;
use super::harness::{Harness, case, policy};
use super::report::{check, check_eq};

/// A midnight in UTC: September 22, 2026.
const MIDNIGHT: u64 = 1_790_035_200_000_000;
const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

const TTL: Duration = Duration::from_secs(400 * 86_400);

fn ends_at(micros: u64) -> Operation {
    Operation::Grant { ends_at: Some(Timestamp::from_micros(micros)) }
}

const FOREVER: Operation = Operation::Grant { ends_at: None };

async fn grant<F: Fixture>(
    harness: &Harness<'_, F>,
    policy: &Policy,
    id: &str,
    amount: u64,
    operation: Operation,
) -> Decision {
    harness.must(CallId::new(id, TTL), operation, &[Charge::new(policy, "s").cost(amount)]).await
}

/// Returns the time until a cost is admitted.
async fn wait<F: Fixture>(
    harness: &Harness<'_, F>,
    policy: &Policy,
    cost: u64,
) -> Option<Duration> {
    let charge = [Charge::new(policy, "s").cost(cost)];
    harness.ask(Operation::Peek, &charge).await.retry_after()
}

/// Checks that a store makes a grant once per id, and returns the first answer again.
pub(super) fn a_grant_is_made_once_per_id<F: Fixture>(fixture: &F) {
    for text in ["p: quota 10/day in UTC", "p: credits 10"] {
        case(fixture, async |harness| {
            harness.set(MIDNIGHT);
            let quota = policy(text);
            let first = grant(harness, &quota, "a", 5, FOREVER).await;
            check_eq!(first.verdicts()[0].remaining(), 15, "{text}");
            harness.take(&quota, 2).await;
            check_eq!(grant(harness, &quota, "a", 5, FOREVER).await, first, "{text}");
            // The numbers of the policy can change while the store remembers the id.
            let changed = policy(&text.replace("10", "11"));
            let _ = grant(harness, &changed, "a", 5, FOREVER).await;
            check_eq!(harness.remaining(&quota).await, 13, "{text}");
            for (amount, operation) in [(6, FOREVER), (5, ends_at(MIDNIGHT + DAY))] {
                let charge = [Charge::new(&quota, "s").cost(amount)];
                let error = harness.once(CallId::new("a", TTL), operation, &charge).await;
                check_eq!(error.map_err(|e| e.kind()), Err(ErrorKind::IdReused), "{text}");
            }
            let _ = grant(harness, &quota, "b", 5, FOREVER).await;
            check_eq!(harness.remaining(&quota).await, 18, "{text}");
        });
    }
}

/// Checks that the part that ends first is spent first, and that the rest of an ended part is lost.
pub(super) fn what_ends_first_is_spent_first<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(MIDNIGHT);
        let quota = policy("p: quota 10/day in UTC");
        let _ = grant(harness, &quota, "forever", 20, FOREVER).await;
        let _ = grant(harness, &quota, "later", 5, ends_at(MIDNIGHT + 3 * DAY)).await;
        let _ = grant(harness, &quota, "soon", 4, ends_at(MIDNIGHT + HOUR)).await;
        harness.take(&quota, 3).await;
        check_eq!(harness.remaining(&quota).await, 36);
        // The grant that ended had one left.
        harness.set(MIDNIGHT + HOUR - 1);
        check_eq!(harness.remaining(&quota).await, 36);
        harness.set(MIDNIGHT + HOUR);
        check_eq!(harness.remaining(&quota).await, 35);
        // These use up the quota of the day, and two of the grant that ends later.
        harness.take(&quota, 12).await;
        check_eq!(harness.remaining(&quota).await, 23);
        // The next day has its own quota. The spent part of the grant is not restored.
        harness.set(MIDNIGHT + DAY);
        check_eq!(harness.remaining(&quota).await, 33);
        harness.set(MIDNIGHT + 3 * DAY);
        check_eq!(harness.remaining(&quota).await, 30);
        harness.take(&quota, 30).await;
        let refused = harness.refused(&quota, 1).await;
        check_eq!(refused.retry_after(), Some(Duration::from_micros(DAY)));
        // No later window admits this cost.
        check_eq!(wait(harness, &quota, 11).await, None);
    });
}

/// Checks that a refund and a settlement return the part that was spent last, so that the unspent
/// part of a grant outlives the window.
pub(super) fn a_refund_returns_what_was_spent_last<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(MIDNIGHT);
        let quota = policy("p: quota 10/day in UTC");
        let _ = grant(harness, &quota, "g", 20, FOREVER).await;
        harness.take(&quota, 15).await;
        let _ = harness.does(Operation::Refund, &quota, 4).await;
        check_eq!(harness.remaining(&quota).await, 19);
        // The grant has paid one of the 11 that are still charged.
        harness.set(MIDNIGHT + DAY);
        check_eq!(harness.remaining(&quota).await, 29);

        let charge = [Charge::new(&quota, "s").cost(16)];
        let id = CallId::new("hold", Duration::from_secs(60));
        check!(harness.must(id, Operation::Hold, &charge).await.is_allowed());
        let settled = harness.must(id, Operation::Settle, &[charge[0].cost(12)]).await;
        check_eq!(settled.amounts(), [4]);
        harness.set(MIDNIGHT + 2 * DAY);
        check_eq!(harness.remaining(&quota).await, 27);
    });
}

/// Checks that a settlement refunds nothing after the end of the grant that has possibly paid.
pub(super) fn a_hold_over_the_end_of_a_grant_refunds_nothing<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(MIDNIGHT);
        let quota = policy("p: quota 10/day in UTC");
        let _ = grant(harness, &quota, "g", 5, ends_at(MIDNIGHT + HOUR)).await;
        let charge = [Charge::new(&quota, "s").cost(5)];
        let id = CallId::new("hold", Duration::from_secs(7_200));
        check!(harness.must(id, Operation::Hold, &charge).await.is_allowed());
        harness.set(MIDNIGHT + HOUR);
        harness.take(&quota, 6).await;
        let settled = harness.must(id, Operation::Settle, &[charge[0].cost(0)]).await;
        check_eq!(settled.amounts(), [0]);
        check_eq!(harness.remaining(&quota).await, 4);
    });
}

/// Checks that a state has at most 16 open grants. A refused grant leaves its id free.
pub(super) fn a_state_has_at_most_sixteen_grants<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(MIDNIGHT);
        let quota = policy("p: quota 10/day in UTC");
        for n in 1..=16 {
            let end = ends_at(MIDNIGHT + n * HOUR);
            let _ = grant(harness, &quota, &n.to_string(), 1, end).await;
        }
        let charge = [Charge::new(&quota, "s").cost(1)];
        let more = CallId::new("more", TTL);
        let error = harness.once(more, FOREVER, &charge).await;
        check_eq!(error.map_err(|e| e.kind()), Err(ErrorKind::TooManyGrants));
        // A grant with the end of another grant belongs to it.
        let _ = grant(harness, &quota, "same end", 1, ends_at(MIDNIGHT + HOUR)).await;
        check_eq!(harness.remaining(&quota).await, 27);
        // A grant that has ended changes nothing.
        let _ = grant(harness, &quota, "ended", 1, ends_at(MIDNIGHT)).await;
        check_eq!(harness.remaining(&quota).await, 27);
        harness.set(MIDNIGHT + HOUR);
        let _ = grant(harness, &quota, "more", 1, FOREVER).await;
        check_eq!(harness.remaining(&quota).await, 26);
        let too_large = [Charge::new(&quota, "t").cost(1 << 52)];
        let _ = harness.must(CallId::new("large", TTL), FOREVER, &too_large).await;
        let charge = [Charge::new(&quota, "t").cost(1)];
        let error = harness.once(CallId::new("larger", TTL), FOREVER, &charge).await;
        check_eq!(error.map_err(|e| e.kind()), Err(ErrorKind::TooManyGrants));
    });
}

/// Checks that a grant without an id, of nothing, or of a policy without quota is an error.
pub(super) fn a_grant_that_is_not_valid_is_an_error<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let (quota, window) = (policy("p: quota 10/day in UTC"), policy("w: fixed-window 5/1h"));
        let id = CallId::new("id", TTL);
        for charges in [
            vec![Charge::new(&quota, "s").cost(0)],
            vec![Charge::new(&quota, "s").cost((1 << 52) + 1)],
            vec![Charge::new(&quota, "s").check_only()],
            vec![Charge::new(&quota, "s"), Charge::new(&quota, "s")],
            vec![Charge::new(&quota, "s"), Charge::new(&window, "s")],
        ] {
            let error = harness.once(id, FOREVER, &charges).await;
            check_eq!(error.map_err(|e| e.kind()), Err(ErrorKind::InvalidCall), "{charges:?}");
        }
        let error = harness.try_ask(FOREVER, &[Charge::new(&quota, "s")]).await;
        check_eq!(error.map_err(|e| e.kind()), Err(ErrorKind::InvalidCall));
    });
}

/// Checks that unused quota rolls over once, also from idle windows, and is spent first.
pub(super) fn unused_quota_rolls_over_once<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(MIDNIGHT);
        let quota = policy("p: quota 10/day in UTC rollover 1/2");
        harness.take(&quota, 3).await;
        // 7 are unused, and half of them roll over, rounded down.
        harness.set(MIDNIGHT + DAY);
        check_eq!(harness.remaining(&quota).await, 13);
        harness.take(&quota, 5).await;
        // The three that were rolled over are spent first, and 8 of the day's quota are unused.
        harness.set(MIDNIGHT + 2 * DAY);
        check_eq!(harness.remaining(&quota).await, 14);
        // An idle day leaves its whole quota. Rolled-over quota does not roll over again.
        harness.set(MIDNIGHT + 3 * DAY);
        check_eq!(harness.remaining(&quota).await, 15);
        harness.set(MIDNIGHT + 9 * DAY);
        check_eq!(harness.remaining(&quota).await, 15);
        // The store has forgotten the subject.
        harness.set(MIDNIGHT + 40 * DAY);
        check_eq!(harness.remaining(&quota).await, 10);
        // A grant does not roll over.
        harness.take(&quota, 10).await;
        let _ = grant(harness, &quota, "g", 8, ends_at(MIDNIGHT + 42 * DAY)).await;
        harness.set(MIDNIGHT + 41 * DAY);
        check_eq!(harness.remaining(&quota).await, 18);
        harness.set(MIDNIGHT + 42 * DAY);
        check_eq!(harness.remaining(&quota).await, 15);
    });
}

/// Checks that a cost above the limit waits until enough quota has rolled over.
pub(super) fn a_wait_counts_on_what_will_roll_over<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(MIDNIGHT);
        let quota = policy("p: quota 10/day in UTC rollover 1/2");
        harness.take(&quota, 10).await;
        check_eq!(wait(harness, &quota, 10).await, Some(Duration::from_micros(DAY)));
        check_eq!(wait(harness, &quota, 15).await, Some(Duration::from_micros(2 * DAY)));
        check_eq!(wait(harness, &quota, 16).await, None);
        harness.set(MIDNIGHT + 2 * DAY);
        harness.take(&quota, 15).await;
    });
}

/// Checks that the limit of the window in which a subscription begins is pro-rated.
pub(super) fn the_first_window_is_pro_rated<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        // A third of September 22 is left at 16:00.
        let plan = policy("p: quota 100/day in UTC");
        let since = policy("p: quota 100/day in UTC since 2026-09-22T16:00");
        harness.set(MIDNIGHT + 17 * HOUR);
        check_eq!(harness.remaining(&since).await, 33);
        harness.take(&since, 33).await;
        let refused = harness.refused(&since, 1).await;
        check_eq!(refused.retry_after(), Some(Duration::from_micros(7 * HOUR)));
        check_eq!(harness.remaining(&plan).await, 67);
        harness.set(MIDNIGHT + DAY);
        check_eq!(harness.remaining(&since).await, 100);
        // At least 1 is left, and nothing before the window of the subscription.
        let late = policy("q: quota 100/day in UTC since 2026-09-23T23:59:59");
        check_eq!(harness.remaining(&late).await, 1);
        harness.set(MIDNIGHT);
        check_eq!(harness.remaining(&late).await, 0);
    });
}

/// Checks that credits are never refilled, that grants top them up, and that they never expire.
pub(super) fn credits_last_until_they_are_spent<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(MIDNIGHT);
        let credits = policy("p: credits 5");
        harness.take(&credits, 4).await;
        harness.set(MIDNIGHT + 3_650 * DAY);
        check_eq!(harness.remaining(&credits).await, 1);
        check_eq!(harness.refused(&credits, 2).await.retry_after(), None);
        let _ = grant(harness, &credits, "g", 10, FOREVER).await;
        check_eq!(harness.remaining(&credits).await, 11);
        harness.take(&credits, 11).await;
        let refused = harness.refused(&credits, 1).await.verdicts()[0];
        check!(refused.reset_after() > Duration::from_micros(20_000 * DAY));
        harness.set(Timestamp::MAX.as_micros());
        let _ = harness.refused(&credits, 1).await;
    });
}
