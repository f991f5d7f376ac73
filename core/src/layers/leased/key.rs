//! Which calls can be admitted from a lease, and the hashes by which leases are found.

use std::hash::{BuildHasher, Hasher};

use crate::layers::generations::Keys;
use crate::policy::Rule;
use crate::sync::hash::RandomState;
use crate::{Call, Charge, Charges, Operation, Policy};

/// Calls with more charges than this are not leased: each lease keeps them.
pub(super) const MAX_CHARGES: usize = 8;

/// Calls with more bytes of tenants and subjects than this are not leased.
pub(super) const MAX_NAME_BYTES: usize = 1024;

/// Whether the call only acquires, so that it may be admitted from a lease.
pub(super) fn is_plain_acquire(call: &Call<'_>) -> bool {
    call.operation == Operation::Acquire && call.id.is_none()
}

/// Returns a hash of the policies, tenants and subjects of a call, without the costs. It covers all
/// settings of a policy, because no call uses a lease after a number has changed.
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

/// A hash of the state of a charge.
pub(super) fn state_key(charge: &Charge<'_>, hasher: &RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(charge.policy.state_hash());
    state.write_usize(charge.tenant.len());
    state.write(charge.tenant);
    state.write(charge.state_subject());
    state.finish()
}

/// The hash of the state of each charge, in order.
pub(super) fn state_keys(charges: Charges<'_>, hasher: &RandomState) -> Keys {
    charges.iter().map(|charge| state_key(&charge, hasher)).collect()
}

/// Whether calls of these charges can be leased.
pub(super) fn can_be_leased(charges: Charges<'_>, leases_sliding: bool) -> bool {
    let names: usize = charges.iter().map(|it| it.tenant.len() + it.subject.len()).sum();
    charges.len() <= MAX_CHARGES
        && names <= MAX_NAME_BYTES
        && charges.iter().enumerate().all(|(index, charge)| {
            charge.cost > 0
                && !charge.is_check_only
                && has_leases(charge.policy, leases_sliding)
                // A hold has one charge to each state.
                && charges.iter().take(index).all(|other| !other.shares_state_with(&charge))
        })
}

fn has_leases(policy: &Policy, leases_sliding: bool) -> bool {
    let is_leased = match policy.rule() {
        Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::IntervalBucket(_) => true,
        Rule::SlidingLog(_) | Rule::SlidingCounter(_) => leases_sliding,
    };
    is_leased
        // A chunk that is refused would block a subject of which no request was refused.
        && policy.block_micros() == 0
        // What a node has used would be given back if it ended before it settled.
        && !policy.refunds_lapsed()
        // A shard that gets a chunk need not be the one that gets its settlement.
        && !policy.can_use_any_shard()
}
