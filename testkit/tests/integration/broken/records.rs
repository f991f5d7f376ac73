//! What a broken store keeps its records under, and tells of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::engine::{Record, Records};
use tidegate_core::{Call, Charge, Decision, Error, Operation, Verdict, Wait};

use super::Defect;

pub(super) type Map = BTreeMap<Vec<Vec<u8>>, Record>;

pub(super) fn retry(verdict: &Verdict) -> Wait {
    wait_of(verdict.retry_after())
}

pub(super) fn wait_of(wait: Option<Duration>) -> Wait {
    wait.map_or(Wait::NEVER, |wait| Wait::until(micros(wait), 0))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap()
}

/// The same verdicts with another `remaining` and another wait.
pub(super) fn retold(verdicts: &[Verdict], tell: impl Fn(&Verdict) -> (u64, Wait)) -> Decision {
    Decision::new(verdicts.iter().map(|v| {
        let (remaining, wait) = tell(v);
        Verdict::new(v.outcome(), v.limit(), remaining, wait, micros(v.reset_after()))
            .in_block(micros(v.blocked_for()))
            .in_shadow(v.is_shadow())
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

pub(super) struct OfCall<'m, 'c> {
    pub(super) map: &'m mut Map,
    pub(super) call: Call<'c>,
    pub(super) defect: Defect,
}

impl<'c> OfCall<'_, 'c> {
    fn charge(&self, place: usize) -> (Vec<Vec<u8>>, Charge<'c>) {
        let charge = self.call.charges.get(place).unwrap();
        (key(self.defect, &charge), charge)
    }
}

impl Records for OfCall<'_, '_> {
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
}
