//! Many callers at once, under a clock that stands still: exact counts, and an end.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Call, Charge, Error, Operation, Policy, Store};
use tokio::sync::Barrier;

use super::fixture::Fixture;
use super::harness::{Harness, each, policy, threads};
use super::report::{check_eq, fail};

/// Lets `callers` make `calls` calls each, all starting at once; tells how many were admitted.
///
/// A caller's charges are told by its number and the number of its call.
async fn race<S: Store + 'static>(
    store: &Arc<S>,
    callers: usize,
    calls: usize,
    ask: impl Fn(usize, usize) -> (Operation, Vec<Asked>) + Clone + Send + 'static,
) -> u64 {
    let barrier = Arc::new(Barrier::new(callers));
    let run = |caller| {
        let (store, barrier, ask) = (Arc::clone(store), Arc::clone(&barrier), ask.clone());
        tokio::spawn(async move {
            barrier.wait().await;
            let mut admitted = 0;
            for call in 0..calls {
                let (operation, asked) = ask(caller, call);
                let charges: Vec<_> = asked.iter().map(Asked::charge).collect();
                let decision = store.decide(Call::new(operation, &charges)).await;
                admitted += u64::from(decision?.is_allowed());
            }
            Ok::<_, Error>(admitted)
        })
    };
    let tasks: Vec<_> = (0..callers).map(run).collect();
    let mut admitted = 0;
    for task in tasks {
        match task.await {
            Ok(Ok(count)) => admitted += count,
            Ok(Err(error)) => {
                fail(&format!("one of {callers} callers at once gets an error: {error}"))
            }
            Err(error) => fail(&format!("one of {callers} callers at once panics: {error}")),
        }
    }
    admitted
}

/// A charge that owns what it is about.
#[derive(Clone)]
struct Asked {
    policy: Policy,
    subject: String,
    cost: u64,
}

impl Asked {
    fn new(policy: &Policy, subject: impl Into<String>, cost: u64) -> Self {
        Self { policy: policy.clone(), subject: subject.into(), cost }
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.subject).cost(self.cost)
    }
}

/// One of each algorithm, at most 500 at once.
fn wide() -> impl Iterator<Item = Policy> {
    each().map(|policy| {
        let text = policy.to_string();
        let text = text.replace(" 5/10us", " 500/1h").replace("burst 5", "burst 500");
        super::harness::policy(&text.replace("grain 2us", "grain 1m"))
    })
}

/// Runs a case with the store shared between threads.
fn shared<F: Fixture>(
    fixture: &F,
    policy: &Policy,
    check: impl AsyncFnOnce(&Arc<F::Store>, &Harness<'_, F>),
) {
    // The guard lives in the harness; only the store is shared.
    threads(fixture, async |harness| {
        harness.needs(policy);
        check(&harness.store, harness).await;
    });
}

/// Fails unless callers at once were admitted just as often as the limit says.
fn all_of_the_limit(policy: &Policy, admitted: u64, limit: u64) {
    if admitted != limit {
        fail(&format!(
            "`{policy}`, many callers at once: admitted {admitted}, the limit is {limit}"
        ));
    }
}

/// B24: 64 callers on one key all come to an end, and the count is exact.
pub(super) fn b24_sixty_four_callers_on_one_key_are_counted_exactly<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, _| {
            let of = policy.clone();
            let ask = move |_, _| (Operation::Acquire, vec![Asked::new(&of, "s", 1)]);
            all_of_the_limit(&policy, race(store, 64, 20, ask).await, 500);
        });
    }
}

/// B25: of 100 callers on a limit of 5, just 5 pass.
pub(super) fn b25_of_a_hundred_callers_five_pass<F: Fixture>(fixture: &F) {
    for policy in each() {
        shared(fixture, &policy, async |store, _| {
            for round in 0..20 {
                let of = policy.clone();
                let ask =
                    move |_, _| (Operation::Acquire, vec![Asked::new(&of, format!("s{round}"), 1)]);
                all_of_the_limit(&policy, race(store, 100, 1, ask).await, 5);
            }
        });
    }
}

/// B26: so it is on a key that was there and has expired.
pub(super) fn b26_the_first_calls_after_expiry_do_not_race<F: Fixture>(fixture: &F) {
    for policy in each() {
        shared(fixture, &policy, async |store, harness| {
            for round in 0..30 {
                harness.at(round * 1_000);
                let of = policy.clone();
                let ask = move |_, _| (Operation::Acquire, vec![Asked::new(&of, "s", 1)]);
                all_of_the_limit(&policy, race(store, 16, 2, ask).await, 5);
            }
        });
    }
}

