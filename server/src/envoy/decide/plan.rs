//! Plans the calls for a request: a limit, a subject and a number of hits for each descriptor.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::telemetry::count_listed;
use tidegate_core::{
    CurrentLimits, FixedWindow, LimitSet, ListAction, MAX_CHARGES, MAX_ID, MAX_SUBJECT, Policy,
    PolicyError, PolicyLists, Share, Timestamp,
};

use super::matching::{self, Match};
use super::{Behaviour, RequestError, StatKey, subject};
use crate::envoy::request::{RateLimitDescriptor, RateLimitRequest};
use crate::limits::config::{Config, Counted, Kind, Limit, PolicyLimit};

/// The maximum number of descriptors in a request.
pub const MAX_DESCRIPTORS: usize = 1_000;

/// The plan for one descriptor of a request.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) target: Target,
    /// The number of hits to count or to refund.
    pub(super) hits: u64,
    pub(super) is_refund: bool,
}

#[derive(Debug)]
pub(super) enum Target {
    /// The descriptor has no limit, or another limit of the request replaces its limit.
    None,
    Unlimited,
    Limited(Limited),
}

#[derive(Debug)]
pub(super) struct Limited {
    pub(super) limit: Arc<Limit>,
    pub(super) rule: Rule,
    pub(super) stat_key: Arc<StatKey>,
    pub(super) subject: Vec<u8>,
    /// Whether the limit, or its policy in the limit set, is a shadow.
    pub(super) is_shadow: bool,
    /// The action of the list entry for the descriptor; `None` for a refund.
    pub(super) list: Option<ListAction>,
    /// If a list allows the descriptor, its policy beyond the limit.
    pub(super) beyond: Option<Policy>,
}

/// The rule of a limit: it counts all hits, decides by a policy, or takes slots.
#[derive(Debug)]
pub(super) enum Rule {
    Counted(Counted),
    Policy(PolicyLimit),
    Slots(SlotsRule),
}

/// The policy of slots, and the id of the hold that takes or frees them.
#[derive(Debug)]
pub(super) struct SlotsRule {
    pub(super) policy: Policy,
    pub(super) id: Bytes,
}

impl Limited {
    pub(super) fn is_allowed(&self) -> bool {
        self.list == Some(ListAction::Allow)
    }

    /// Returns `true` if a list denies the descriptor. Hits that have already happened are charged
    /// nevertheless.
    pub(super) fn is_denied(&self, hits: u64) -> bool {
        let has_happened = match &self.rule {
            Rule::Policy(policy) => policy.charges_afterwards && hits > 0,
            Rule::Counted(_) | Rule::Slots(_) => false,
        };
        self.list == Some(ListAction::Deny) && !has_happened
    }

    /// Returns the policy for a charge that can be refused. If a list allows the descriptor, the
    /// policy counts the charge beyond the limit.
    pub(super) fn charged(&self) -> &Policy {
        self.beyond.as_ref().unwrap_or_else(|| self.policy())
    }

    /// Returns the policy with the limit in force.
    pub(super) fn in_force(&self) -> &Policy {
        match &self.rule {
            Rule::Counted(counted) => &counted.policy,
            Rule::Policy(_) | Rule::Slots(_) => self.policy(),
        }
    }

    /// Returns the policy that the hits are charged to.
    pub(super) fn policy(&self) -> &Policy {
        match &self.rule {
            Rule::Counted(counted) => &counted.counter,
            Rule::Policy(PolicyLimit { policy, .. }) | Rule::Slots(SlotsRule { policy, .. }) => {
                policy
            }
        }
    }
}

/// Checks a request, and returns the limit of each of its descriptors.
pub(super) fn matches<'c>(
    config: &'c Config,
    request: &RateLimitRequest,
) -> Result<Vec<Option<Match<'c>>>, RequestError> {
    let descriptors = &request.descriptors;
    if request.domain.is_empty() {
        return Err(RequestError::new("rate limit domain must not be empty"));
    }
    if descriptors.is_empty() {
        return Err(RequestError::new("rate limit descriptor list must not be empty"));
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        let message = format!(
            "the request has {} descriptors; at most {MAX_DESCRIPTORS} are possible",
            descriptors.len()
        );
        return Err(RequestError::new(message));
    }
    let find = |descriptor| matching::find(config, &request.domain, descriptor);
    descriptors.iter().map(find).collect()
}

