//! Which node serves which slot, and how that is kept up to date.

pub(crate) mod cluster_slots;
pub(crate) mod node;
pub(crate) mod refresh;
pub(crate) mod slot_map;
pub(crate) mod slots;
