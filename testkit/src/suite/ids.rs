//! Properties of calls with an id. The store executes a call with an id once, even if the call is
//! repeated.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Call, CallId, Charge, Decision, ErrorKind, MAX_ID, MAX_SPAN, Operation, Policy, Store,
    StoreExt, Timestamp,
};

use super::fixture::Fixture;
use super::harness::{Harness, START, case, cases, concurrently, each, each_case, threads};
use super::report::{check, check_eq, fail, unless_unsupported};
use crate::stores::faults::Fault;
use crate::stores::faults::Faults;

const TTL: Duration = Duration::from_micros(50);

async fn must<F: Fixture>(
    harness: &Harness<'_, F>,
    id: &[u8],
    operation: Operation,
    charges: &[Charge<'_>],
) -> Decision {
    harness.must(CallId::new(id, TTL), operation, charges).await
}

fn operations(policy: &Policy) -> Vec<Operation> {
    let mut operations = vec![
        Operation::Acquire,
        Operation::AcquireUpTo { min: 1 },
        Operation::Charge,
        Operation::Refund,
        Operation::Undo { at: Timestamp::from_micros(START) },
        Operation::Block { span: Duration::from_micros(30) },
        Operation::BlockAtLeast { span: Duration::from_micros(40) },
        Operation::Reset,
    ];
    if policy.rule().can_reserve() {
        operations.push(Operation::Reserve { max_wait: Duration::from_micros(100) });
    }
    operations
}

/// Checks that a repeated call with an id returns the first answer, and writes nothing.
pub(super) fn an_id_makes_a_call_happen_once<F: Fixture>(fixture: &F) {
    for policy in each() {
        for operation in operations(&policy) {
            case(fixture, async |harness| {
                let other = harness.hourly("other", 9, "");
                for charges in [
                    vec![Charge::new(&policy, "s").cost(2)],
                    vec![Charge::new(&policy, "t").cost(2), Charge::new(&other, "t")],
                ] {
                    if charges.len() > 1 && matches!(operation, Operation::Reserve { .. }) {
                        continue;
                    }
                    harness.at(0);
                    let all = [charges[0].cost(3)];
                    check!(harness.ask(Operation::Acquire, &all).await.is_allowed());
                    let first = must(harness, b"id", operation, &charges).await;
                    for micros in [0, 3, 49] {
                        harness.at(micros);
                        let before = harness.snapshot(&charges).await;
                        let again = must(harness, b"id", operation, &charges).await;
                        check_eq!(again, first, "{policy}, {operation:?}, {micros} us later");
                        check_eq!(
                            harness.snapshot(&charges).await,
                            before,
                            "{policy}, {operation:?}"
                        );
                    }
                }
            });
        }
    }
}

/// Checks that the store forgets an id after its time to live. Repeated calls do not prolong this
/// time.
pub(super) fn an_id_is_forgotten_after_its_time<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 9, "");
        let charge = [Charge::new(&policy, "s").cost(2)];
        for (micros, remaining) in [(0, 7), (30, 7), (49, 7), (50, 5), (99, 5), (100, 3), (40, 3)] {
            harness.at(micros);
            let decision = must(harness, b"id", Operation::Acquire, &charge).await;
            check_eq!(decision.verdicts()[0].remaining(), remaining, "after {micros} us");
        }
    });
}

/// Checks that the id of a refused call is not recorded, so that a repeated call is decided again.
pub(super) fn an_id_of_a_refused_call_is_free<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.take(&policy, 5).await;
        let charge = [Charge::new(&policy, "s").cost(2)];
        let refused = must(harness, b"id", Operation::Acquire, &charge).await;
        check!(refused.is_denied(), "{policy}");
        let wait = refused.retry_after().unwrap_or_default();
        harness.advance(wait - Duration::from_micros(1));
        check!(must(harness, b"id", Operation::Acquire, &charge).await.is_denied(), "{policy}");
        harness.advance(Duration::from_micros(1));
        let admitted = must(harness, b"id", Operation::Acquire, &charge).await;
        check!(admitted.is_allowed(), "{policy}");
        let _ = harness.ask(Operation::Charge, &charge).await;
        check_eq!(must(harness, b"id", Operation::Acquire, &charge).await, admitted, "{policy}");
        // A call with the same id and another cost is a different call, and therefore an error.
        let other = [charge[0].cost(1)];
        let error = harness.once(CallId::new("id", TTL), Operation::Acquire, &other).await;
        check_eq!(error.map_err(|error| error.kind()), Err(ErrorKind::IdReused), "{policy}");
    });
}

