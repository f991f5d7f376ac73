//! The calls to the store that charge chunks for this node, and return their unspent costs. No
//! other code of the layer charges or refunds a chunk.
//!
//! A chunk is a [hold](Operation::Hold), and a settlement of the hold returns the unspent cost. The
//! store keeps the time of a hold, so the settlement refunds the window in which the chunk was
//! charged. In a bucket, a settlement refunds more than an undo would. A repeated settlement has no
//! effect.

use std::time::Duration;

use super::todo::{Fetch, PerCharge, Unspent};
use crate::call::random_bits;
use crate::store::send_all;
use crate::{Call, CallId, Decision, Error, Operation, Store};

/// The minimum time to live of a hold. With a short span, the settlement can be late, and the store
/// must still know the hold.
const MIN_TTL: Duration = Duration::from_secs(2);

pub(super) const MAX_BATCH: usize = 128;

#[derive(Debug)]
pub(super) struct Grantor<S> {
    pub(super) store: S,
    /// The random part of the holds' ids that identifies this node, so that no two nodes use the
    /// same ids.
    node: [u64; 2],
    ttl: Duration,
}

impl<S: Store> Grantor<S> {
    pub(super) fn new(store: S, span: Duration) -> Self {
        let node = random_bits();
        // A time to live of two spans suffices, because a chunk is over and settled after one span.
        Self { store, node, ttl: span.saturating_mul(2).max(MIN_TTL) }
    }

    pub(super) async fn hold(&self, fetch: &Fetch) -> Result<Decision, Error> {
        let (charges, id): (PerCharge<_>, _) = (fetch.charges().collect(), self.id(fetch.number));
        let call = Call::new(Operation::Hold, &charges).with_id(CallId::new(&id, self.ttl));
        self.store.decide(call).await
    }

    /// Settles at most [`MAX_BATCH`] chunks, and returns the refunded cost of each chunk. For a
    /// failed settlement, the refunded cost is 0.
    pub(super) async fn settle(&self, batch: &[Unspent]) -> Vec<u64> {
        let charges: Vec<_> = batch.iter().map(Unspent::charges).collect();
        let ids: Vec<_> = batch.iter().map(|unspent| self.id(unspent.fetch.number)).collect();
        let settlements = charges.iter().zip(&ids).map(|(charges, id)| {
            Call::new(Operation::Settle, charges).with_id(CallId::new(id, self.ttl))
        });
        let calls: Vec<_> = settlements.collect();
        let answers = send_all(&self.store, &calls).await;
        let refunded = |index: usize| match answers.get(index) {
            Some(Ok(decision)) => decision.amounts().iter().sum(),
            _ => 0,
        };
        (0..batch.len()).map(refunded).collect()
    }

    fn id(&self, number: u64) -> [u8; 30] {
        let mut id = *b"lease.........................";
        for (place, part) in [self.node[0], self.node[1], number].into_iter().enumerate() {
            id[6 + 8 * place..][..8].copy_from_slice(&part.to_be_bytes());
        }
        id
    }
}
