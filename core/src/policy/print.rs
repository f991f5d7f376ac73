//! A policy as text that reads back to the same policy.

use std::fmt;

use super::Policy;
use super::span::Micros;
use super::spec::Algorithm;
use crate::algorithm::fixed_window::Start;
use crate::time::micros_of;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name() != self.algorithm().keyword() {
            write!(f, "{}: ", self.name())?;
        }
        write!(f, "{}", self.algorithm())?;
        if let Some(span) = self.blocks_for() {
            write!(f, " block {}", Micros(micros_of(span)))?;
        }
        if let Some(shards) = self.shards() {
            write!(f, " {shards}")?;
        }
        f.write_str(if self.is_shadow() { " shadow" } else { "" })
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
            Self::Gcra(spec) => (spec.refill, spec.period),
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
            Self::SlidingCounter(_) => Ok(()),
            Self::TokenBucket(spec) => {
                write!(f, " burst {}", spec.burst)?;
                f.write_str(if spec.by_interval { " by-interval" } else { "" })
            }
            Self::Gcra(spec) => write!(f, " burst {}", spec.burst),
        }
    }
}
