//! Slots that move from one node to another.

use super::view::View;
use super::{Cluster, PATIENCE};
use crate::servers::{Error, Redis, Reply, eventually};

/// How many keys move at once.
const BATCH: usize = 100;

impl Cluster {
    /// Moves a slot and its keys to another node, and returns when all nodes know it.
    ///
    /// # Errors
    /// As [`begin_moving_slot`](Self::begin_moving_slot) and [`finish_moving_slot`](Self::finish_moving_slot).
    pub async fn move_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        self.begin_moving_slot(slot, to).await?;
        self.finish_moving_slot(slot, to).await
    }

    /// Lets a slot begin to move. From now on its node serves the keys that it has, and for all others
    /// answers `ASK`. No key moves yet.
    ///
    /// # Errors
    /// If `to` has the slot already, or a node refuses.
    pub async fn begin_moving_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let from = self.primary_of_slot(slot).await?;
        let (from, to) = (self.node(from), self.node(to));
        let (from_id, to_id) = (id_of(from).await?, id_of(to).await?);
        set_slot(to, slot, &["IMPORTING", &from_id]).await?;
        set_slot(from, slot, &["MIGRATING", &to_id]).await
    }

    /// Moves up to so many keys of a slot that has begun to move, and returns how many it moved.
    ///
    /// # Errors
    /// If a node refuses or does not answer.
    pub async fn move_keys(&self, slot: u16, to: usize, count: usize) -> Result<usize, Error> {
        let from = self.node(self.primary_of_slot(slot).await?);
        let (slot, count) = (slot.to_string(), count.to_string());
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, &count]).await?;
        let keys: Vec<&[u8]> = keys.list().iter().filter_map(bytes).collect();
        if keys.is_empty() {
            return Ok(0);
        }
        let port = self.node(to).port().to_string();
        let mut command: Vec<&[u8]> =
            ["MIGRATE", "127.0.0.1", &port, "", "0", "5000"].map(str::as_bytes).to_vec();
        if let Some(password) = self.launcher.password() {
            command.extend([b"AUTH", password.as_bytes()]);
        }
        command.push(b"KEYS");
        command.extend(&keys);
        from.command(&command).await?;
        Ok(keys.len())
    }

    /// Moves all keys of a slot that has begun to move, gives it to its new node, and returns when all
    /// nodes know it. A node that gives away its last slot may become a replica of the one that got it, as
    /// servers do.
    ///
    /// # Errors
    /// If a node refuses or does not answer.
    pub async fn finish_moving_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let from = self.node(self.primary_of_slot(slot).await?);
        while self.move_keys(slot, to, BATCH).await? > 0 {}
        let id = id_of(self.node(to)).await?;
        // The new node first: if the old one gave it away before, each would send clients to the other.
        set_slot(self.node(to), slot, &["NODE", &id]).await?;
        let told = set_slot(from, slot, &["NODE", &id]).await;
        let port = self.node(to).port();
        // It may have heard already, and refuse as it is a replica now.
        if let Err(error) = told
            && View::of(from).await?.owner(slot).is_none_or(|owner| owner.port != port)
        {
            return Err(error);
        }
        eventually(PATIENCE, "all nodes to know the owner of the slot", async || {
            let views = self.views().await;
            let knows = |view: &View| view.owner(slot).is_some_and(|owner| owner.port == port);
            views.iter().all(knows).then_some(())
        })
        .await
    }

    /// Calls off the move of a slot that has begun: it stays where it is, as do the keys that have moved
    /// already, which are out of reach then.
    ///
    /// # Errors
    /// If a node refuses or does not answer.
    pub async fn stop_moving_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let from = self.node(self.primary_of_slot(slot).await?);
        set_slot(from, slot, &["STABLE"]).await?;
        set_slot(self.node(to), slot, &["STABLE"]).await
    }
}

async fn set_slot(node: &Redis, slot: u16, what: &[&str]) -> Result<(), Error> {
    let slot = slot.to_string();
    node.command(&[&["CLUSTER", "SETSLOT", &slot], what].concat()).await.map(drop)
}

pub(super) async fn id_of(node: &Redis) -> Result<String, Error> {
    node.command(&["CLUSTER", "MYID"]).await.map(|id| id.text())
}

fn bytes(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}
