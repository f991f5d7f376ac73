//! Views of a running server: its metrics, its page, and the requests that it cannot read.

pub mod activity;
pub mod page;
pub mod prometheus;
pub mod top;
pub mod unreadable;
