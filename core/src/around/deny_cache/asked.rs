//! A call as the cache sees it: hashes of what it is about.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;

use super::generations::Keys;
use crate::call::MAX_CHARGES;
use crate::{Call, Charge};

/// The most bytes of all tenants and subjects of a call that is remembered.
pub(super) const MOST_NAMES: usize = 4096;

/// A call, and the hashes of what it is about.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) call: Call<'a>,
    /// By the places of its charges; those are left out that nothing is ever remembered of.
    pub(super) keys: Keys,
    /// Of all charges with their costs; `None` if the call is too large to be remembered.
    pub(super) hash: Option<u64>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(call: Call<'a>, hasher: &RandomState) -> Self {
        let mut keys = Keys::new();
        let mut of_call = hasher.build_hasher();
        let (mut names, mut last) = (0, None);
        for charge in call.charges.iter() {
            let bytes = charge.tenant.len().saturating_add(charge.subject.len());
            names = bytes.saturating_add(names);
            if bytes > MOST_NAMES {
                continue;
            }
            let name = name_hash(&charge, last, hasher);
            last = Some((charge, name));
            let key = key_hash(&charge, name, hasher);
            of_call.write_u64(key);
            // Who charges a tenant's limit changes what all its subjects are told; but where that is
            // kept in shards, what one of them was told is not true of all.
            keys.push(if charge.policy.is_of_tenant() {
                let tenant = Charge { subject: charge.state_subject(), ..charge };
                key_hash(&charge, name_hash(&tenant, None, hasher), hasher)
            } else {
                key
            });
            of_call.write_u64(charge.cost);
        }
        let fits = names <= MOST_NAMES && keys.len() <= MAX_CHARGES;
        Self { call, keys, hash: fits.then(|| of_call.finish()) }
    }
}

/// A hash of tenant and subject. Mostly they are those of the charge before, in the very same place.
fn name_hash(charge: &Charge<'_>, last: Option<(Charge<'_>, u64)>, hasher: &RandomState) -> u64 {
    if let Some((last, hash)) = last
        && std::ptr::eq(last.tenant, charge.tenant)
        && std::ptr::eq(last.subject, charge.subject)
    {
        return hash;
    }
    let mut hasher = hasher.build_hasher();
    hasher.write_usize(charge.tenant.len());
    hasher.write(charge.tenant);
    hasher.write(charge.subject);
    hasher.finish()
}

fn key_hash(charge: &Charge<'_>, name: u64, hasher: &RandomState) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64(charge.policy.state_hash());
    hasher.write_u64(name);
    hasher.finish()
}
