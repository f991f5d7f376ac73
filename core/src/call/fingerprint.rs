//! The digest of a call.

use std::fmt::{self, Write as _};
use std::time::Duration;

use sha1_smol::Sha1;

use super::{Call, Operation};

impl Call<'_> {
    /// Returns a digest of the operation and the charges of the call, but not of its
    /// [id](crate::CallId). Two calls with the same operation and charges have the same digest, on
    /// every machine.
    ///
    /// A store remembers the digest and the answer of a call under the id of the call. All calls
    /// for one [hold](crate::Operation::Hold) have the same digest, because their digest contains
    /// neither the operation nor the costs.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 20] {
        let mut digest = Digest(Sha1::new());
        let nanos = |span: Duration| span.as_nanos().min(u128::from(u64::MAX));
        let argument = match self.operation {
            Operation::Undo { at } => u128::from(at.as_micros()),
            Operation::Reserve { max_wait } => nanos(max_wait),
            Operation::Block { span } | Operation::BlockAtLeast { span } => nanos(span),
            Operation::AcquireUpTo { min } => u128::from(min),
            Operation::Grant { ends_at } => {
                ends_at.map_or(u128::MAX, |end| u128::from(end.as_micros()))
            }
            _ => 0,
        };
        let has_costs = !self.operation.is_of_hold();
        digest.number(self.operation.code());
        digest.number(argument);
        for charge in self.charges.iter() {
            // The result is ignored because writing to a digest cannot fail.
            let _ = match self.operation {
                // The numbers of the policy can change while the store remembers the call. A hold
                // of slots then still ends.
                Operation::Grant { .. } => write!(digest, "{}\0", charge.policy.state_name()),
                operation if operation.is_of_hold() && charge.policy.is_concurrent() => {
                    write!(digest, "{}\0", charge.policy.state_name())
                }
                // The text of the policy contains its name and all its numbers.
                _ => write!(digest, "{}\0", charge.policy),
            };
            for bytes in [charge.tenant, charge.subject] {
                digest.number(bytes.len() as u128);
                digest.0.update(bytes);
            }
            digest.number(u128::from(if has_costs { charge.cost } else { 0 }));
            digest.number(u128::from(charge.is_check_only) | (u128::from(charge.list) << 1));
        }
        digest.0.digest().bytes()
    }
}

struct Digest(Sha1);

impl Digest {
    fn number(&mut self, number: u128) {
        self.0.update(&number.to_le_bytes());
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
