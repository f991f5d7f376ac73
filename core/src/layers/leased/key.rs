//! Tests whether a call can be leased, and computes the hashes by which leases are found.

use std::hash::{BuildHasher, Hasher};

use crate::layers::generations::Keys;
use crate::policy::Rule;
use crate::sync::hash::RandomState;
use crate::{Call, Charge, Charges, Operation, Policy};

/// The maximum number of charges of a leased call. There is a maximum because each lease keeps a
/// copy of the charges.
pub(super) const MAX_CHARGES: usize = 8;

pub(super) const MAX_NAME_BYTES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseId {
    pub(super) hash: u64,
    /// A number that distinguishes this lease from earlier leases for the same call.
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
                && charge.list == 0
                && why_not_leased(charge.policy, leases_sliding).is_none()
                // Two charges to one state cannot be leased, because a hold has at most one charge
                // per state.
                && charges.iter().take(index).all(|other| !other.shares_state_with(&charge))
        })
}

/// Returns the reason why a policy cannot be leased, or `None` if it can be leased.
pub(super) fn why_not_leased(policy: &Policy, leases_sliding: bool) -> Option<&'static str> {
    let is_sliding = matches!(policy.rule(), Rule::SlidingLog(_) | Rule::SlidingCounter(_));
    if policy.raise().is_some() {
        Some("the charge is counted beyond the limit")
    } else if is_sliding && !leases_sliding {
        Some("with a lease, a sliding window admits its limit in a time shorter than the window")
    } else if policy.blocks() {
        Some("`block` and a lease exclude each other: a refused lease would block the subject")
    } else if policy.refunds_lapsed() {
        // A chunk is a hold. If a node ended before it settled a chunk, the hold would lapse. With
        // `refund-lapsed`, the store would then refund the whole chunk, including the part that
        // calls have used.
        Some("`refund-lapsed` and a lease exclude each other: a lapsed lease would be refunded")
    } else if policy.counts_failures() {
        Some("`count-failures` and a lease exclude each other: a lease counts requests")
    } else if policy.is_fair_pool() {
        Some("a fair pool and a lease exclude each other: the pool must see each demand")
    } else if policy.can_use_any_shard() {
        Some("`shards` and a lease exclude each other: a lease belongs to one shard")
    } else {
        None
    }
}