/// Several keys at once: each admits its limit.
pub(super) fn callers_on_several_keys_are_counted_exactly<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, _| {
            let of = policy.clone();
            let ask = move |caller: usize, call: usize| {
                let subject = format!("s{}", (caller + call) % 5);
                (Operation::Acquire, vec![Asked::new(&of, subject, 1)])
            };
            all_of_the_limit(&policy, race(store, 16, 250, ask).await, 5 * 500);
        });
    }
}

/// All-or-nothing charges over the same keys in opposite orders: exact, and no deadlock.
pub(super) fn charges_in_opposite_orders_are_exact_and_end<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, harness| {
            let narrow = harness.hourly("narrow", 300, "");
            let (of, least) = (policy.clone(), narrow.clone());
            let ask = move |caller: usize, call: usize| {
                let mut asked = vec![
                    Asked::new(&of, "a", 1),
                    Asked::new(&of, "b", 1),
                    Asked::new(&of, "c", 1),
                    Asked::new(&least, "a", 1),
                ];
                let turn = (caller + call) % asked.len();
                asked.rotate_left(turn);
                if caller.is_multiple_of(2) {
                    asked.reverse();
                }
                (Operation::Acquire, asked)
            };
            all_of_the_limit(&policy, race(store, 16, 60, ask).await, 300);
            for subject in ["a", "b", "c"] {
                let asked = Asked::new(&policy, subject, 0);
                let charge = [asked.charge()];
                let peek = store.decide(Call::new(Operation::Peek, &charge)).await;
                let remaining = peek.expect("no error").verdicts()[0].remaining();
                check_eq!(remaining, 200, "{policy}: charged without its companions");
            }
        });
    }
}

/// Acquires and refunds at once: nothing is lost and nothing is minted.
pub(super) fn refunds_and_acquires_conserve_the_budget<F: Fixture>(fixture: &F) {
    for policy in wide() {
        shared(fixture, &policy, async |store, _| {
            // Each caller takes two and gives one back, far below the limit.
            let of = policy.clone();
            let ask = move |_, call: usize| match call % 2 {
                0 => (Operation::Acquire, vec![Asked::new(&of, "s", 2)]),
                _ => (Operation::Refund, vec![Asked::new(&of, "s", 1)]),
            };
            all_of_the_limit(&policy, race(store, 16, 40, ask).await, 16 * 40);
            let asked = Asked::new(&policy, "s", 0);
            let charge = [asked.charge()];
            let peek = store.decide(Call::new(Operation::Peek, &charge)).await;
            let remaining = peek.expect("no error").verdicts()[0].remaining();
            check_eq!(remaining, 500 - 16 * 20, "{policy}");
        });
    }
}

/// Blocks for at least a span, written at once in any order: the one that ends last holds.
pub(super) fn of_blocks_of_at_least_a_span_the_last_to_end_holds<F: Fixture>(fixture: &F) {
    for policy in each() {
        shared(fixture, &policy, async |store, _| {
            for round in 0..10 {
                let of = policy.clone();
                // Each of 1 to 160 seconds once, in another order in each round.
                let ask = move |caller: usize, call: usize| {
                    let secs = (caller * 10 + call + round * 37) * 7 % 160 + 1;
                    let span = Duration::from_secs(u64::try_from(secs).unwrap_or(u64::MAX));
                    let asked = Asked::new(&of, format!("s{round}"), 1);
                    (Operation::BlockAtLeast { span }, vec![asked])
                };
                race(store, 16, 10, ask).await;
                let asked = Asked::new(&policy, format!("s{round}"), 0);
                let charge = [asked.charge()];
                let peek = store.decide(Call::new(Operation::Peek, &charge)).await;
                let blocked = peek.expect("no error").verdicts()[0].blocked_for();
                check_eq!(blocked, Duration::from_secs(160), "{policy}, round {round}");
            }
        });
    }
}

/// Reservations made at once get places of their own, one after the other.
pub(super) fn concurrent_reservations_get_places_of_their_own<F: Fixture>(fixture: &F) {
    let bucket = policy("p: token-bucket 1/1ms burst 1");
    shared(fixture, &bucket, async |store, _| {
        let of = bucket.clone();
        let max_wait = Duration::from_millis(99);
        let ask = move |_, _| (Operation::Reserve { max_wait }, vec![Asked::new(&of, "s", 1)]);
        // One passes at once, and one at each of 99 milliseconds.
        all_of_the_limit(&bucket, race(store, 16, 10, ask).await, 100);
    });
}
