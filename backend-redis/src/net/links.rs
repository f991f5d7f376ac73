use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::link::Link;
use super::source::Source;

/// The connections to one server, used in turn.
#[derive(Debug)]
pub struct Links {
    links: Box<[Link]>,
    next: AtomicUsize,
}

impl Links {
    /// So many connections, at least one. None is made yet.
    #[must_use]
    pub fn new(source: Source, connections: usize) -> Self {
        let source = Arc::new(source);
        let links = (0..connections.max(1)).map(|_| Link::new(Arc::clone(&source))).collect();
        Self { links, next: AtomicUsize::new(0) }
    }

    /// The next of them.
    pub fn next(&self) -> &Link {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.links[turn % self.links.len()]
    }
}
