//! The slot map, which is the assignment of slots to nodes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redis::cluster::NodeAddress;
use redis::cluster_routing::Slot;

use crate::routing::cluster_slots::Range;
use crate::routing::node::{Access, Node};

/// The known nodes, and the slots that they serve. Each call reads the slot map, so no code holds
/// the lock of the slot map while it calls a node.
#[derive(Debug)]
pub(crate) struct SlotMap {
    access: Access,
    /// The nodes in the URLs of the store. The slot map always contains them, regardless of the
    /// reports of other nodes.
    seeds: Vec<Arc<Node>>,
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<NodeAddress, Arc<Node>>,
    primaries: HashMap<Slot, Arc<Node>>,
}

impl SlotMap {
    pub(crate) fn new(access: Access, seeds: Vec<Arc<Node>>) -> Self {
        let nodes = seeds.iter().map(|seed| (seed.address.clone(), Arc::clone(seed))).collect();
        Self { access, seeds, table: RwLock::new(Table { nodes, primaries: HashMap::new() }) }
    }

    pub(crate) fn primary(&self, slot: Slot) -> Option<Arc<Node>> {
        self.read().primaries.get(&slot).cloned()
    }

    /// Returns the node at an address, and adds the node if it is not known.
    pub(crate) fn node(&self, address: &NodeAddress) -> Arc<Node> {
        if let Some(node) = self.read().nodes.get(address) {
            return Arc::clone(node);
        }
        self.write().node(&self.access, address)
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.read().nodes.values().cloned().collect()
    }

    /// Returns the number of nodes that serve at least one slot.
    pub(crate) fn primaries(&self) -> usize {
        let table = self.read();
        table.primaries.values().map(Arc::as_ptr).collect::<HashSet<_>>().len()
    }

    pub(crate) fn first_unserved(&self) -> Option<Slot> {
        let table = self.read();
        let mut slots = (0..=u16::MAX).map_while(Slot::new);
        slots.find(|slot| !table.primaries.contains_key(slot))
    }

    pub(crate) fn set_primary(&self, slot: Slot, to: &Arc<Node>) {
        self.write().primaries.insert(slot, Arc::clone(to));
    }

    /// Replaces the slot map by the report of a node. Nodes that are not in the report are removed,
    /// except for the seed nodes. The connections of a removed node close after their last call in
    /// flight.
    pub(crate) fn update(&self, view: &[Range]) {
        let mut table = self.write();
        let mut new = Table {
            nodes: self.seeds.iter().map(|s| (s.address.clone(), Arc::clone(s))).collect(),
            primaries: HashMap::new(),
        };
        for range in view {
            for address in [&range.primary].into_iter().chain(&range.replicas) {
                let node = table.node(&self.access, address);
                new.nodes.insert(address.clone(), node);
            }
            if let Some(primary) = new.nodes.get(&range.primary) {
                let slots = (range.first..=range.last).filter_map(Slot::new);
                new.primaries.extend(slots.map(|slot| (slot, Arc::clone(primary))));
            }
        }
        *table = new;
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn node(&mut self, access: &Access, address: &NodeAddress) -> Arc<Node> {
        if let Some(node) = self.nodes.get(address) {
            return Arc::clone(node);
        }
        let node = Arc::new(access.node(address.clone()));
        self.nodes.insert(address.clone(), Arc::clone(&node));
        node
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;
    use tidegate_redis::connection::Settings;

    use super::*;

    fn map() -> SlotMap {
        let info = "redis://seed:1".into_connection_info().unwrap();
        let access = Access::new(info, Settings::default()).unwrap();
        let seed = Arc::new(access.node(NodeAddress::new("seed", 1)));
        SlotMap::new(access, vec![seed])
    }

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn range(first: u16, last: u16, primary: &str) -> Range {
        let replicas = vec![NodeAddress::new(format!("replica-of-{primary}"), 1)];
        Range { first, last, primary: NodeAddress::new(primary, 1), replicas }
    }

    fn host(map: &SlotMap, slot: u16) -> Option<String> {
        Some(map.primary(Slot::new(slot)?)?.address.host().to_owned())
    }

    fn hosts(map: &SlotMap) -> Vec<String> {
        let mut hosts: Vec<_> =
            map.nodes().iter().map(|node| node.address.host().to_owned()).collect();
        hosts.sort();
        hosts
    }

    #[test]
    fn a_new_map_knows_the_seeds_and_no_slot() {
        let map = map();
        assert_eq!((hosts(&map), host(&map, 0)), (vec!["seed".to_owned()], None));
    }

    #[test]
    fn a_report_replaces_the_previous_one_and_keeps_the_connections() {
        let map = map();
        map.update(&[range(0, 99, "a"), range(100, 16_383, "b")]);
        let a = map.primary(slot(0)).unwrap();
        for (slot, expected) in [(0, "a"), (99, "a"), (100, "b"), (16_383, "b")] {
            assert_eq!(host(&map, slot).as_deref(), Some(expected));
        }
        map.update(&[range(0, 49, "c"), range(50, 98, "a"), range(100, 16_383, "c")]);
        assert_eq!(host(&map, 49).as_deref(), Some("c"));
        assert!(
            Arc::ptr_eq(&map.primary(slot(50)).unwrap(), &a),
            "one node, one set of connections"
        );
        assert_eq!(host(&map, 99), None, "no node serves it");
        assert_eq!(hosts(&map), ["a", "c", "replica-of-a", "replica-of-c", "seed"]);
    }

    #[test]
    fn a_single_slot_can_be_moved() {
        let map = map();
        map.update(&[range(0, 16_383, "a")]);
        let b = map.node(&NodeAddress::new("b", 1));
        map.set_primary(slot(7), &b);
        assert!(Arc::ptr_eq(&map.primary(slot(7)).unwrap(), &b));
        assert_eq!(host(&map, 8).as_deref(), Some("a"));
    }
}
