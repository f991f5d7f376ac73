//! Properties of blocks that grow with each offense, and of blocks that restart.

use std::time::Duration;

use tidegate_core::{Block, CallId, Charge, Operation, Outcome, Policy, Verdict};

use super::fixture::Fixture;
use super::harness::{Harness, case, each_case};
use super::report::{check, check_eq};

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The lengths of the blocks of [`growing`] at the levels from 1, in microseconds.
const LENGTHS: [u64; 6] = [50, 200, 800, 1_000, 1_000, 1_000];
const MAX_LEVEL: u8 = 4;
const FORGET: u64 = 5_000;

fn growing() -> Block {
    Block::new(us(50)).growing(4, us(1_000), us(FORGET))
}

fn with(policy: &Policy, block: Block) -> Policy {
    policy.clone().block_with(block).expect("within the bounds")
}

/// Uses up the limit, so that the next request of the subject "s" is denied. Returns the verdict of
/// the denial.
async fn offend<F: Fixture>(harness: &Harness<'_, F>, policy: &Policy) -> Verdict {
    harness.take(policy, 5).await;
    harness.refused(policy, 1).await.verdicts()[0]
}

/// Checks that each block is longer than the previous block, up to the maximum. Refusals during a
/// block do not extend it and do not count.
pub(super) fn a_block_grows_with_each_offense<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let policy = with(&policy, growing());
        let mut at = 0;
        for (level, length) in (1..).zip(LENGTHS) {
            harness.at(at);
            let level = MAX_LEVEL.min(level);
            let verdict = offend(harness, &policy).await;
            check_eq!(verdict.outcome(), Outcome::Denied, "{policy}");
            check_eq!(verdict.block_level(), level, "{policy}");
            check_eq!(verdict.blocked_for(), us(length), "{policy}, level {level}");
            check_eq!(verdict.retry_after(), Some(us(length)), "{policy}, level {level}");
            for later in [1, length / 2, length - 1] {
                harness.at(at + later);
                let verdict = harness.refused(&policy, 1).await.verdicts()[0];
                check_eq!(verdict.outcome(), Outcome::Blocked, "{policy}");
                check_eq!(verdict.block_level(), level, "{policy}");
                check_eq!(verdict.blocked_for(), us(length - later), "{policy}, level {level}");
            }
            at += length;
        }
        harness.at(at);
        let admitted = harness.acquire(&policy, 1).await.verdicts()[0];
        check_eq!(admitted.outcome(), Outcome::Allowed, "{policy}");
        check_eq!(admitted.block_level(), MAX_LEVEL, "{policy}: the offenses are remembered");
    });
}

/// Checks that the end of a block restores no budget, so that the next request is another offense.
pub(super) fn the_end_of_a_block_restores_no_budget<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = with(&harness.hourly("p", 5, ""), growing());
        harness.take(&policy, 5).await;
        let mut at = 0;
        for (level, length) in (1..).zip(&LENGTHS[..4]) {
            harness.at(at);
            let verdict = harness.refused(&policy, 1).await.verdicts()[0];
            check_eq!(verdict.outcome(), Outcome::Denied);
            check_eq!(verdict.blocked_for(), us(*length));
            check_eq!(verdict.block_level(), level);
            at += length;
        }
    });
}

/// Checks that all offenses are forgotten together, a certain time after the last block has ended.
pub(super) fn offenses_are_forgotten_together<F: Fixture>(fixture: &F) {
    for (late, level) in [(1, 3), (0, 1)] {
        each_case(fixture, async |harness, policy| {
            let policy = with(&policy, growing());
            offend(harness, &policy).await;
            harness.at(60);
            offend(harness, &policy).await;
            harness.at(60 + 200 + FORGET - late);
            let remembered = harness.does(Operation::Peek, &policy, 0).await.block_level();
            check_eq!(remembered, level - 1, "{policy}");
            let verdict = offend(harness, &policy).await;
            check_eq!(verdict.block_level(), level, "{policy}");
            check_eq!(verdict.blocked_for(), us(LENGTHS[usize::from(level) - 1]), "{policy}");
        });
    }
}

