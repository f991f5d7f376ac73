//! What a request asks of the store: for each descriptor a limit, a subject and a number of hits.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_core::{MAX_CHARGES, MAX_SUBJECT, Policy};

use super::matching::{self, Match};
use super::{Behaviour, RequestError, StatKey};
use crate::envoy::request::RateLimitRequest;
use crate::limits::config::{Config, Counted, Kind, Limit, PolicyLimit};

/// The maximum number of descriptors in a request.
pub const MAX_DESCRIPTORS: usize = 1_000;

/// One descriptor of a request.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) target: Target,
    /// How many hits to count, or to give back.
    pub(super) hits: u64,
    pub(super) is_refund: bool,
}

#[derive(Debug)]
pub(super) enum Target {
    /// No limit, or one that another one replaces.
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
}

/// How the limit decides.
#[derive(Debug)]
pub(super) enum Rule {
    Counted(Counted),
    Policy(PolicyLimit),
}

impl Limited {
    /// The policy that its hits are taken from.
    pub(super) fn policy(&self) -> &Policy {
        match &self.rule {
            Rule::Counted(counted) => &counted.counter,
            Rule::Policy(limit) => &limit.policy,
        }
    }
}

/// Finds the limits of all descriptors.
pub(super) fn plan(
    config: &Config,
    request: &RateLimitRequest,
    behaviour: &Behaviour,
) -> Result<Vec<Planned>, RequestError> {
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
    let matches: Vec<Option<Match<'_>>> = descriptors
        .iter()
        .map(|descriptor| matching::find(config, &request.domain, descriptor))
        .collect::<Result<_, _>>()?;
    let replaced = replaced_names(&matches);
    let mut planned = Vec::with_capacity(descriptors.len());
    for (descriptor, found) in descriptors.iter().zip(&matches) {
        let hits = match &descriptor.hits_addend {
            Some(hits) => hits.value,
            // 0 is what an absent field is.
            None => u64::from(request.hits_addend.max(1)),
        };
        let target = match found {
            None => Target::None,
            Some(found) if matches!(found.limit.kind, Kind::Unlimited) => Target::Unlimited,
            Some(found) if replaced.contains(&*found.limit.name) => Target::None,
            Some(found) => {
                let subject =
                    super::subject::subject(&request.domain, &descriptor.entries, &found.shared);
                if subject.len() > MAX_SUBJECT {
                    let message = format!(
                        "a descriptor has {} bytes; at most {MAX_SUBJECT} are possible",
                        subject.len()
                    );
                    return Err(RequestError::new(message));
                }
                limited(found, subject, behaviour)
            }
        };
        planned.push(Planned { target, hits, is_refund: descriptor.is_negative_hits });
    }
    check(&planned)?;
    Ok(planned)
}

/// The names of the limits that others replace, which may be unlimited.
fn replaced_names<'m>(matches: &'m [Option<Match<'_>>]) -> HashSet<&'m str> {
    let replaces = matches.iter().flatten().flat_map(|found| &found.limit.replaces);
    // An empty name is none, and nothing replaces it.
    replaces.map(|name| &**name).collect()
}

fn limited(found: &Match<'_>, subject: Vec<u8>, behaviour: &Behaviour) -> Target {
    // Each policy of a server that is a shadow decides by itself, as that of a shadow does.
    let in_force = |policy: &Policy| match behaviour.is_shadow || found.limit.is_shadow {
        true if !policy.is_shadow() => policy.clone().shadow(),
        _ => policy.clone(),
    };
    let rule = match &found.limit.kind {
        Kind::Policy(limit) => {
            Rule::Policy(PolicyLimit { policy: in_force(&limit.policy), ..limit.clone() })
        }
        Kind::Counted(counted) if behaviour.all_or_none && !found.limit.is_quota => {
            Rule::Policy(PolicyLimit::new(in_force(&counted.policy)))
        }
        Kind::Counted(counted) => Rule::Counted(counted.clone()),
        Kind::Unlimited => return Target::Unlimited,
    };
    Target::Limited(Limited {
        limit: Arc::clone(&found.limit),
        rule,
        stat_key: Arc::clone(&found.stat_key),
        subject,
    })
}

/// Rejects a request before anything of it is charged.
fn check(planned: &[Planned]) -> Result<(), RequestError> {
    let mut policies = 0;
    for it in planned {
        let Target::Limited(Limited { limit, rule: Rule::Policy(policy), .. }) = &it.target else {
            continue;
        };
        policies += 1;
        if it.is_refund && policy.refused.is_none() && !policy.charges_afterwards {
            let message = format!(
                "hits of the limit at {} cannot be given back: its policy needs `refunds: true`, so \
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
