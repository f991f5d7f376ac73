//! Tests whether a call can be leased, and computes the hashes by which leases are found.

use std::hash::{BuildHasher, Hasher};

use crate::layers::generations::Keys;
use crate::policy::Rule;
use crate::sync::hash::RandomState;
use crate::{Call, Charge, Charges, Operation, Policy};

/// The maximum number of charges of a leased call, because each lease keeps a copy of the charges.
pub(super) const MAX_CHARGES: usize = 8;

pub(super) const MAX_NAME_BYTES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseId {
    pub(super) hash: u64,
    /// A number that distinguishes successive leases of one call.
    pub(super) serial: u64,
}

/// Returns `true` if the call is an acquire without an id. No other call is admitted from a chunk.
pub(super) fn is_plain_acquire(call: &Call<'_>) -> bool {
    call.operation == Operation::Acquire && call.id.is_none()
}

/// Returns a hash of the policies, tenants and subjects of a call, without the costs. The hash
/// covers all settings of a policy, so that a call does not use the lease of an earlier version of
/// its policy.
pub(super) fn call_hash(charges: Charges<'_>, hasher: &RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    for charge in charges.iter() {
        state.write_u64(charge.policy.settings_hash());
        state.write_usize(charge.tenant.len());
        state.write(charge.tenant);
        state.write_usize(charge.subject.len());
        state.write(charge.subject);
    }
    state.finish()
}

pub(super) fn state_key(charge: &Charge<'_>, hasher: &RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(charge.policy.state_hash());
    state.write_usize(charge.tenant.len());
    state.write(charge.tenant);
    state.write(charge.state_subject());
    state.finish()
}

pub(super) fn state_keys(charges: Charges<'_>, hasher: &RandomState) -> Keys {
    charges.iter().map(|charge| state_key(&charge, hasher)).collect()
}

pub(super) fn can_be_leased(charges: Charges<'_>, leases_sliding: bool) -> bool {
    let names: usize =
        charges.iter().map(|charge| charge.tenant.len() + charge.subject.len()).sum();
    charges.len() <= MAX_CHARGES
        && names <= MAX_NAME_BYTES
        && charges.iter().enumerate().all(|(index, charge)| {
            charge.cost > 0
                && !charge.is_check_only
                && can_policy_be_leased(charge.policy, leases_sliding)
                // Two charges to one state cannot be leased, because a hold has at most one charge
                // per state.
                && charges.iter().take(index).all(|other| !other.shares_state_with(&charge))
        })
}

fn can_policy_be_leased(policy: &Policy, leases_sliding: bool) -> bool {
    let has_leased_rule = match policy.rule() {
        Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::IntervalBucket(_) => true,
        Rule::SlidingLog(_) | Rule::SlidingCounter(_) => leases_sliding,
    };
    has_leased_rule
        // If the store refused a chunk, a policy that blocks would block the subject, although no
        // request was refused.
        && policy.block_micros() == 0
        // If a node ended before it settled a chunk, the lapsed hold would also refund the used
        // part of the chunk.
        && !policy.refunds_lapsed()
        // The settlement of a chunk would possibly be sent to another shard than the hold of the
        // chunk.
        && !policy.can_use_any_shard()
}