/// Checks that each refusal during a block restarts the block at the same level, if the policy says
/// so. A peek and a cost above the limit restart no block, and no block is shortened.
pub(super) fn a_refusal_restarts_the_block_of_a_policy_with_restart<F: Fixture>(fixture: &F) {
    for (block, level, length) in
        [(Block::new(us(200)).restarting(), 0, 200), (growing().restarting(), 2, 200)]
    {
        each_case(fixture, async |harness, policy| {
            let policy = with(&policy, block);
            if level > 0 {
                offend(harness, &policy).await;
                harness.at(100);
            }
            check_eq!(offend(harness, &policy).await.blocked_for(), us(length), "{policy}");
            for at in [110, 300, 499] {
                harness.at(at);
                let verdict = harness.refused(&policy, 1).await.verdicts()[0];
                check_eq!(verdict.outcome(), Outcome::Blocked, "{policy}");
                check_eq!(verdict.blocked_for(), us(length), "{policy}");
                check_eq!(verdict.retry_after(), Some(us(length)), "{policy}");
                check_eq!(verdict.block_level(), level, "{policy}");
            }
            harness.at(600);
            let _ = harness.does(Operation::Peek, &policy, 1).await;
            let _ = harness.acquire(&policy, 0).await;
            let never = harness.refused(&policy, 6).await.verdicts()[0];
            check_eq!(never.blocked_for(), us(99), "{policy}");
            harness.does(Operation::Block { span: us(1_000) }, &policy, 1).await;
            let longer = harness.refused(&policy, 1).await.verdicts()[0];
            check_eq!(longer.blocked_for(), us(1_000), "{policy}");
            harness.at(1_600);
            let admitted = harness.acquire(&policy, 1).await.verdicts()[0];
            check_eq!((admitted.outcome(), admitted.block_level()), (Outcome::Allowed, level));
        });
    }
}

/// Checks that a restart changes nothing if the block ends later anyway. The offenses are then
/// forgotten at the same time as before.
pub(super) fn a_restart_that_prolongs_no_block_changes_nothing<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let forgetful = Block::new(us(10)).growing(2, us(20), us(1)).restarting();
        let forgetful = with(&policy, forgetful);
        check_eq!(offend(harness, &with(&policy, growing())).await.block_level(), 1, "{policy}");
        for (at, left) in [(10, 40), (40, 10)] {
            harness.at(at);
            let blocked = harness.refused(&forgetful, 1).await.verdicts()[0];
            check_eq!(blocked.blocked_for(), us(left), "{policy} at {at}");
        }
        harness.at(60);
        let peek = harness.does(Operation::Peek, &forgetful, 0).await;
        check_eq!(peek.block_level(), 1, "{policy}");
    });
}

/// Checks that a block of zero and a reset forget the offenses. A block of zero does not change the
/// usage. Any other block keeps the offenses, and they are forgotten after its end.
pub(super) fn an_unblock_forgets_the_offenses<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let policy = with(&policy, growing());
        let block = |micros| Operation::Block { span: us(micros) };
        for (forget, remaining) in [(block(0), 2), (Operation::Reset, 5)] {
            harness.does(Operation::Reset, &policy, 0).await;
            harness.take(&policy, 3).await;
            let first = harness.refused(&policy, 3).await.verdicts()[0];
            check_eq!(first.block_level(), 1, "{policy}");
            let forgotten = harness.does(forget, &policy, 1).await;
            check_eq!(forgotten.outcome(), Outcome::Allowed, "{policy}");
            check_eq!(forgotten.block_level(), 0, "{policy}");
            check_eq!(forgotten.remaining(), remaining, "{policy}");
            harness.take(&policy, remaining).await;
            let again = harness.refused(&policy, 1).await.verdicts()[0];
            check_eq!(again.block_level(), 1, "{policy}");
        }
        harness.does(Operation::Reset, &policy, 0).await;
        check_eq!(offend(harness, &policy).await.block_level(), 1, "{policy}");
        let banned = harness.does(block(FORGET), &policy, 1).await;
        check_eq!((banned.blocked_for(), banned.block_level()), (us(FORGET), 1), "{policy}");
        // After the block has ended, a block of zero still forgets the offenses.
        harness.at(2 * FORGET - 1);
        let level = harness.does(Operation::Peek, &policy, 0).await.block_level();
        check_eq!(level, 1, "{policy}: the last block determines when the offenses are forgotten");
        check_eq!(harness.does(block(0), &policy, 0).await.block_level(), 0, "{policy}");
        check_eq!(offend(harness, &policy).await.block_level(), 1, "{policy}");
    });
}

/// Checks that only a denial by the policy itself is an offense. A denial of a shadow and of a
/// check-only charge count too.
pub(super) fn only_a_denial_by_the_policy_is_an_offense<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let policy = with(&policy, growing());
        let other = harness.hourly("other", 1, "");
        let (own, closed) = (Charge::new(&policy, "s").cost(2), Charge::new(&other, "s"));
        harness.take(&other, 1).await;
        check!(harness.ask(Operation::Acquire, &[own, closed]).await.is_denied(), "{policy}");
        harness.take(&policy, 4).await;
        harness.does(Operation::Peek, &policy, 2).await;
        let _ = harness.refused(&policy, 6).await; // A cost above the limit does not count.
        harness.does(Operation::Charge, &policy, 2).await;
        let refunded = harness.does(Operation::Refund, &policy, 1).await;
        check_eq!(refunded.block_level(), 0, "{policy}");

        // Two charges of one call to one state are one offense.
        let denied = harness.ask(Operation::Acquire, &[own, own, closed]).await;
        let levels: Vec<_> = denied.verdicts().iter().map(Verdict::block_level).collect();
        check_eq!(levels, [1, 1, 0], "{policy}");
        harness.at(60);
        harness.take(&policy, 4).await;
        let denied = harness.ask(Operation::Acquire, &[own.check_only()]).await;
        check_eq!(denied.verdicts()[0].block_level(), 2, "{policy}");
        harness.at(300);
        harness.take(&policy, 4).await;
        let denied = harness.does(Operation::AcquireUpTo { min: 2 }, &policy, 3).await;
        check_eq!(denied.block_level(), 3, "{policy}");
        check_eq!(denied.blocked_for(), us(800), "{policy}");
    });
    case(fixture, async |harness| {
        let shadow = with(&harness.hourly("p", 1, ""), growing()).shadow();
        harness.needs(&shadow);
        for level in [0, 1, 1] {
            let verdict = harness.does(Operation::Acquire, &shadow, 1).await;
            check_eq!(verdict.block_level(), level);
        }
    });
}

