//! The check of a policy by stores that cannot refund lapsed holds.

use crate::{Error, ErrorKind, Policy};

/// Whether a store can keep states of this policy although it does not give back what has lapsed.
pub fn keeps_lapsed(policy: &Policy) -> Result<(), Error> {
    if !policy.refunds_lapsed() {
        return Ok(());
    }
    let message = format!(
        "`{policy}` gives back what has lapsed, which this store cannot; without `refund-lapsed`, what is held \
         stays charged until it is settled"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}
