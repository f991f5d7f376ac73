//! Properties of policies that count failures. Each hold of such a policy is an attempt.

use std::time::Duration;

use tidegate_core::{Block, CallId, Charge, Operation, Outcome, Policy, Verdict};

use super::fixture::Fixture;
use super::harness::{Harness, case, each_case};
use super::report::{check, check_eq};

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The time after which an attempt lapses.
const TTL: Duration = us(1_000);

fn counting(policy: &Policy) -> Policy {
    let block = Block::new(us(50)).growing(4, us(1_000), us(90_000));
    policy.clone().block_with(block).expect("within the bounds").count_failures()
}

async fn attempts<F: Fixture>(
    harness: &Harness<'_, F>,
    id: &str,
    operation: Operation,
    charges: &[Charge<'_>],
) -> Vec<Verdict> {
    harness.must(CallId::new(id, TTL), operation, charges).await.verdicts().to_vec()
}

/// Makes, fails (`cost` 1) or withdraws (`cost` 0) an attempt of the subject "s".
async fn attempt<F: Fixture>(
    harness: &Harness<'_, F>,
    id: &str,
    operation: Operation,
    policy: &Policy,
    cost: u64,
) -> Verdict {
    attempts(harness, id, operation, &[Charge::new(policy, "s").cost(cost)]).await[0]
}

/// Checks that a denial is not an offense if only open attempts cause it, whatever the operation.
/// When the attempts have failed, the next denial is an offense.
pub(super) fn a_denial_by_open_attempts_is_no_offense<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let policy = counting(&policy);
        for id in ["1", "2", "3", "4", "5"] {
            let made = attempt(harness, id, Operation::Hold, &policy, 1).await;
            check_eq!(made.outcome(), Outcome::Allowed, "{policy}");
        }
        let sixth = attempt(harness, "6", Operation::Hold, &policy, 1).await;
        check_eq!((sixth.outcome(), sixth.block_level()), (Outcome::Denied, 0), "{policy}");
        check!(sixth.blocked_for().is_zero(), "{policy}");
        let request = harness.refused(&policy, 5).await.verdicts()[0];
        check_eq!((request.outcome(), request.block_level()), (Outcome::Denied, 0), "{policy}");

        // Four attempts have failed, and one is open: only it prevents a cost of 1.
        for id in ["1", "2", "3", "4"] {
            let _ = attempt(harness, id, Operation::Settle, &policy, 1).await;
        }
        let excused = attempt(harness, "7", Operation::Hold, &policy, 1).await;
        check_eq!((excused.outcome(), excused.block_level()), (Outcome::Denied, 0), "{policy}");
        let greedy = harness.refused(&policy, 2).await.verdicts()[0];
        check_eq!(greedy.block_level(), 1, "{policy}: four failures leave one attempt");
        let _ = harness.does(Operation::Block { span: Duration::ZERO }, &policy, 0).await;
        let _ = attempt(harness, "5", Operation::Settle, &policy, 0).await;
        let again = attempt(harness, "8", Operation::Hold, &policy, 1).await;
        check_eq!(again.outcome(), Outcome::Allowed, "{policy}");
        let _ = attempt(harness, "8", Operation::Settle, &policy, 1).await;
        let offense = attempt(harness, "9", Operation::Hold, &policy, 1).await;
        check_eq!((offense.outcome(), offense.block_level()), (Outcome::Denied, 1), "{policy}");
    });
}

/// Checks that an attempt that lapses stays charged and is a failure. A late settlement still
/// refunds it.
pub(super) fn a_lapsed_attempt_is_a_failure<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = counting(&harness.hourly("p", 2, ""));
        for id in ["1", "2"] {
            let _ = attempt(harness, id, Operation::Hold, &policy, 1).await;
        }
        harness.at(999);
        let peek = harness.does(Operation::Peek, &policy, 0).await;
        check_eq!(peek.remaining(), 0, "{policy}");
        check_eq!(attempt(harness, "3", Operation::Hold, &policy, 1).await.block_level(), 0);
        harness.at(1_000);
        let offense = attempt(harness, "4", Operation::Hold, &policy, 1).await;
        check_eq!((offense.outcome(), offense.block_level()), (Outcome::Denied, 1), "{policy}");
        harness.at(1_999);
        let settled = attempt(harness, "1", Operation::Settle, &policy, 0).await;
        check_eq!((settled.remaining(), settled.block_level()), (1, 1), "{policy}");
        harness.at(9_000);
        check_eq!(harness.remaining(&policy).await, 1, "{policy}: a crash counts");
    });
}

/// Checks that an attempt that was open at a reset is charged when it fails, and not when it
/// succeeds.
pub(super) fn an_attempt_that_is_open_at_a_reset_counts_if_it_fails<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let policy = counting(&policy);
        for id in ["1", "2", "3"] {
            let _ = attempt(harness, id, Operation::Hold, &policy, 1).await;
        }
        let _ = harness.does(Operation::Reset, &policy, 0).await;
        check_eq!(harness.remaining(&policy).await, 5, "{policy}");
        for (id, cost, remaining) in [("1", 1, 4), ("2", 0, 4), ("3", 1, 3)] {
            let settled = attempt(harness, id, Operation::Settle, &policy, cost).await;
            check_eq!(settled.remaining(), remaining, "{policy}, attempt {id}");
        }
    });
}

/// Checks that an attempt on a locked account charges nothing to the address.
pub(super) fn a_locked_account_charges_no_address<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let account = counting(&harness.hourly("account", 1, ""));
        let address = counting(&harness.hourly("address", 9, ""));
        let charges = [Charge::new(&account, "s"), Charge::new(&address, "s")];
        let _ = attempts(harness, "1", Operation::Hold, &charges).await;
        let _ = attempts(harness, "1", Operation::Settle, &charges).await;
        for (id, outcome) in [("2", Outcome::Denied), ("3", Outcome::Blocked)] {
            let verdicts = attempts(harness, id, Operation::Hold, &charges).await;
            check_eq!(verdicts[0].outcome(), outcome);
            check_eq!((verdicts[1].outcome(), verdicts[1].block_level()), (Outcome::Allowed, 0));
        }
        check_eq!(harness.remaining(&address).await, 8);
    });
}
