//! The calls of a scenario.

use std::sync::Arc;
use std::time::Duration;

use tidegate_redis::protocol::Keys;
use tidegate_redis::{Call, CallId, Charge, Operation, Policy, RedisStore, Store};

use super::Options;
use super::scenario::{Form, Scenario};
use crate::Outcome;
use crate::harness::{self, Cost, Server, drive, measure};

const TTL: Duration = Duration::from_secs(600);

/// The estimate of each hold. The actual cost is one less.
const HELD: u64 = 2;

/// The calls of one scenario: without an id, with an id, or holds.
struct Load {
    store: RedisStore,
    policies: Vec<Policy>,
    form: Form,
    subjects: usize,
}

/// Measures a scenario once, on an empty server, after one call per subject to warm up.
pub(super) async fn sample(
    server: &Server,
    scenario: &Scenario,
    form: Form,
    options: &Options,
) -> Outcome<Cost> {
    let Options { calls, subjects, open, callers, .. } = *options;
    let _ = server.redis.command(&["FLUSHALL"]).await?;
    let load = Arc::new(Load::new(server, scenario, form, subjects)?);
    drive(&load, callers, 0..subjects).await?;
    for number in 0..open {
        let (id, subject) = (format!("open-{number}"), load.subject(number));
        load.hold(&subject, CallId::new(&id, TTL)).await?;
    }
    // Each id is used once.
    let numbers = subjects..subjects + calls;
    Ok(measure(server, &load, callers, numbers, 1).await?.0)
}

impl Load {
    fn new(server: &Server, scenario: &Scenario, form: Form, subjects: usize) -> Outcome<Self> {
        let policies = scenario.policies.iter().map(|text| text.parse());
        let policies = policies.collect::<Result<_, _>>()?;
        Ok(Self { store: server.store.clone(), policies, form, subjects })
    }

    fn subject(&self, number: usize) -> String {
        format!("user-{:06}", number % self.subjects)
    }

    fn charges<'a>(&'a self, subject: &'a str, cost: u64) -> Vec<Charge<'a>> {
        self.policies.iter().map(|policy| Charge::new(policy, subject).cost(cost)).collect()
    }

    async fn hold(&self, subject: &str, id: CallId<'_>) -> Outcome<()> {
        let held = self.charges(subject, HELD);
        self.make(Call::new(Operation::Hold, &held).with_id(id)).await
    }

    async fn make(&self, call: Call<'_>) -> Outcome<()> {
        match self.store.decide(call).await?.is_allowed() {
            true => Ok(()),
            false => {
                Err("a call was denied; a denial costs less, so it must not be measured".into())
            }
        }
    }
}

impl harness::Load for Load {
    async fn call(&self, number: usize) -> Outcome<usize> {
        let (id, subject) = (id_of(number), self.subject(number));
        let id = CallId::new(&id, TTL);
        let used = self.charges(&subject, HELD - 1);
        match self.form {
            Form::Plain => self.make(Call::acquire(&used)).await?,
            Form::WithId => self.make(Call::acquire(&used).with_id(id)).await?,
            Form::HoldAndSettlement => {
                self.hold(&subject, id).await?;
                self.make(Call::new(Operation::Settle, &used).with_id(id)).await?;
            }
        }
        Ok(1)
    }
}

/// The size of the key that Redis stores for an id, in bytes.
pub(super) struct Sizes {
    pub(super) id: u64,
    pub(super) held: u64,
    /// The size after the hold was settled.
    pub(super) settled: u64,
}

pub(super) async fn sizes(server: &Server, scenario: &Scenario) -> Outcome<Sizes> {
    use harness::Load as _;
    let _ = server.redis.command(&["FLUSHALL"]).await?;
    let load = Load::new(server, scenario, Form::WithId, 1)?;
    load.call(0).await?;
    let load = Load { form: Form::HoldAndSettlement, ..load };
    let subject = load.subject(1);
    load.hold(&subject, CallId::new(&id_of(1), TTL)).await?;
    load.call(2).await?;
    let size = async |number: usize| {
        let charge = load.charges(&subject, 1);
        let charge = charge.first().ok_or("a scenario without a policy")?;
        let key = Keys::new("tidegate").id_key(charge, id_of(number).as_bytes());
        Outcome::Ok(server.memory_of(key).await?.ok_or("an id without a key")?)
    };
    Ok(Sizes { id: size(0).await?, held: size(1).await?, settled: size(2).await? })
}

/// Returns an id with the length of a UUID in text.
fn id_of(number: usize) -> String {
    format!("{number:036}")
}