/// Checks that a different call under a recorded id is an error, and charges nothing.
pub(super) fn an_id_of_another_call_is_an_error<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let (policy, larger) = (harness.hourly("p", 9, ""), harness.hourly("p", 10, ""));
        let renamed = harness.hourly("q", 9, "");
        let charge_to = |policy| Charge::new(policy, "s").tenant("t").cost(2);
        let charge = charge_to(&policy);
        let first = must(harness, b"id", Operation::Acquire, &[charge]).await;
        let observed = [charge, charge_to(&renamed), Charge::new(&policy, "other").tenant("t")];
        let before = harness.snapshot(&observed).await;
        for (operation, charges) in [
            (Operation::Acquire, vec![charge.cost(3)]),
            (Operation::Acquire, vec![charge.check_only()]),
            (Operation::Acquire, vec![charge_to(&larger)]),
            (Operation::Acquire, vec![charge_to(&renamed)]),
            (Operation::Acquire, vec![Charge::new(&policy, "other").tenant("t").cost(2)]),
            (Operation::Acquire, vec![charge, charge_to(&renamed)]),
            (Operation::Charge, vec![charge]),
            (Operation::Refund, vec![charge]),
            (Operation::AcquireUpTo { min: 1 }, vec![charge]),
            (Operation::Block { span: TTL }, vec![charge]),
        ] {
            let answer = harness.once(CallId::new("id", TTL), operation, &charges).await;
            let kind = answer.map_err(|error| (error.kind(), error.is_definitely_not_charged()));
            check_eq!(kind, Err((ErrorKind::IdReused, true)), "{operation:?} {charges:?}");
        }
        check_eq!(harness.snapshot(&observed).await, before);
        check_eq!(must(harness, b"id", Operation::Acquire, &[charge]).await, first);
    });
}

/// Checks that an id belongs to a tenant or, without a tenant, to a subject. A reset of a subject
/// does not remove the ids of this subject.
pub(super) fn an_id_belongs_to_a_tenant_or_a_subject<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 9, "");
        let charges = [("", "a"), ("", "b"), ("t", "a"), ("u", "a")]
            .map(|(tenant, subject)| Charge::new(&policy, subject).tenant(tenant).cost(2));
        for charge in charges {
            let first = must(harness, b"id", Operation::Acquire, &[charge]).await;
            check_eq!(first.verdicts()[0].remaining(), 7, "{charge:?}");
        }
        let _ = harness.ask(Operation::Reset, &charges[..1]).await;
        let again = must(harness, b"id", Operation::Acquire, &charges[..1]).await;
        check_eq!(again.verdicts()[0].remaining(), 7, "the recorded answer, as before the reset");
        check_eq!(harness.ask(Operation::Peek, &charges[..1]).await.verdicts()[0].remaining(), 9);
    });
}

/// Checks that an id can consist of any bytes, and that the store never confuses two ids, or an id
/// and a state.
pub(super) fn an_id_is_any_bytes<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 1_000, "");
        let name = policy.state_name().to_string();
        let charge = [Charge::new(&policy, "s")];
        let ids: [&[u8]; 12] = [
            b"s",
            b"p",
            b"\0",
            b"\0\0",
            b"{s}",
            b"{s",
            b"s}",
            b"%",
            b"\xff\r\n",
            &[0xff; MAX_ID],
            &[0xff; MAX_ID - 1],
            name.as_bytes(),
        ];
        for round in 0..2 {
            for (taken, id) in (1_u64..).zip(ids) {
                let decision = must(harness, id, Operation::Acquire, &charge).await;
                let remaining = decision.verdicts()[0].remaining();
                check_eq!(remaining, 1_000 - taken, "{id:?}, round {round}");
            }
        }
        check_eq!(harness.remaining(&policy).await, 988);
    });
}

