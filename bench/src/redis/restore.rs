//! Writes the states before a measurement begins. Only one subject is charged. Its state is copied
//! to all other subjects.

use std::sync::Arc;

use redis::Pipeline;
use redis::aio::MultiplexedConnection;
use tidegate_redis::{
    Call, Charge, Clock, ManualClock, Operation, Policy, RedisStore, Store, SystemClock, Timestamp,
};
use tokio::task::JoinSet;

use super::contender::{Contender, Form};
use super::peer::Keeps;
use super::warmup::Warmup;
use crate::Outcome;
use crate::harness::{Server, TIMEOUT};

const TEMPLATE: &str = "template";

/// Deletes the states of a contender, and writes the state after the warmup for each of its
/// subjects.
pub(crate) async fn restore(server: &Server, contender: &Contender) -> Outcome<()> {
    let mut connection = server.connection.clone();
    let template = contender.key(TEMPLATE);
    let keys: Vec<String> =
        (0..contender.subjects).map(|number| contender.key(&contender.subject(number))).collect();
    let mut forget = redis::cmd("DEL");
    forget.arg(&keys).arg(&template);
    let _: usize = forget.query_async(&mut connection).await?;
    let now = SystemClock::new().now().as_micros();
    let charges = contender.warmup.charges(now);
    if charges.is_empty() {
        return Ok(());
    }
    match &contender.form {
        Form::Store(_)
        | Form::Script(_)
        | Form::Coalesced(_)
        | Form::Batch(..)
        | Form::GeneralBatch(..) => {
            charge(server, &contender.policy, charges).await?;
        }
        Form::Peer(peer, _) => match (peer.keeps, contender.warmup) {
            (Keeps::SortedSet, _) => write_sorted_set(&mut connection, &template, &charges).await?,
            (Keeps::CounterHash, Warmup::Before { window, cost }) => {
                let fields = [("window", now / window - 1), ("previous", 0), ("current", cost)];
                let mut command = redis::cmd("HSET");
                command.arg(&template).arg(&fields);
                let _: usize = command.query_async(&mut connection).await?;
            }
            _ => return Err(format!("{}: no such warmup can be written", contender.id.name).into()),
        },
    }
    copy(&mut connection, &template, &keys).await
}

/// Charges the subject [`TEMPLATE`]. Each charge has its own time.
async fn charge(server: &Server, policy: &Policy, charges: Vec<(u64, u64)>) -> Outcome<()> {
    let clock = ManualClock::new(Timestamp::from_micros(0));
    let builder = RedisStore::builder().url(server.redis.url()).clock(clock.clone());
    let store = builder.response_timeout(TIMEOUT).build()?;
    // The peek loads the script. Without it, the store would send many calls again, in another
    // order.
    let _ = store.decide(Call::new(Operation::Peek, &[Charge::new(policy, TEMPLATE)])).await?;
    let policy = Arc::new(policy.clone());
    let mut tasks = JoinSet::new();
    for (time, cost) in charges {
        let (store, clock, policy) = (store.clone(), clock.clone(), Arc::clone(&policy));
        // The tasks start in order. Each task sets the clock, which the store reads before the task
        // first waits.
        tasks.spawn(async move {
            clock.set(Timestamp::from_micros(time));
            store.decide(Call::acquire(&[Charge::new(&policy, TEMPLATE).cost(cost)])).await
        });
    }
    while let Some(decision) = tasks.join_next().await {
        if !decision??.is_allowed() {
            return Err(format!("{policy}: a charge of the warmup was refused").into());
        }
    }
    Ok(())
}

async fn write_sorted_set(
    connection: &mut MultiplexedConnection,
    key: &str,
    charges: &[(u64, u64)],
) -> Outcome<()> {
    for some in charges.chunks(500) {
        let members: Vec<(u64, u64)> = some.iter().map(|&(time, _)| (time, time)).collect();
        let mut command = redis::cmd("ZADD");
        command.arg(key).arg(&members);
        let _: usize = command.query_async(connection).await?;
    }
    Ok(())
}

async fn copy(
    connection: &mut MultiplexedConnection,
    template: &str,
    keys: &[String],
) -> Outcome<()> {
    for some in keys.chunks(50) {
        let mut pipeline = Pipeline::new();
        for key in some {
            pipeline.cmd("COPY").arg(template).arg(key);
        }
        let copied: Vec<usize> = pipeline.query_async(connection).await?;
        if copied.iter().sum::<usize>() != some.len() {
            return Err(format!("{template} was not copied to every key").into());
        }
    }
    Ok(())
}
