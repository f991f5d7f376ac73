//! One load on the server, and what it cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_redis::protocol::Keys;
use tidegate_redis::{Call, CallId, Charge, Operation, Policy, RedisStore, Store};
use tokio::task::JoinSet;

use super::Options;
use super::scenario::{Form, Scenario};
use crate::Outcome;
use crate::figures::Sample;
use crate::redis::server::Server;

/// Time to live of the ids.
const TTL: Duration = Duration::from_secs(600);

/// What is held; one less is used.
const HELD: u64 = 2;

/// Calls for one scenario.
struct Load {
    store: RedisStore,
    policies: Vec<Policy>,
    form: Form,
    subjects: usize,
    next: AtomicUsize,
}

/// Measures once, on an empty server.
pub(super) async fn sample(
    server: &Server,
    scenario: &Scenario,
    form: Form,
    options: &Options,
) -> Outcome<Sample> {
    let _ = server.redis.command(&["FLUSHALL"]).await?;
    let load = Arc::new(Load::new(server, scenario, form, options.subjects)?);
    drive(&load, options.subjects, options.callers).await?;
    let cpu_before = server.redis.cpu_time().await?;
    let started = Instant::now();
    drive(&load, options.subjects + options.calls, options.callers).await?;
    let took = started.elapsed();
    let cpu = server.redis.cpu_time().await?.saturating_sub(cpu_before + server.reading);
    Sample::new(options.calls, took, cpu, &[], None)
}

/// Makes calls up to this number.
async fn drive(load: &Arc<Load>, end: usize, callers: usize) -> Outcome<()> {
    let mut running = JoinSet::new();
    for _ in 0..callers {
        let load = Arc::clone(load);
        running.spawn(async move {
            loop {
                let number = load.next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return Outcome::Ok(());
                }
                load.call(number).await?;
            }
        });
    }
    while let Some(caller) = running.join_next().await {
        caller??;
    }
    load.next.store(end, Ordering::Relaxed);
    Ok(())
}

impl Load {
    fn new(server: &Server, scenario: &Scenario, form: Form, subjects: usize) -> Outcome<Self> {
        let policies = scenario.policies.iter().map(|text| text.parse());
        Ok(Self {
            store: server.store.clone(),
            policies: policies.collect::<Result<_, _>>()?,
            form,
            subjects,
            next: AtomicUsize::new(0),
        })
    }

    fn subject(&self, number: usize) -> String {
        format!("user-{:06}", number % self.subjects)
    }

    async fn call(&self, number: usize) -> Outcome<()> {
        let (id, subject) = (id_of(number), self.subject(number));
        let id = CallId::new(&id, TTL);
        let of =
            |cost| self.policies.iter().map(|it| Charge::new(it, &subject).cost(cost)).collect();
        let (held, used): (Vec<Charge<'_>>, Vec<Charge<'_>>) = (of(HELD), of(HELD - 1));
        match self.form {
            Form::Plain => self.make(Call::acquire(&used)).await,
            Form::WithId => self.make(Call::acquire(&used).with_id(id)).await,
            Form::HoldAndSettlement => {
                self.make(Call::new(Operation::Hold, &held).with_id(id)).await?;
                self.make(Call::new(Operation::Settle, &used).with_id(id)).await
            }
        }
    }

    async fn make(&self, call: Call<'_>) -> Outcome<()> {
        match self.store.decide(call).await?.is_allowed() {
            true => Ok(()),
            false => Err("a call was denied, which costs less".into()),
        }
    }
}

/// Bytes of the key of an id.
pub(super) struct Sizes {
    /// Of a plain call.
    pub(super) id: u64,
    /// Of a hold.
    pub(super) held: u64,
    /// Of a hold that is settled.
    pub(super) settled: u64,
}

pub(super) async fn sizes(server: &Server, scenario: &Scenario) -> Outcome<Sizes> {
    let _ = server.redis.command(&["FLUSHALL"]).await?;
    let load = Load::new(server, scenario, Form::WithId, 1)?;
    load.call(0).await?;
    let id = bytes(server, &load, 0).await?;
    let load = Load { form: Form::HoldAndSettlement, ..load };
    let subject = load.subject(1);
    let held: Vec<_> =
        load.policies.iter().map(|it| Charge::new(it, &subject).cost(HELD)).collect();
    let hold = Call::new(Operation::Hold, &held);
    load.make(hold.with_id(CallId::new(&id_of(1), TTL))).await?;
    load.call(2).await?;
    let (held, settled) = (bytes(server, &load, 1).await?, bytes(server, &load, 2).await?);
    Ok(Sizes { id, held, settled })
}

async fn bytes(server: &Server, load: &Load, number: usize) -> Outcome<u64> {
    let subject = load.subject(number);
    let policy = load.policies.first().ok_or("a scenario without a policy")?;
    let key =
        Keys::new("tidegate").id_key(&Charge::new(policy, &subject), id_of(number).as_bytes());
    let mut usage = redis::cmd("MEMORY");
    usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
    Ok(usage.query_async(&mut server.connection.clone()).await?)
}

/// An id as long as a UUID in text.
fn id_of(number: usize) -> String {
    format!("{number:036}")
}
