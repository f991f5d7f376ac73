//! The slot map (the assignment of slots to nodes), and the refresh of the slot map.

pub(crate) mod cluster_slots;
pub(crate) mod node;
pub(crate) mod refresh;
pub(crate) mod slot_map;
pub(crate) mod slots;
