//! Properties of concurrent callers. The clock stands still. The store must admit exactly the
//! limit, and all calls must end.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Call, Charge, Error, Operation, Policy, Store};

use super::fixture::Fixture;
use super::harness::{Harness, concurrently, each, policy, threads};
use super::report::{check_eq, fail};

/// Runs `callers` tasks that start together and make `calls` calls each. Returns the number of
/// admitted calls.
///
/// The closure `request` receives the number of the caller and the number of the call. It returns
/// the operation and the charges of this call.
async fn race<S: Store + 'static>(
    store: &Arc<S>,
    callers: usize,
    calls: usize,
    request: impl Fn(usize, usize) -> (Operation, Vec<OwnedCharge>) + Clone + Send + 'static,
) -> u64 {
    let counts = concurrently(callers, |caller| {
        let (store, request) = (Arc::clone(store), request.clone());
        async move {
            let mut admitted = 0;
            for call in 0..calls {
                let (operation, charges) = request(caller, call);
                let charges: Vec<_> = charges.iter().map(OwnedCharge::charge).collect();
                let decision = store.decide(Call::new(operation, &charges)).await;
                admitted += u64::from(decision?.is_allowed());
            }
            Ok::<_, Error>(admitted)
        }
    });
    let counts = counts.await.into_iter().collect::<Result<Vec<_>, _>>();
    let failed =
        |error| fail(&format!("one of {callers} concurrent callers gets an error: {error}"));
    counts.unwrap_or_else(failed).iter().sum()
}

#[derive(Clone)]
struct OwnedCharge {
    policy: Policy,
    subject: String,
    cost: u64,
}

impl OwnedCharge {
    fn new(policy: &Policy, subject: impl Into<String>, cost: u64) -> Self {
        Self { policy: policy.clone(), subject: subject.into(), cost }
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.subject).cost(self.cost)
    }
}

fn wide() -> impl Iterator<Item = Policy> {
    each().map(|policy| {
        let text = policy.to_string();
        let text = text.replace(" 5/10us", " 500/1h").replace("burst 5", "burst 500");
        super::harness::policy(&text.replace("grain 2us", "grain 1m"))
    })
}

/// Runs a case on several threads that share one store.
fn shared<F: Fixture>(
    fixture: &F,
    policy: &Policy,
    check: impl AsyncFnOnce(&Arc<F::Store>, &Harness<'_, F>),
) {
    // The callers get the store, but not its guard. The harness keeps the guard.
    threads(fixture, async |harness| {
        harness.needs(policy);
        check(&harness.store, harness).await;
    });
}

fn check_admitted(policy: &Policy, admitted: u64, limit: u64) {
    if admitted != limit {
        fail(&format!(
            "`{policy}`: concurrent callers were admitted {admitted} times, the limit is {limit}"
        ));
    }
}

/// 64 callers concurrently charge one subject. Without defect B24, all their calls end, and the
/// store counts them exactly.
pub(super) fn b24_sixty_four_callers_on_one_key_are_counted_exactly<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, _| {
            let owned = policy.clone();
            let request = move |_, _| (Operation::Acquire, vec![OwnedCharge::new(&owned, "s", 1)]);
            check_admitted(&policy, race(store, 64, 20, request).await, 500);
        });
    }
}

/// Without defect B25, if 100 concurrent callers share a limit of 5, exactly 5 of them are
/// admitted.
pub(super) fn b25_of_a_hundred_callers_five_pass<F: Fixture>(fixture: &F) {
    for policy in each() {
        shared(fixture, &policy, async |store, _| {
            for round in 0..20 {
                let owned = policy.clone();
                let request = move |_, _| {
                    (Operation::Acquire, vec![OwnedCharge::new(&owned, format!("s{round}"), 1)])
                };
                check_admitted(&policy, race(store, 100, 1, request).await, 5);
            }
        });
    }
}

/// Without defect B26, the store counts concurrent calls exactly, even if their state has just
/// expired.
pub(super) fn b26_the_first_calls_after_expiry_do_not_race<F: Fixture>(fixture: &F) {
    for policy in each() {
        shared(fixture, &policy, async |store, harness| {
            for round in 0..30 {
                harness.at(round * 1_000);
                let owned = policy.clone();
                let request =
                    move |_, _| (Operation::Acquire, vec![OwnedCharge::new(&owned, "s", 1)]);
                check_admitted(&policy, race(store, 16, 2, request).await, 5);
            }
        });
    }
}

