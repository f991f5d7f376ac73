//! The record of one state: its past charges, its block, and the policy of its last write.

use tidegate_core::{Charge, Policy};

use super::block::Block;
use super::bucket::Bucket;
use super::rules::{Past, Rules, rules_of};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) policy: Policy,
    pub(super) past: Past,
    pub(super) block: Block,
    /// The time at which the past charges have recovered, under the policy of the last write.
    pub(super) recovers_at: u64,
}

impl Record {
    pub(super) fn new(policy: &Policy) -> Self {
        let block = Block::default();
        Self { policy: policy.clone(), past: Past::Nothing, block, recovers_at: 0 }
    }

    /// Returns the past charges, converted to the policy of `charge`. Returns [`Past::Nothing`] if
    /// the charges have recovered under the policy of the last write.
    pub(super) fn past_under(&self, charge: &Charge<'_>, now: u64) -> Past {
        let (older, newer) = (&self.policy, charge.policy);
        if self.recovers_at <= now {
            return Past::Nothing;
        }
        match &self.past {
            Past::Bucket(past) => {
                let older = Bucket::new(older.algorithm(), older.rule().tick());
                let newer = Bucket::new(newer.algorithm(), newer.rule().tick());
                Past::Bucket(newer.adopt(past, &older))
            }
            past => past.clone(),
        }
    }

    /// Returns the record after a write of `past` under the policy of `charge`.
    pub(super) fn with_past(&self, charge: &Charge<'_>, past: Past) -> Self {
        let rules: Box<dyn Rules> = rules_of(charge);
        Self {
            policy: charge.policy.clone(),
            recovers_at: rules.recovers_at(&past),
            past,
            block: self.block,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.past == Past::Nothing && self.block == Block::default()
    }

    /// Returns the records that are possible after the store's clock has shown `now`. The store may
    /// have dropped past charges that have recovered, a block that is over, and offenses that are
    /// forgotten.
    pub(super) fn possibly_forgotten(&self, now: u64) -> Vec<Option<Self>> {
        let mut forgotten = vec![self.clone()];
        if self.recovers_at <= now {
            let past = Past::Nothing;
            forgotten.push(Self { past, recovers_at: 0, ..self.clone() });
        }
        let blocks = self.block.possibly_forgotten(now);
        let records = forgotten
            .iter()
            .flat_map(|record| blocks.iter().map(|&block| Self { block, ..record.clone() }));
        records.map(|record| Some(record).filter(|record| !record.is_empty())).collect()
    }
}
