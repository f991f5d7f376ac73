//! Prints a policy as text. The parser reads this text back as the same policy.

use std::fmt;

use super::span::Micros;
use super::spec::Algorithm;
use super::{DEFAULT_MAX_OPEN_HOLDS, Lapse, Policy};
use crate::algorithm::shape::Start;
use crate::time::micros_of;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_named() {
            write!(f, "{}: ", self.name())?;
        }
        write!(f, "{}", Unnamed(self))
    }
}

pub(super) struct Unnamed<'p>(pub(super) &'p Policy);

impl fmt::Display for Unnamed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(policy) = self;
        write!(f, "{}", policy.algorithm())?;
        if let Some(block) = &policy.0.block {
            write!(f, " {block}")?;
        }
        if let Some(shards) = policy.shards() {
            write!(f, " {shards}")?;
        }
        if let Some(share) = policy.max_hold_share() {
            write!(f, " max-hold {share}")?;
        }
        if let Some(percent) = policy.warn_percent() {
            write!(f, " warn {percent}%")?;
        }
        f.write_str(match policy.0.lapse {
            Lapse::Stays => "",
            Lapse::Refunds => " refund-lapsed",
            Lapse::IsFailure => " count-failures",
        })?;
        if policy.0.max_open_holds != DEFAULT_MAX_OPEN_HOLDS {
            write!(f, " max-open-holds {}", policy.max_open_holds())?;
        }
        f.write_str(if policy.0.leased { " leased" } else { "" })?;
        f.write_str(if policy.is_shadow() { " shadow" } else { "" })
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({self})")
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, period) = match self {
            Self::FixedWindow(spec) => (spec.limit, spec.window),
            Self::SlidingLog(spec) => (spec.limit, spec.window),
            Self::SlidingCounter(spec) => (spec.limit, spec.window),
            Self::TokenBucket(spec) => (spec.refill, spec.period),
            Self::FairPool(spec) => (spec.limit, spec.window),
            Self::Concurrent(spec) => {
                let lease = Micros(micros_of(spec.lease));
                return write!(f, "{} {} lease {lease}", self.keyword(), spec.limit);
            }
            Self::Quota(spec) => return spec.fmt(f),
        };
        write!(f, "{} {count}/{}", self.keyword(), Micros(micros_of(period)))?;
        match self {
            Self::FixedWindow(spec) => f.write_str(match spec.start {
                Start::Aligned => "",
                Start::Phased => " phased",
                Start::Anchored => " anchored",
            }),
            Self::SlidingLog(spec) => match spec.grain {
                Some(grain) => write!(f, " grain {}", Micros(micros_of(grain))),
                None => Ok(()),
            },
            Self::FairPool(spec) if spec.weight != 1 => write!(f, " weight {}", spec.weight),
            Self::SlidingCounter(_) | Self::Concurrent(_) | Self::Quota(_) | Self::FairPool(_) => {
                Ok(())
            }
            Self::TokenBucket(spec) => {
                write!(f, " burst {}", spec.burst)?;
                f.write_str(if spec.is_by_interval() { " by-interval" } else { "" })
            }
        }
    }
}
