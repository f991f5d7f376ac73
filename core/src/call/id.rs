//! The id of a call.

use std::fmt;
use std::time::Duration;

use crate::subject::ShownBytes;

/// An id under which a call is executed once, even if it is sent again.
///
/// During the id's time to live, the caller can repeat the call. The store then returns the answer
/// to the first call, and changes nothing. The caller can repeat the call over another connection
/// or from another process. So a caller whose call timed out sends the call again to get the
/// answer.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::{Call, CallId, Charge, ErrorKind, Policy};
/// use tidegate_memory::MemoryStore;
///
/// let (store, policy) = (MemoryStore::new(), "fixed-window 10/1h".parse::<Policy>()?);
/// let charges = [Charge::new(&policy, "alice").cost(4)];
/// let id = CallId::new("job 7", Duration::from_secs(3600));
/// let first = store.decide_now(&Call::acquire(&charges).with_id(id))?;
/// let again = store.decide_now(&Call::acquire(&charges).with_id(id))?;
/// assert_eq!(first, again);
/// assert_eq!(again.verdicts()[0].remaining(), 6); // charged once
///
/// let other = [charges[0].cost(5)];
/// let error = store.decide_now(&Call::acquire(&other).with_id(id)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::IdReused);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What a store remembers
///
/// * Two calls are the same if they have the same operation with the same arguments, and the same
///   charges in the same order. Two charges are the same if they have the same policy, tenant,
///   subject and cost, and if both or none of them are [check-only](crate::Charge::check_only). A
///   different call under a remembered id fails with
///   [`ErrorKind::IdReused`](crate::ErrorKind::IdReused).
/// * The store remembers only calls that it executed. If an acquire was refused or a call failed, a
///   repetition is decided like a new call.
/// * The store remembers the id until the time to live has passed since the first call, by the
///   store's clock. Repetitions do not prolong this time. If the clock steps back, the store
///   remembers the id longer. A reset of a subject does not remove ids.
/// * An id belongs to the [slot key](crate::Charge::slot_key) of the first charge: the tenant, or
///   the subject if the charge has no tenant. Two calls with the same id and different tenants are
///   different calls.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallId<'a> {
    /// The bytes of the id. An id has 1 to [`MAX_ID`](crate::MAX_ID) bytes, and any bytes are
    /// valid.
    pub id: &'a [u8],
    /// The time for which the store remembers the call, counted from the first call. It is at most
    /// [`MAX_SPAN`](crate::MAX_SPAN), and is rounded up to microseconds.
    pub ttl: Duration,
}

impl<'a> CallId<'a> {
    /// Creates an id with its time to live.
    #[must_use]
    pub fn new(id: &'a (impl AsRef<[u8]> + ?Sized), ttl: Duration) -> Self {
        Self { id: id.as_ref(), ttl }
    }
}

impl fmt::Debug for CallId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallId({:?}, ttl {:?})", ShownBytes(self.id), self.ttl)
    }
}

/// Returns 128 random bits for an id that no other process uses. They are also random in
/// simulations, in which other hashers have fixed seeds.
#[cfg(feature = "tokio")]
pub(crate) fn random_bits() -> [u64; 2] {
    use std::hash::BuildHasher;

    [0, 1].map(|half| std::collections::hash_map::RandomState::new().hash_one(half))
}
