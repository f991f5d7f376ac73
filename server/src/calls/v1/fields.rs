use crate::calls::Verb;

/// A field of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Policy,
    Subject,
    SubjectBase64,
    Tenant,
    TenantBase64,
    Cost,
    Check,
    Or,
    Charges,
    Min,
    Id,
    TtlMs,
    BlockMs,
    BanMs,
    Reason,
    AtLeast,
    SoFar,
    Place,
    EndsAtMs,
}

/// The fields that a charge can have with every verb. [`charge_fields`] adds the fields that depend
/// on the verb.
const CHARGE: &[Field] =
    &[Field::Policy, Field::Subject, Field::SubjectBase64, Field::Tenant, Field::TenantBase64];

impl Field {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Subject => "subject",
            Self::SubjectBase64 => "subject_base64",
            Self::Tenant => "tenant",
            Self::TenantBase64 => "tenant_base64",
            Self::Cost => "cost",
            Self::Check => "check",
            Self::Or => "or",
            Self::Charges => "charges",
            Self::Min => "min",
            Self::Id => "id",
            Self::TtlMs => "ttl_ms",
            Self::BlockMs => "block_ms",
            Self::BanMs => "ban_ms",
            Self::Reason => "reason",
            Self::AtLeast => "at_least",
            Self::SoFar => "so_far",
            Self::Place => "place",
            Self::EndsAtMs => "ends_at_ms",
        }
    }
}

/// Returns the fields that a charge can have in a call with this verb.
pub(super) fn charge_fields(verb: Verb) -> impl Iterator<Item = Field> {
    let more: &[Field] = match verb {
        Verb::Acquire | Verb::Peek | Verb::Hold | Verb::Settle | Verb::Cancel | Verb::Extend => {
            &[Field::Cost, Field::Check, Field::Or]
        }
        Verb::Leave => &[Field::Cost, Field::Check],
        Verb::Charge | Verb::Refund | Verb::Grant => &[Field::Cost],
        Verb::Block | Verb::Ban | Verb::Unban | Verb::Reset => &[],
    };
    CHARGE.iter().chain(more).copied()
}

/// Returns the fields of a call with this verb that apply to the whole call, not to one charge.
pub(super) fn call_fields(verb: Verb) -> impl Iterator<Item = Field> {
    let fields: &[Field] = match verb {
        Verb::Acquire => &[Field::Min, Field::Id, Field::TtlMs],
        Verb::Hold => &[Field::Min, Field::Id, Field::TtlMs, Field::Place],
        Verb::Leave => &[Field::Place],
        Verb::Peek | Verb::Unban | Verb::Reset => &[],
        Verb::Charge | Verb::Refund | Verb::Extend => &[Field::Id, Field::TtlMs],
        Verb::Grant => &[Field::Id, Field::TtlMs, Field::EndsAtMs],
        Verb::Block => &[Field::BlockMs, Field::AtLeast],
        Verb::Ban => &[Field::BanMs, Field::Reason],
        Verb::Settle => &[Field::Id, Field::SoFar],
        Verb::Cancel => &[Field::Id],
    };
    fields.iter().copied()
}
