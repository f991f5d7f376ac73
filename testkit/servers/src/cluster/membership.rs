//! Adding nodes to a Redis Cluster, and removing nodes.

use super::form::{self, END, replica, stand_in};
use super::launch::{Address, random_id};
use super::moving::id_of;
use super::nodes::{Cluster, PATIENCE};
use super::view::View;
use crate::error::Error;
use crate::wait::eventually;

impl Cluster {
    /// Starts one more node as a primary without slots. Returns the number of the node, when it
    /// serves commands and all nodes know it.
    pub async fn add_node(&mut self) -> Result<usize, Error> {
        let stand_in = random_id();
        let table = self.table_without_me().await?;
        let tables = |addresses: &[Address]| {
            addresses.iter().map(|address| joined(&table, address, &stand_in)).collect()
        };
        let new = self.launcher.launch(tables, 1).await?;
        // The new node starts as a replica of a stand-in (a primary that does not exist) and takes
        // over its role, because a node that starts as a primary serves no commands for 2 s.
        for node in &new {
            form::is_ready(node, &self.nodes).await?;
            node.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await?;
            form::forget(node, std::slice::from_ref(&stand_in)).await?;
            let own = View::query(node).await?;
            let bus = own.myself().map(|own| own.bus.to_string()).unwrap_or_default();
            for (_, other) in self.awake() {
                let port = node.port().to_string();
                other.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
            }
        }
        self.launcher.settle(&new).await?;
        self.nodes.extend(new);
        self.wait_until_ok().await?;
        Ok(self.nodes.len() - 1)
    }

    /// Makes all other nodes forget the node `number`, and kills this node. The other nodes keep
    /// their numbers.
    ///
    /// # Errors
    /// Returns an error if the node has slots, or if a node rejects a command.
    pub async fn remove_node(&self, number: usize) -> Result<(), Error> {
        let node = self.node(number);
        if !self.slots_of(number).await?.is_empty() {
            return Err(Error::new(format!("node {number} still has slots")));
        }
        let id = [id_of(node).await?];
        for (_, other) in self.awake().filter(|&(other, _)| other != number) {
            form::forget(other, &id).await?;
        }
        node.kill().await?;
        let is_forgotten = async || {
            let views = self.views().await;
            views.iter().all(|view| view.member(&id[0]).is_none()).then_some(())
        };
        eventually(PATIENCE, "the node to be forgotten", is_forgotten).await
    }

    /// Returns the list of all nodes, as one node reports it. A line of the list describes a node.
    /// The word `myself`, which marks the line of the reporting node, is removed.
    async fn table_without_me(&self) -> Result<String, Error> {
        let (_, node) =
            self.awake().next().ok_or_else(|| Error::new("no node of the cluster runs"))?;
        let text = node.command(&["CLUSTER", "NODES"]).await?.text();
        let line = |line: &str| {
            // A word in square brackets, such as `[300->-ID]`, describes a slot that the reporting
            // node is moving. The new node does not move this slot, so the word is removed.
            let words: Vec<_> = line.split(' ').filter(|word| !word.starts_with('[')).collect();
            words.join(" ").replace("myself,", "") + "\n"
        };
        Ok(text.lines().filter(|text| !text.is_empty()).map(line).collect())
    }
}

/// Returns the `nodes.conf` with which a new node can serve commands immediately after its start.
fn joined(table: &str, address: &Address, primary: &str) -> String {
    [table, &replica(address, primary, true), &stand_in(primary, ""), END].concat()
}