/// Checks that a call with an id that is not valid is an error, and charges nothing.
pub(super) fn an_id_that_is_not_valid_is_an_error<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 9, "");
        let charge = [Charge::new(&policy, "s")];
        let too_long = vec![b'x'; MAX_ID + 1];
        for (id, ttl, operation) in [
            (&b""[..], TTL, Operation::Acquire),
            (&too_long[..], TTL, Operation::Acquire),
            (&vec![b'x'; 1 << 20][..], TTL, Operation::Acquire),
            (b"id", Duration::ZERO, Operation::Acquire),
            (b"id", MAX_SPAN + Duration::from_nanos(1), Operation::Charge),
            (b"id", TTL, Operation::Peek),
        ] {
            let answer = harness.once(CallId::new(id, ttl), operation, &charge).await;
            let kind = answer.map_err(|error| error.kind());
            check_eq!(kind, Err(ErrorKind::InvalidCall), "{} bytes, {ttl:?}", id.len());
        }
        check_eq!(harness.remaining(&policy).await, 9);
        let longest = CallId::new("id", MAX_SPAN);
        let answer = harness.once(longest, Operation::Acquire, &charge).await;
        check!(answer.is_ok_and(|decision| decision.is_allowed()));
    });
}

/// Checks that a call with an id is also executed once in a batch.
pub(super) fn an_id_in_a_batch_makes_a_call_happen_once<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 9, "");
        let charge = [Charge::new(&policy, "s").cost(2)];
        let plain = Call::acquire(&charge);
        let with_id = plain.with_id(CallId::new("id", TTL));
        let other = Call::new(Operation::Charge, &charge).with_id(CallId::new("id", TTL));
        let answers = harness.store.decide_many(&[with_id, plain, with_id, other]).await;
        let answers: Vec<_> = answers.into_iter().map(unless_unsupported).collect();
        let remaining: Vec<_> = (answers.iter())
            .map(|answer| match answer {
                Ok(decision) => Ok(decision.verdicts()[0].remaining()),
                Err(error) => Err(error.kind()),
            })
            .collect();
        check_eq!(remaining, [Ok(7), Ok(5), Ok(7), Err(ErrorKind::IdReused)]);
        check_eq!(harness.remaining(&policy).await, 5);
    });
}

/// Checks that a call with an id is charged once if a caller repeats it until an answer arrives,
/// regardless of lost calls and answers.
pub(super) fn an_id_is_charged_once_whatever_is_lost<F: Fixture>(fixture: &F) {
    let lost = prop_oneof![
        Just(Fault::After(ErrorKind::Timeout)),
        Just(Fault::Before(ErrorKind::Unavailable)),
        Just(Fault::None),
    ];
    let plans = (prop::sample::select(vec![1_u64, 3]), prop::collection::vec(lost, 0..12));
    cases(fixture, plans, async |harness, (cost, plan)| {
        let policy = harness.hourly("p", 40, "");
        let store = Arc::clone(&harness.store).layer(Faults::new(plan.clone()));
        let charge = [Charge::new(&policy, "s").cost(*cost)];
        for job in 1..=4_u64 {
            let id = job.to_le_bytes();
            let call = Call::acquire(&charge).with_id(CallId::new(&id, TTL));
            let decision = loop {
                match unless_unsupported(store.decide(call).await) {
                    Ok(decision) => break decision,
                    Err(error) if error.kind() == ErrorKind::IdReused => {
                        return Err(error.to_string());
                    }
                    Err(_) => {}
                }
            };
            check_eq!(decision.verdicts()[0].remaining(), 40 - job * cost, "job {job}");
        }
        check_eq!(harness.remaining(&policy).await, 40 - 4 * cost);
        Ok(())
    });
}

/// Checks that many concurrent callers that send the same call with the same id get the same
/// answer, and that the call is charged once.
pub(super) fn an_id_of_many_callers_is_charged_once<F: Fixture>(fixture: &F) {
    threads(fixture, async |harness| {
        let policy = harness.hourly("p", 900, "");
        for round in 1..=8_u64 {
            let answers = concurrently(32, |_| {
                let (store, policy) = (Arc::clone(&harness.store), policy.clone());
                async move {
                    let (charge, id) = ([Charge::new(&policy, "s").cost(3)], round.to_le_bytes());
                    store.decide(Call::acquire(&charge).with_id(CallId::new(&id, TTL))).await
                }
            });
            for answer in answers.await {
                match unless_unsupported(answer) {
                    Ok(decision) => {
                        check_eq!(decision.verdicts()[0].remaining(), 900 - 3 * round);
                    }
                    Err(error) => {
                        fail(&format!("one of 32 concurrent callers gets an error: {error}"));
                    }
                }
            }
        }
        check_eq!(harness.remaining(&policy).await, 900 - 3 * 8);
    });
}
