//! The settings of a hold layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;
use tidegate_core::{Error, ErrorKind, MAX_ID, MAX_SPAN, OnDrop, Policy};

use super::super::limit::Limit;
use super::actual_cost::{ActualCost, CostOfResponse, Source};

#[derive(Clone)]
pub(in super::super) struct HoldSettings {
    pub(super) ttl: Duration,
    /// For each limit, in the order of the limits, the rule that determines its actual cost. `None`
    /// if the limit keeps its cost.
    rules: Box<[Option<Rule>]>,
    pub(super) measures: Arc<[Box<str>]>,
    pub(super) if_cut: OnDrop,
    pub(super) interval: Duration,
    pub(super) id: Option<Arc<IdOf>>,
}

pub(super) type IdOf = dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync;

/// The id of a hold. A random id has 16 bytes, which this type stores without an allocation.
pub(super) type Id = SmallVec<[u8; 16]>;

#[derive(Clone)]
pub(super) enum Rule {
    /// The index of the measure.
    Usage(usize),
    BodyBytes,
    Response(Arc<CostOfResponse>),
}

impl HoldSettings {
    pub(in super::super) fn new<'n>(
        limits: &[(Policy, Limit)],
        ttl: Duration,
        costs: impl IntoIterator<Item = (&'n str, ActualCost)>,
    ) -> Result<Self, Error> {
        if ttl.is_zero() || ttl > MAX_SPAN {
            let message = format!(
                "the time of a hold is {ttl:?}; it must be more than 0 and at most {MAX_SPAN:?}"
            );
            return Err(invalid(message));
        }
        for (index, (policy, limit)) in limits.iter().enumerate() {
            if limits[..index].iter().any(|(other, _)| other.name() == policy.name()) {
                return Err(invalid(format!(
                    "two limits of the layer have the policy `{}`; costs are settled by the names of policies, so \
                     give each limit its own policy",
                    limit.policy_name
                )));
            }
        }
        let mut rules: Box<[Option<Rule>]> = limits.iter().map(|_| None).collect();
        let mut measures: Vec<Box<str>> = vec![];
        for (name, cost) in costs {
            let index = limits.iter().position(|(_, limit)| *limit.policy_name == *name);
            let Some(rule) = index.and_then(|index| rules.get_mut(index)) else {
                let names: Vec<_> =
                    limits.iter().map(|(_, limit)| format!("`{}`", limit.policy_name)).collect();
                let names = names.join(", ");
                let message = format!(
                    "the cost of `{name}` cannot be settled; it must be one of the limits {names}"
                );
                return Err(invalid(message));
            };
            *rule = Some(match cost.0 {
                Source::BodyBytes => Rule::BodyBytes,
                Source::Response(cost) => Rule::Response(cost),
                Source::Usage(measure) => {
                    let known = measures.iter().position(|known| *known == measure);
                    Rule::Usage(known.unwrap_or_else(|| {
                        measures.push(measure);
                        measures.len() - 1
                    }))
                }
            });
        }
        Ok(Self {
            ttl,
            rules,
            measures: measures.into(),
            if_cut: OnDrop::Settle,
            interval: Duration::from_secs(1),
            id: None,
        })
    }

    /// Returns the rule that determines the actual cost of the limit with this index. Returns
    /// `None` if the limit keeps its cost.
    pub(super) fn rule(&self, limit: usize) -> Option<&Rule> {
        self.rules.get(limit)?.as_ref()
    }

    /// Returns the id of the hold of a request, and whether the application chose it.
    pub(super) fn id(&self, request: &Parts) -> Result<(Id, bool), Error> {
        let chosen = self.id.as_ref().and_then(|id| id(request)).filter(|id| !id.is_empty());
        match chosen {
            // A client can choose an id of any length. An id that is too long is replaced by its
            // digest.
            Some(id) if id.len() > MAX_ID => Ok((Id::from_slice(&Sha256::digest(&id)), true)),
            Some(id) => Ok((Id::from_vec(id), true)),
            None => {
                let mut id = [0; 16];
                getrandom::fill(&mut id).map_err(|error| {
                    let message = "the system has no random numbers for the id of a hold";
                    Error::new(ErrorKind::Unavailable, message).with_source(error)
                })?;
                Ok((Id::from(id), false))
            }
        }
    }
}

impl fmt::Debug for HoldSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldSettings")
            .field("ttl", &self.ttl)
            .field("measures", &self.measures)
            .field("if_cut", &self.if_cut)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}
