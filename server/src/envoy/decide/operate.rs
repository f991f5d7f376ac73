//! Executes the resets and blocks of operators on the states of the limits of a request.

use std::sync::Arc;

use tidegate_core::no_semver::send_all;
use tidegate_core::{Call, Charge, Operation, Policy, Verdict};

use super::carry_out::{Stores, only, select};
use super::plan::{Limited, Planned, Rule};
use super::{DecideError, RequestError};
use crate::limits::StatKey;

/// A limit whose state an operation has changed.
#[derive(Debug)]
pub(crate) struct Operated {
    pub(crate) limit_key: Arc<StatKey>,
    /// The policy in force for the subject.
    pub(crate) policy: Policy,
    pub(crate) subject: Vec<u8>,
    pub(crate) verdict: Verdict,
}

pub(super) async fn operate(
    operation: Operation,
    planned: &[Planned],
    stores: Stores<'_>,
) -> Result<Vec<Operated>, DecideError> {
    let limits: Vec<&Limited> =
        select(planned, |_, _| Some(())).map(|(_, _, limited, ())| limited).collect();
    for limited in &limits {
        check(operation, limited)?;
    }
    let mut operated = Vec::with_capacity(limits.len());
    for limited in limits {
        let charges: Vec<[Charge<'_>; 1]> =
            policies(operation, limited).map(|policy| [charge(policy, limited)]).collect();
        let calls: Vec<Call<'_>> =
            charges.iter().map(|charge| Call::new(operation, charge)).collect();
        let decisions = send_all(&*stores.store_for(limited).store, &calls).await;
        let verdicts = decisions.into_iter().map(|decision| only(&decision?));
        let verdicts = verdicts.collect::<Result<Vec<_>, _>>()?;
        operated.extend(verdicts.first().map(|verdict| Operated {
            limit_key: Arc::clone(&limited.stat_key),
            policy: limited.in_force().clone(),
            subject: limited.subject.clone(),
            verdict: *verdict,
        }));
    }
    Ok(operated)
}

fn charge<'l>(policy: &'l Policy, limited: &'l Limited) -> Charge<'l> {
    Charge::new(policy, &limited.subject)
}

/// Returns the policies with a state that the operation changes: the policy of the limit, and after
/// a reset also the policy that counts refused hits.
fn policies(operation: Operation, limited: &Limited) -> impl Iterator<Item = &Policy> {
    let refused = match &limited.rule {
        Rule::Policy(limit) if operation == Operation::Reset => limit.refused.as_ref(),
        _ => None,
    };
    std::iter::once(limited.policy()).chain(refused)
}

/// Returns an error if the limit does not support the operation.
fn check(operation: Operation, limited: &Limited) -> Result<(), DecideError> {
    if matches!(limited.rule, Rule::Counted(_)) && operation != Operation::Reset {
        let message = format!(
            "the limit at {} cannot be blocked, because a `rate_limit` only counts; a `policy` can be \
             blocked",
            limited.limit.place
        );
        return Err(RequestError::new(message).into());
    }
    Ok(Call::new(operation, &[charge(limited.policy(), limited)]).check()?)
}
