//! The slot map, which assigns slots to nodes, and its refresh.

pub(crate) mod cluster_slots;
pub(crate) mod node;
pub(crate) mod refresh;
pub(crate) mod slot_map;
pub(crate) mod slots;