/// Checks that concurrent callers of several subjects get exactly the limit of each subject.
pub(super) fn callers_on_several_keys_are_counted_exactly<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, _| {
            let owned = policy.clone();
            let request = move |caller: usize, call: usize| {
                let subject = format!("s{}", (caller + call) % 5);
                (Operation::Acquire, vec![OwnedCharge::new(&owned, subject, 1)])
            };
            check_admitted(&policy, race(store, 16, 250, request).await, 5 * 500);
        });
    }
}

/// Checks that concurrent calls that charge the same keys in opposite orders are counted exactly,
/// and do not deadlock.
pub(super) fn charges_in_opposite_orders_are_exact_and_end<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, harness| {
            let narrow = harness.hourly("narrow", 300, "");
            let (owned, owned_narrow) = (policy.clone(), narrow.clone());
            let request = move |caller: usize, call: usize| {
                let mut charges = vec![
                    OwnedCharge::new(&owned, "a", 1),
                    OwnedCharge::new(&owned, "b", 1),
                    OwnedCharge::new(&owned, "c", 1),
                    OwnedCharge::new(&owned_narrow, "a", 1),
                ];
                let turn = (caller + call) % charges.len();
                charges.rotate_left(turn);
                if caller.is_multiple_of(2) {
                    charges.reverse();
                }
                (Operation::Acquire, charges)
            };
            check_admitted(&policy, race(store, 16, 60, request).await, 300);
            for subject in ["a", "b", "c"] {
                let charge = Charge::new(&policy, subject).cost(0);
                let peek = harness.ask(Operation::Peek, &[charge]).await;
                check_eq!(
                    peek.verdicts()[0].remaining(),
                    200,
                    "{policy}: a refused call must charge none of its keys"
                );
            }
        });
    }
}

/// Checks that concurrent acquires and refunds add up. No acquire and no refund is lost or counted
/// twice.
pub(super) fn refunds_and_acquires_conserve_the_budget<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, harness| {
            // Each caller acquires 2 and then refunds 1. The sum stays far below the limit.
            let owned = policy.clone();
            let request = move |_, call: usize| match call % 2 {
                0 => (Operation::Acquire, vec![OwnedCharge::new(&owned, "s", 2)]),
                _ => (Operation::Refund, vec![OwnedCharge::new(&owned, "s", 1)]),
            };
            check_admitted(&policy, race(store, 16, 40, request).await, 16 * 40);
            check_eq!(harness.remaining(&policy).await, 500 - 16 * 20, "{policy}");
        });
    }
}

/// Checks that after several concurrent calls of "block at least", the longest block applies,
/// regardless of the order of the calls.
pub(super) fn the_longest_of_concurrent_blocks_holds<F: Fixture>(fixture: &F) {
    for policy in each() {
        shared(fixture, &policy, async |store, harness| {
            for round in 0..10 {
                let owned = policy.clone();
                // Each span from 1 to 160 seconds occurs once per round, in an order that differs
                // between rounds.
                let request = move |caller: usize, call: usize| {
                    let secs = (caller * 10 + call + round * 37) * 7 % 160 + 1;
                    let span = Duration::from_secs(u64::try_from(secs).unwrap_or(u64::MAX));
                    let charge = OwnedCharge::new(&owned, format!("s{round}"), 1);
                    (Operation::BlockAtLeast { span }, vec![charge])
                };
                race(store, 16, 10, request).await;
                let subject = format!("s{round}");
                let charge = Charge::new(&policy, &subject).cost(0);
                let peek = harness.ask(Operation::Peek, &[charge]).await;
                let blocked = peek.verdicts()[0].blocked_for();
                check_eq!(blocked, Duration::from_secs(160), "{policy}, round {round}");
            }
        });
    }
}

/// Checks that concurrent reservations get different places in the bucket's queue.
pub(super) fn concurrent_reservations_get_places_of_their_own<F: Fixture>(fixture: &F) {
    let bucket = policy("p: token-bucket 1/1ms burst 1");
    shared(fixture, &bucket, async |store, _| {
        let owned = bucket.clone();
        let max_wait = Duration::from_millis(99);
        let request =
            move |_, _| (Operation::Reserve { max_wait }, vec![OwnedCharge::new(&owned, "s", 1)]);
        // 100 reservations are admitted: the first does not wait, and the other 99 wait 1 to 99 ms.
        check_admitted(&bucket, race(store, 16, 10, request).await, 100);
    });
}
