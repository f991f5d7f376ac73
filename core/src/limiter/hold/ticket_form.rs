//! The serialized form of a ticket.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ticket::{Sent, Ticket, TicketCharge};
use crate::call::{Charge, ChargeBuf};
use crate::policy::Policy;

const VERSION: u32 = 1;

/// The fields of a serialized [`Ticket`].
///
/// Programs of an earlier release write tickets without the field `v`, and ignore `v` when they
/// read a ticket. A ticket without `v` is therefore read as version 1. So old and new processes can
/// settle each other's holds while a fleet is updated.
#[derive(Serialize, Deserialize)]
struct TicketForm {
    /// The version of the form. This field is the first, so that a ticket of a later version is
    /// rejected before its other fields are read.
    #[serde(default = "first_version", deserialize_with = "supported_version")]
    v: u32,
    id: Vec<u8>,
    ttl: Duration,
    is_degraded: bool,
    /// Programs of an earlier release do not write this field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_on_fallback: bool,
    charges: Vec<TicketChargeForm>,
}

#[derive(Serialize, Deserialize)]
struct TicketChargeForm {
    charge: ChargeForm,
    held: u64,
    /// Programs of an earlier release write no fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct ChargeForm {
    policy: Policy,
    tenant: Vec<u8>,
    subject: Vec<u8>,
    cost: u64,
    is_check_only: bool,
    /// Programs of an earlier release know no lists.
    #[serde(default, skip_serializing_if = "is_plain")]
    list: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_plain(list: &u8) -> bool {
    *list == 0
}

fn first_version() -> u32 {
    1
}

fn supported_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        VERSION => Ok(VERSION),
        version => Err(D::Error::custom(format_args!(
            "the version of the ticket is {version}; it must be {VERSION}, the only version that this \
             program reads"
        ))),
    }
}

impl Serialize for Ticket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        TicketForm::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ticket {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TicketForm::deserialize(deserializer).map(Self::from)
    }
}

impl From<&Ticket> for TicketForm {
    fn from(ticket: &Ticket) -> Self {
        let charge = |TicketCharge { charge, held, fence }: &TicketCharge| {
            let Charge { policy, tenant, subject, cost, is_check_only, list } = charge.as_charge();
            let (policy, tenant, subject) = (policy.clone(), tenant.to_vec(), subject.to_vec());
            let charge = ChargeForm { policy, tenant, subject, cost, is_check_only, list };
            TicketChargeForm { charge, held: *held, fence: *fence }
        };
        Self {
            v: VERSION,
            id: ticket.id.clone(),
            ttl: ticket.ttl,
            is_degraded: ticket.is_degraded,
            is_on_fallback: ticket.is_on_fallback,
            charges: ticket.charges.iter().map(charge).collect(),
        }
    }
}

impl From<TicketForm> for Ticket {
    fn from(form: TicketForm) -> Self {
        let charge = |TicketChargeForm { charge, held, fence }: TicketChargeForm| {
            let ChargeForm { policy, tenant, subject, cost, is_check_only, list } = charge;
            let charge = Charge::new(&policy, &subject).tenant(&tenant).cost(cost).in_list(list);
            let charge = if is_check_only { charge.check_only() } else { charge };
            TicketCharge { charge: ChargeBuf::from(charge).into_owned(), held, fence }
        };
        Self {
            id: form.id,
            ttl: form.ttl,
            is_degraded: form.is_degraded,
            is_on_fallback: form.is_on_fallback,
            charges: form.charges.into_iter().map(charge).collect(),
            sent_at: Sent::default(),
        }
    }
}
