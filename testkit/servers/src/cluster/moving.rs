//! Moving slots between the nodes of a Redis Cluster.

use super::nodes::{Cluster, PATIENCE};
use super::view::View;
use crate::error::Error;
use crate::redis::Redis;
use crate::resp::Reply;
use crate::wait::eventually;

/// The maximum number of keys that one command moves.
const BATCH: usize = 100;

impl Cluster {
    /// Moves a slot and its keys to the node `to`. Returns when all nodes know the new owner of the
    /// slot.
    pub async fn move_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        self.begin_moving_slot(slot, to).await?;
        self.finish_moving_slot(slot, to).await
    }

    /// Begins to move a slot to the node `to`. From now on, the old node serves only the keys that
    /// it still has. For all other keys of the slot, it replies `ASK`. No key is moved yet.
    ///
    /// # Errors
    /// Returns an error if the node `to` already owns the slot, or if a node rejects a command.
    pub async fn begin_moving_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let from = self.primary_of_slot(slot).await?;
        let (from, to) = (self.node(from), self.node(to));
        let (from_id, to_id) = (id_of(from).await?, id_of(to).await?);
        set_slot(to, slot, &["IMPORTING", &from_id]).await?;
        set_slot(from, slot, &["MIGRATING", &to_id]).await
    }

    /// Moves up to `count` keys of a slot that is being moved to the node `to`. Returns the number
    /// of moved keys.
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

    /// Moves all keys of a slot that is being moved, and assigns the slot to the node `to`. Returns
    /// when all nodes know the new owner. If this was the last slot of the old node, Redis can turn
    /// the old node into a replica of the new owner.
    pub async fn finish_moving_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let from = self.node(self.primary_of_slot(slot).await?);
        while self.move_keys(slot, to, BATCH).await? > 0 {}
        let id = id_of(self.node(to)).await?;
        // The new owner of the slot is notified before the old owner. Otherwise, the two nodes
        // would redirect clients to each other for a moment.
        set_slot(self.node(to), slot, &["NODE", &id]).await?;
        let result = set_slot(from, slot, &["NODE", &id]).await;
        let port = self.node(to).port();
        // If the old node already knows the new owner and has become its replica, the old node
        // rejects the command. This is not an error.
        if let Err(error) = result
            && View::query(from).await?.owner(slot).is_none_or(|owner| owner.port != port)
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

    /// Cancels the move of a slot to the node `to`. The slot stays at the old node. Keys that were
    /// already moved stay at the node `to`, where clients cannot reach them.
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
