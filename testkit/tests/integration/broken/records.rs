//! The keys and the records of a broken store.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::engine::{Record, Records, RememberedCall};
use tidegate_core::{Call, Charge, Decision, Error, Operation, Verdict};

use super::Defect;

pub(super) type Map = BTreeMap<Vec<Vec<u8>>, Record>;

/// The recorded calls of a store, by slot key (the tenant, or the subject without a tenant) and id.
pub(super) type Ids = BTreeMap<[Vec<u8>; 2], RememberedCall>;

/// Returns a decision with changed copies of `verdicts`. The closure `replace` determines the
/// values of `remaining` and `retry_after` in each copy.
pub(super) fn with_waits(
    verdicts: &[Verdict],
    replace: impl Fn(&Verdict) -> (u64, Option<Duration>),
) -> Decision {
    Decision::new(verdicts.iter().map(|v| {
        let (remaining, wait) = replace(v);
        let verdict = Verdict::new(v.outcome(), v.limit())
            .with_remaining(remaining)
            .with_retry_after(wait)
            .with_reset_after(v.reset_after())
            .with_block(v.blocked_for());
        if v.is_shadow() { verdict.in_shadow() } else { verdict }
    }))
}

pub(super) fn key(defect: Defect, charge: &Charge<'_>) -> Vec<Vec<u8>> {
    let name = match defect {
        Defect::OneStatePerName => charge.policy.name().to_owned(),
        Defect::UnnamedByAlgorithm if !charge.policy.is_named() => {
            format!("{}{}", charge.policy.algorithm().keyword(), charge.policy.rule().shape())
        }
        _ => charge.policy.state_name().to_string(),
    };
    let tenant = charge.tenant;
    let subject = match defect {
        Defect::SplitsTenants => charge.subject,
        _ => charge.state_subject(),
    };
    let key = [name.as_bytes(), tenant, subject];
    match defect {
        Defect::JoinsKeys => vec![key.concat()],
        Defect::ReadsText => {
            key.iter().map(|part| String::from_utf8_lossy(part).into_owned().into_bytes()).collect()
        }
        Defect::CutsSubjects => {
            key.iter().map(|part| part[..part.len().min(1_000)].to_vec()).collect()
        }
        Defect::RefillsAtChange => {
            let mut key = key.map(<[u8]>::to_vec).to_vec();
            key.push(charge.policy.to_string().into_bytes());
            key
        }
        _ => key.map(<[u8]>::to_vec).to_vec(),
    }
}

pub(super) struct CallRecords<'m, 'c> {
    pub(super) map: &'m mut Map,
    pub(super) ids: &'m mut Ids,
    pub(super) call: Call<'c>,
    pub(super) defect: Defect,
}

impl<'c> CallRecords<'_, 'c> {
    fn charge(&self, place: usize) -> (Vec<Vec<u8>>, Charge<'c>) {
        let charge = self.call.charges.get(place).unwrap();
        (key(self.defect, &charge), charge)
    }

    fn id(&self) -> [Vec<u8>; 2] {
        let id = self.call.id.unwrap().id.to_vec();
        match self.defect {
            Defect::SharesIds => [vec![], id],
            _ => [self.call.charges.get(0).unwrap().slot_key().to_vec(), id],
        }
    }
}

impl Records for CallRecords<'_, '_> {
    fn get(&mut self, place: usize) -> Option<&Record> {
        let (key, charge) = self.charge(place);
        if self.defect == Defect::RefundsCreate && self.call.operation == Operation::Refund {
            self.map.entry(key.clone()).or_insert_with(|| Record::new(charge.policy));
        }
        self.map.get(&key)
    }

    fn make_room(&mut self, _: &[usize]) -> Result<(), Error> {
        Ok(())
    }

    fn update(&mut self, place: usize, change: impl FnOnce(&mut Record)) {
        let (key, charge) = self.charge(place);
        change(self.map.entry(key).or_insert_with(|| Record::new(charge.policy)));
    }

    fn remove(&mut self, place: usize) {
        let (key, _) = self.charge(place);
        if self.defect != Defect::RefundsCreate {
            self.map.remove(&key);
        }
    }

    fn remembered(&mut self) -> Result<Option<RememberedCall>, Error> {
        let known = self.ids.get(&self.id()).cloned();
        Ok(known.map(|mut call| match self.defect {
            Defect::SettlesTwice => {
                if let Some(hold) = &mut call.hold {
                    hold.settlement = None;
                }
                call
            }
            Defect::ChargesSoFarAgain => {
                let charges = call.hold.iter_mut().flat_map(|hold| &mut hold.charges);
                charges.for_each(|charge| charge.spent = 0);
                call
            }
            Defect::HoldsTwice => {
                let charges = call.hold.iter_mut().flat_map(|hold| &mut hold.charges);
                charges.for_each(|charge| charge.held = charge.held.map(|held| 2 * held));
                call
            }
            Defect::AnswersAnyCall => {
                RememberedCall::new(self.call.fingerprint(), call.expires_at_micros, call.decision)
            }
            _ => call,
        }))
    }

    fn remember(&mut self, mut call: RememberedCall) {
        if self.defect == Defect::KeepsIds {
            call.expires_at_micros = u64::MAX;
        }
        self.ids.insert(self.id(), call);
    }
}
