//! Stores around a store: what happens when it is slow or down, and what it need not be asked.
//!
//! Each is a [`Store`] itself, so they compose, by the methods of [`StoreExt`]. The last one named is
//! the first to be asked.

use crate::Store;

/// Puts stores around a store.
pub trait StoreExt: Store + Sized {}

impl<S: Store> StoreExt for S {}