/// Checks that offenses are kept if the policy changes to a block without growth, and back.
pub(super) fn offenses_survive_a_changed_block<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let (plain, grows) = (with(&policy, Block::new(us(70))), with(&policy, growing()));
        let first = offend(harness, &plain).await;
        check_eq!((first.block_level(), first.blocked_for()), (0, us(70)), "{plain}");
        let blocked = harness.refused(&grows, 1).await.verdicts()[0];
        check_eq!((blocked.block_level(), blocked.blocked_for()), (0, us(70)), "{grows}");
        for (at, policy, level, length) in [
            (100, &grows, 1, 50),
            (200, &plain, 1, 70),
            (300, &grows, 2, 200),
            (600, &policy, 2, 0),
            (700, &grows, 3, 800),
        ] {
            harness.at(at);
            let verdict = offend(harness, policy).await;
            check_eq!(verdict.block_level(), level, "{policy} at {at}");
            check_eq!(verdict.blocked_for(), us(length), "{policy} at {at}");
        }
        // A block of a policy without growth that outlasts the offenses keeps them until its end.
        harness.at(1_600);
        let long = with(&policy, Block::new(us(2 * FORGET)));
        check_eq!(offend(harness, &long).await.block_level(), 3, "{long}");
        for (at, level) in [(1_600 + 2 * FORGET - 1, 3), (1_600 + 2 * FORGET, 0)] {
            harness.at(at);
            let peek = harness.does(Operation::Peek, &long, 0).await;
            check_eq!(peek.block_level(), level, "{long} at {at}");
        }
    });
}

/// Checks that a refused hold is an offense, and that holds and settlements keep the offenses.
pub(super) fn holds_keep_the_offenses<F: Fixture>(fixture: &F) {
    for refunds_lapsed in [false, true] {
        each_case(fixture, async |harness, policy| {
            let policy = with(&policy, growing());
            let policy = if refunds_lapsed { policy.refund_lapsed() } else { policy };
            for (at, id, operation, cost, level) in [
                (0, "1", Operation::Hold, 4, 0),
                (0, "2", Operation::Hold, 2, 1),
                (60, "3", Operation::Hold, 4, 1),
                (60, "3", Operation::Settle, 1, 1),
                (60, "4", Operation::Hold, 4, 1),
                (60, "4", Operation::SettleSoFar, 7, 1),
                (60, "5", Operation::Hold, 1, 2),
                (70, "4", Operation::Settle, 8, 2),
            ] {
                harness.at(at);
                let charge = [Charge::new(&policy, "s").cost(cost)];
                let verdict = must(harness, id, operation, &charge).await;
                check_eq!(verdict.block_level(), level, "{policy}, hold {id}");
            }
            harness.at(2_500); // All holds have expired.
            let peek = harness.does(Operation::Peek, &policy, 0).await;
            check_eq!(peek.block_level(), 2, "{policy}");
            check_eq!(offend(harness, &policy).await.block_level(), 3, "{policy}");
        });
    }
}

/// Checks that the offenses are kept if the last hold on a state is refunded, so that nothing else
/// remains in the state.
pub(super) fn offenses_outlive_the_last_hold<F: Fixture>(fixture: &F) {
    for refunds_lapsed in [false, true] {
        case(fixture, async |harness| {
            let policy = with(&harness.hourly("p", 5, ""), growing());
            let policy = if refunds_lapsed { policy.refund_lapsed() } else { policy };
            for (at, id, operation, cost) in [
                (0, "1", Operation::Hold, 5),
                (0, "2", Operation::Hold, 1),
                (100, "1", Operation::Settle, 0),
            ] {
                harness.at(at);
                let charge = [Charge::new(&policy, "s").cost(cost)];
                let _ = must(harness, id, operation, &charge).await;
            }
            let peek = harness.does(Operation::Peek, &policy, 0).await;
            check_eq!((peek.remaining(), peek.block_level()), (5, 1), "{policy}");
            check_eq!(offend(harness, &policy).await.block_level(), 2, "{policy}");
        });
    }
}

async fn must<F: Fixture>(
    harness: &Harness<'_, F>,
    id: &str,
    operation: Operation,
    charge: &[Charge<'_>],
) -> Verdict {
    harness.must(CallId::new(id, us(1_000)), operation, charge).await.verdicts()[0]
}
