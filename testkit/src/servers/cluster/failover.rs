//! Another primary for the same slots.

use std::time::Duration;

use super::view::View;
use super::{Cluster, PATIENCE, agree};
use crate::servers::{Error, eventually};

/// A replica gives a failover up after 5 s. That happens where the primary was replaced a moment ago:
/// the others vote again only after two timeouts.
const GIVEN_UP: Duration = Duration::from_secs(6);
const ATTEMPTS: u8 = 4;

impl Cluster {
    /// Has a replica take over from its primary, as an operator would: nothing is lost. Returns the number
    /// of the new primary when all nodes know it and the old one follows it.
    ///
    /// # Errors
    /// If the node has no slots or no replica, or it does not come to pass.
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
            match self.primary_within(GIVEN_UP, number, slot).await {
                Err(_) if attempts < ATTEMPTS => {}
                result => break result?,
            }
        };
        let (old, primary) = (self.node(number), self.node(new));
        let follows = async || primary.streams_to(old).await.then_some(());
        eventually(PATIENCE, "the old primary to follow", follows).await?;
        Ok(new)
    }

    /// Waits until another than `old` has the slot, says so itself, and all nodes that run know it; returns
    /// its number.
    ///
    /// # Errors
    /// If that does not come to pass within 30 s.
    pub async fn primary_after(&self, old: usize, slot: u16) -> Result<usize, Error> {
        self.primary_within(PATIENCE, old, slot).await
    }

    async fn primary_within(&self, time: Duration, old: usize, slot: u16) -> Result<usize, Error> {
        eventually(time, "another primary", async || {
            let new = self.primary_of_slot(slot).await.ok().filter(|&new| new != old)?;
            let own = View::of(self.node(new)).await.ok()?;
            let says_so = own.owner(slot)? == own.myself()?;
            (says_so && agree(&self.views().await)).then_some(new)
        })
        .await
    }
}