/// Loads the overrides that the request needs, and that the limit set does not have in memory.
pub(super) async fn load(
    matches: &[Option<Match<'_>>],
    request: &RateLimitRequest,
    current: &CurrentLimits,
) -> Arc<LimitSet> {
    let needed = matches.iter().zip(&request.descriptors).filter_map(|(found, descriptor)| {
        let (name, value) = name_and_value(found.as_ref()?, descriptor)?;
        Some((name, &b""[..], value))
    });
    current.load(&needed.collect::<Vec<_>>()).await
}

/// Returns the plan for each descriptor of a request, from the limits of the descriptors. `limits`
/// are the limit set and the time by which its overrides end.
pub(super) fn plan(
    matches: &[Option<Match<'_>>],
    request: &RateLimitRequest,
    behaviour: &Behaviour,
    lists: &PolicyLists,
    limits: Option<(&LimitSet, Timestamp)>,
) -> Result<Vec<Planned>, RequestError> {
    let descriptors = &request.descriptors;
    let replaced = replaced_names(matches);
    let mut planned = Vec::with_capacity(descriptors.len());
    for (descriptor, found) in descriptors.iter().zip(matches) {
        let mut hits = match &descriptor.hits_addend {
            Some(hits) => hits.value,
            // Protobuf cannot distinguish 0 and an absent `hits_addend` of a request, so both count
            // as 1.
            None => u64::from(request.hits_addend.max(1)),
        };
        let target = match found {
            None => Target::None,
            Some(found) if matches!(found.limit.kind, Kind::Unlimited) => Target::Unlimited,
            Some(found) if replaced.contains(&*found.limit.name) => Target::None,
            Some(found) => {
                let subject = match &found.limit.kind {
                    Kind::Slots(_) => subject::subject_of_slots,
                    _ => subject::subject,
                };
                let subject = subject(&request.domain, &descriptor.entries, &found.shared);
                if subject.len() > MAX_SUBJECT {
                    let message = format!(
                        "a descriptor has {} bytes; at most {MAX_SUBJECT} are possible",
                        subject.len()
                    );
                    return Err(RequestError::new(message));
                }
                let mut list = list_action(found, descriptor, lists);
                let is_quota = behaviour.is_quota(&found.limit);
                let adjusted =
                    limits.and_then(|(set, now)| adjusted(found, descriptor, is_quota, set, now));
                let kind = adjusted.as_ref().unwrap_or(&found.limit.kind);
                if descriptor.is_negative_hits {
                    // A `rate_limit:` does not count the hits that a list denies.
                    if matches!(kind, Kind::Counted(_)) && list == Some(ListAction::Deny) {
                        hits = 0;
                    }
                    list = None;
                }
                limited(found, kind, descriptor, subject, list, behaviour)?
            }
        };
        planned.push(Planned { target, hits, is_refund: descriptor.is_negative_hits });
    }
    check(&planned)?;
    Ok(planned)
}

/// Returns the names of the limits that other limits of the request replace. A limit with
/// `unlimited: true` can replace limits too.
fn replaced_names<'m>(matches: &'m [Option<Match<'_>>]) -> HashSet<&'m str> {
    let replaces = matches.iter().flatten().flat_map(|found| &found.limit.replaces);
    // If a limit has no name, its `name` is empty. No other limit can replace it, because
    // `replaces` cannot contain an empty name.
    replaces.map(|name| &**name).collect()
}

fn limited(
    found: &Match<'_>,
    kind: &Kind,
    descriptor: &RateLimitDescriptor,
    subject: Vec<u8>,
    list: Option<ListAction>,
    behaviour: &Behaviour,
) -> Result<Target, RequestError> {
    let is_shadow = found.limit.is_shadow || kind.is_shadow();
    // If the server or the limit is a shadow, the policy becomes a shadow, so that its denial does
    // not prevent the other charges of the call.
    let in_force = |policy: &Policy| match behaviour.is_shadow || is_shadow {
        true if !policy.is_shadow() => policy.clone().shadow(),
        _ => policy.clone(),
    };
    let rule = match kind {
        Kind::Policy(limit) => {
            let policy = in_force(&limit.policy);
            // A shadow never refuses, so it cannot be an alternative.
            let one_of = limit.one_of.clone().filter(|_| !policy.is_shadow());
            Rule::Policy(PolicyLimit { policy, one_of, ..limit.clone() })
        }
        Kind::Counted(counted)
            if !behaviour.is_quota(&found.limit)
                && (behaviour.all_or_none || counted.policy.is_leased()) =>
        {
            Rule::Policy(PolicyLimit::new(in_force(&counted.policy)))
        }
        Kind::Counted(counted) => Rule::Counted(counted.clone()),
        Kind::Slots(policy) => {
            let id = id_of_hold(descriptor, &found.limit)?;
            Rule::Slots(SlotsRule { policy: in_force(policy), id })
        }
        Kind::Unlimited => return Ok(Target::Unlimited),
    };
    let mut limited = Limited {
        limit: Arc::clone(&found.limit),
        rule,
        stat_key: Arc::clone(&found.stat_key),
        subject,
        is_shadow,
        list,
        beyond: None,
    };
    limited.beyond = limited.is_allowed().then(|| limited.policy().beyond_limit());
    Ok(Target::Limited(limited))
}

/// Returns the action of the list entry for the value that selects the subject of a limit.
fn list_action(
    found: &Match<'_>,
    descriptor: &RateLimitDescriptor,
    lists: &PolicyLists,
) -> Option<ListAction> {
    let (name, value) = name_and_value(found, descriptor)?;
    lists.find(name, value)
}

/// Returns the limit with the policy that the limit set has for the value that selects the subject.
fn adjusted(
    found: &Match<'_>,
    descriptor: &RateLimitDescriptor,
    is_quota: bool,
    limits: &LimitSet,
    now: Timestamp,
) -> Option<Kind> {
    let (name, value) = name_and_value(found, descriptor)?;
    found.limit.adjusted(limits.find(name, b"", value, now)?, is_quota)
}

/// Returns the name of the limit, and the value that selects the subject. Returns `None` if the
/// limit has no name.
fn name_and_value<'d>(
    found: &'d Match<'_>,
    descriptor: &'d RateLimitDescriptor,
) -> Option<(&'d str, &'d [u8])> {
    if found.limit.name.is_empty() {
        return None;
    }
    let mut entries = descriptor.entries.iter().rev();
    let entry = match found.limit.kind {
        // The last entry is the id of a hold.
        Kind::Slots(_) => entries.nth(1),
        _ => entries.next(),
    };
    Some((&found.limit.name, &entry?.value))
}

/// Returns the value of the last entry, which is the id of a hold.
fn id_of_hold(descriptor: &RateLimitDescriptor, limit: &Limit) -> Result<Bytes, RequestError> {
    let id = descriptor.entries.last().map(|entry| entry.value.clone()).unwrap_or_default();
    if (1..=MAX_ID).contains(&id.len()) {
        return Ok(id);
    }
    let (place, length) = (&limit.place, id.len());
    Err(RequestError::new(format!(
        "the id for the slots of the limit at {place} has {length} bytes; it must have 1 to {MAX_ID}"
    )))
}

impl Planned {
    /// Counts the decision of a list in the metrics.
    pub(super) fn count_list(&self) {
        if let Target::Limited(Limited { limit, list: Some(action), .. }) = &self.target {
            count_listed(&limit.name, *action);
        }
    }

    /// Replaces the limit of this descriptor by a share of the limit. If the share rounds down to
    /// 0, the limit refuses all hits.
    pub(super) fn scale(&mut self, share: Share) -> Result<(), PolicyError> {
        let Target::Limited(limited) = &mut self.target else { return Ok(()) };
        match &mut limited.rule {
            Rule::Counted(counted) => {
                let limit = share.apply(counted.requests_per_unit.into());
                counted.requests_per_unit = u32::try_from(limit).unwrap_or(u32::MAX);
            }
            Rule::Policy(PolicyLimit { policy, .. }) | Rule::Slots(SlotsRule { policy, .. }) => {
                *policy = match policy.scaled_to(share)? {
                    Some(scaled) => scaled,
                    None => {
                        let none = FixedWindow::new(0, policy.window());
                        let none = Policy::new(policy.name(), none)?;
                        if policy.is_shadow() { none.shadow() } else { none }
                    }
                };
            }
        }
        limited.beyond = limited.is_allowed().then(|| limited.policy().beyond_limit());
        Ok(())
    }
}

/// Checks the refunds and the number of policies of a request before any hits are charged.
fn check(planned: &[Planned]) -> Result<(), RequestError> {
    let mut policies = 0;
    for descriptor in planned {
        let Target::Limited(Limited { limit, rule: Rule::Policy(policy), .. }) = &descriptor.target
        else {
            continue;
        };
        policies += 1;
        if descriptor.is_refund && policy.refused.is_none() && !policy.charges_afterwards {
            let message = format!(
                "hits of the limit at {} cannot be refunded: its policy needs `refunds: true`, so \
                 that the hits of refused requests are known",
                limit.place
            );
            return Err(RequestError::new(message));
        }
    }
    if policies > MAX_CHARGES {
        let message = format!(
            "{policies} descriptors of the request have policies, which are decided together; at \
             most {MAX_CHARGES} are possible"
        );
        return Err(RequestError::new(message));
    }
    Ok(())
}
