//! Failovers, in which another node becomes the primary of the same slots.

use std::time::Duration;

use super::nodes::{Cluster, PATIENCE, agree};
use super::view::View;
use crate::error::Error;
use crate::wait::eventually;

/// The maximum time of one attempt to fail over. A replica abandons an attempt after 5 s, for
/// example if the same slots failed over a moment ago: the other primaries vote again for these
/// slots only after two node timeouts.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(6);
const ATTEMPTS: u8 = 4;

impl Cluster {
    /// Promotes a replica of the node `number`, like an operator, without loss of a write. Returns
    /// the number of the new primary, when all nodes know the new primary and the old primary has
    /// become its replica.
    ///
    /// # Errors
    /// Returns an error if the node has no slots or no replica, or if the failover does not
    /// succeed.
    pub async fn fail_over(&self, number: usize) -> Result<usize, Error> {
        let slots = self.slots_of(number).await?;
        let slot = slots.first().map(|range| *range.start());
        let slot = slot.ok_or_else(|| Error::new(format!("node {number} has no slots")))?;
        let replicas = self.replicas_of(number).await;
        let replica = *replicas
            .first()
            .ok_or_else(|| Error::new(format!("node {number} has no replica that runs")))?;
        let mut attempts = 0;
        let new = loop {
            attempts += 1;
            self.node(replica).command(&["CLUSTER", "FAILOVER"]).await?;
            match self.primary_within(FAILOVER_TIMEOUT, number, slot).await {
                Err(_) if attempts < ATTEMPTS => {}
                result => break result?,
            }
        };
        let (old, primary) = (self.node(number), self.node(new));
        let follows = async || primary.streams_to(old).await.then_some(());
        eventually(PATIENCE, "the old primary to become a replica", follows).await?;
        Ok(new)
    }

    /// Waits until a node other than `old` owns the slot, according to the new owner and to all
    /// other running nodes. Returns the number of the new owner.
    ///
    /// # Errors
    /// Returns an error if the slot has no new owner within 30 s.
    pub async fn primary_after(&self, old: usize, slot: u16) -> Result<usize, Error> {
        self.primary_within(PATIENCE, old, slot).await
    }

    async fn primary_within(&self, time: Duration, old: usize, slot: u16) -> Result<usize, Error> {
        eventually(time, "another primary", async || {
            let new = self.primary_of_slot(slot).await.ok().filter(|&new| new != old)?;
            let own = View::query(self.node(new)).await.ok()?;
            let says_so = own.owner(slot)? == own.myself()?;
            (says_so && agree(&self.views().await)).then_some(new)
        })
        .await
    }
}
