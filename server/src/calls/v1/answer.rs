use std::iter::repeat;
use std::sync::LazyLock;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;
use tidegate_core::{Decision, Verdict};
use tidegate_http::fields::FieldWriter;

use super::read::Request;
use crate::net::http::with_json;

/// The writer of the rate-limit header fields. It has no policies of its own, because each request
/// contains its policies.
static FIELDS: LazyLock<Option<FieldWriter>> = LazyLock::new(|| FieldWriter::new([]).ok());

/// The answer to a call that the store decided. Its JSON fields are written in a fixed order.
struct Answer<'a> {
    is_allowed: bool,
    request: &'a Request,
    decision: &'a Decision,
}

/// The part of an answer about one charge.
struct Charge<'a> {
    policy: &'a str,
    verdict: &'a Verdict,
    amount: u64,
    /// The unspent amount of the open holds of the state, if the store reports it.
    unspent: Option<u64>,
    /// The fence of a hold with slots.
    fence: Option<u64>,
    /// Whether a settlement refunded nothing because the log no longer contains the record of the
    /// hold.
    is_out_of_reach: bool,
}

impl Answer<'_> {
    fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        let call = &self.request.call;
        let verdicts = self.decision.verdicts().iter().zip(call.amounts(self.decision));
        let unspent = self.decision.unspent().iter().copied().chain(repeat(None));
        let fences = self.decision.fences().iter().copied().chain(repeat(None));
        let charges = call.policies().zip(verdicts).zip(unspent.zip(fences));
        charges.enumerate().map(|(index, ((policy, (verdict, amount)), (unspent, fence)))| Charge {
            policy: policy.name(),
            verdict,
            amount,
            unspent,
            fence,
            is_out_of_reach: self.decision.is_out_of_reach(index),
        })
    }
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("allowed", &self.is_allowed)?;
        if let Some(degraded) = self.decision.degraded() {
            fields.serialize_entry("degraded", degraded.answer.as_str())?;
        }
        if let Some(place) = self.decision.place() {
            let place = json!({"number": place.number, "ahead": place.ahead});
            fields.serialize_entry("place", &place)?;
        }
        if self.request.has_list {
            let is_free = self.is_allowed.then_some(Duration::ZERO);
            let wait = is_free.or_else(|| self.decision.retry_after());
            fields.serialize_entry("retry_after_ms", &milliseconds(wait))?;
            fields.serialize_entry("charges", &self.charges().collect::<Vec<_>>())?;
        } else if let Some(charge) = self.charges().next() {
            charge.write(&mut fields)?;
        }
        fields.end()
    }
}

impl Charge<'_> {
    fn write<M: SerializeMap>(&self, fields: &mut M) -> Result<(), M::Error> {
        let Self { policy, verdict, amount, unspent, fence, is_out_of_reach } = self;
        fields.serialize_entry("policy", policy)?;
        fields.serialize_entry("outcome", verdict.outcome().as_str())?;
        fields.serialize_entry("limit", &verdict.limit())?;
        fields.serialize_entry("remaining", &verdict.remaining())?;
        fields.serialize_entry("retry_after_ms", &milliseconds(verdict.retry_after()))?;
        if let Some(lapse) = verdict.earliest_lapse() {
            fields.serialize_entry("earliest_lapse_ms", &milliseconds(Some(lapse.after())))?;
        }
        fields.serialize_entry("reset_after_ms", &milliseconds(Some(verdict.reset_after())))?;
        if !verdict.blocked_for().is_zero() {
            fields.serialize_entry("blocked_for_ms", &milliseconds(Some(verdict.blocked_for())))?;
        }
        if verdict.block_level() > 0 {
            fields.serialize_entry("block_level", &verdict.block_level())?;
        }
        if verdict.warns() {
            fields.serialize_entry("warns", &true)?;
        }
        fields.serialize_entry("amount", amount)?;
        if let Some(unspent) = unspent {
            fields.serialize_entry("unspent", unspent)?;
        }
        if let Some(fence) = fence {
            fields.serialize_entry("fence", fence)?;
        }
        match is_out_of_reach {
            true => fields.serialize_entry("out_of_reach", &true),
            false => Ok(()),
        }
    }
}

impl Serialize for Charge<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        self.write(&mut fields)?;
        fields.end()
    }
}

/// Returns a wait in whole milliseconds, rounded up so that the client does not retry too early.
/// `None` means that waiting does not help.
fn milliseconds(span: Option<Duration>) -> Option<u64> {
    let rounded_up = |span: Duration| span.as_nanos().div_ceil(1_000_000);
    span.map(|span| u64::try_from(rounded_up(span)).unwrap_or(u64::MAX))
}

/// Returns the response to a call that the store decided.
pub(super) fn decided(request: &Request, decision: &Decision) -> Response {
    let call = &request.call;
    let is_allowed = call.is_admitted(decision);
    let mut headers = HeaderMap::new();
    if let Some(fields) = &*FIELDS
        && call.can_refuse()
    {
        fields.write(decision.verdicts_of(call.policies()), decision, &mut headers);
    }
    let status = if is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    (headers, with_json(status, &Answer { is_allowed, request, decision })).into_response()
}
