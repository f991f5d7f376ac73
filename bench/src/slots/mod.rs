//! Measures slots on one Redis, with few and with many holders of one subject, next to common
//! scripts.

mod wake_ups;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use redis::Script;
use redis::aio::MultiplexedConnection;
use tidegate_redis::{Call, CallId, Charge, Operation, Policy, RedisStore, Store};

use crate::harness::{self, Cost, Samples, Server, Thousandths, drive, measure, rounds};
use crate::{Outcome, at_least_one, block_on, server};

/// The time to live of a hold. No hold lapses during the benchmark.
const TTL: Duration = Duration::from_secs(3_600);

const LIMIT: &str = "100000";
const LEASE_MICROS: &str = "3600000000";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    rounds: usize,
    /// Number of slots that are taken and freed in each measurement.
    #[arg(long, default_value_t = 4_000, value_parser = at_least_one)]
    calls: usize,
    /// Number of callers on the connection.
    #[arg(long, default_value_t = 16, value_parser = at_least_one)]
    callers: usize,
    /// Numbers of other holders of the subject.
    #[arg(long, value_delimiter = ',', default_value = "10,10000")]
    holders: Vec<usize>,
    /// Milliseconds for which a slot is in use, when the wait of the next caller is measured.
    #[arg(long, value_delimiter = ',', default_value = "20,200")]
    held: Vec<u64>,
}

/// The way to take and free a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    PlainHold,
    Slots,
    Renewal,
    Zset,
    Permits,
}

impl Way {
    const ALL: [Self; 6] =
        [Self::Plain, Self::PlainHold, Self::Slots, Self::Renewal, Self::Zset, Self::Permits];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "fixed window: acquire",
            Self::PlainHold => "fixed window: hold and settlement",
            Self::Slots => "slots: hold and settlement",
            Self::Renewal => "slots: extension",
            Self::Zset => "script like LiteLLM's: take and free",
            Self::Permits => "script like redisson's: take and free",
        }
    }

    fn policy(self) -> Outcome<Policy> {
        Ok(match self {
            Self::Plain | Self::PlainHold => "window: fixed-window 100000000/24h".parse()?,
            _ => "slots: concurrent 100000 lease 1h".parse()?,
        })
    }
}

struct Load {
    way: Way,
    store: RedisStore,
    connection: MultiplexedConnection,
    policy: Policy,
    scripts: [Script; 3],
}

fn id_of(number: usize) -> String {
    format!("{number:036}")
}

impl Load {
    async fn decide(&self, operation: Operation, cost: u64, id: Option<&str>) -> Outcome<()> {
        let charges = [Charge::new(&self.policy, "subject").cost(cost)];
        let call = Call::new(operation, &charges);
        let call = match id {
            Some(id) => call.with_id(CallId::new(id, TTL)),
            None => call,
        };
        match self.store.decide(call).await?.is_allowed() {
            true => Ok(()),
            false => Err("a call was denied".into()),
        }
    }

    async fn script(&self, script: &Script, keys: &[&str], arguments: &[&str]) -> Outcome<()> {
        let mut connection = self.connection.clone();
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(keys.len()).arg(keys).arg(arguments);
        let done: i64 = command.query_async(&mut connection).await?;
        if done == 1 { Ok(()) } else { Err("a slot was not available".into()) }
    }

    async fn take(&self, id: &str) -> Outcome<()> {
        let [zset, permit, _] = &self.scripts;
        match self.way {
            Way::Plain => Ok(()),
            Way::PlainHold | Way::Slots | Way::Renewal => {
                self.decide(Operation::Hold, 1, Some(id)).await
            }
            Way::Zset => self.script(zset, &["set"], &[LIMIT, LEASE_MICROS, id]).await,
            Way::Permits => {
                self.script(permit, &["free", "leases"], &[LIMIT, LEASE_MICROS, id]).await
            }
        }
    }

    async fn free(&self, id: &str) -> Outcome<()> {
        let [.., permit] = &self.scripts;
        match self.way {
            Way::Plain => self.decide(Operation::Acquire, 1, None).await,
            Way::PlainHold | Way::Slots => self.decide(Operation::Settle, 0, Some(id)).await,
            Way::Renewal => Ok(()),
            Way::Zset => {
                let mut connection = self.connection.clone();
                let mut command = redis::cmd("ZREM");
                Ok(command.arg("set").arg(id).query_async(&mut connection).await?)
            }
            Way::Permits => self.script(permit, &["free", "leases"], &[id]).await,
        }
    }
}

impl harness::Load for Load {
    async fn call(&self, number: usize) -> Outcome<usize> {
        let id = id_of(number);
        if self.way == Way::Renewal {
            // The holds exist already, and are extended in turn.
            self.decide(Operation::Extend, 0, Some(&id)).await?;
        } else {
            self.take(&id).await?;
            self.free(&id).await?;
        }
        Ok(1)
    }
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    block_on(compare(options))?;
    server::slots(options.rounds, options.calls)
}

async fn sample(
    server: &Server,
    way: Way,
    holders: usize,
    options: &Options,
) -> Outcome<(Cost, u64)> {
    let _ = server.redis.command(&["FLUSHALL"]).await?;
    let mut connection = server.connection.clone();
    let scripts = [
        Script::new(include_str!("zset_take.lua")),
        Script::new(include_str!("permit_take.lua")),
        Script::new(include_str!("permit_free.lua")),
    ];
    for script in &scripts {
        script.load_async(&mut connection).await?;
    }
    let (policy, store) = (way.policy()?, server.store.clone());
    let load = Arc::new(Load { way, store, connection, policy, scripts });
    let before = used_memory(server).await?;
    for number in 0..holders {
        load.take(&id_of(1_000_000 + number)).await?;
    }
    let bytes = used_memory(server).await?.saturating_sub(before) / holders.max(1) as u64;
    let (first, calls) = match way {
        Way::Renewal => (1_000_000, options.calls.min(holders)),
        _ => (0, options.calls),
    };
    drive(&load, options.callers, first..first + calls.min(100)).await?;
    let start = if way == Way::Renewal { first } else { 100_000 };
    let cost = measure(server, &load, options.callers, start..start + calls, 1).await?.0;
    Ok((cost, bytes))
}

async fn used_memory(server: &Server) -> Outcome<u64> {
    let reply = server.redis.command(&["INFO", "memory"]).await?;
    let text = reply.text();
    let used = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(used.ok_or("no used_memory")?.trim().parse()?)
}

async fn compare(options: &Options) -> Outcome<()> {
    let server = Server::start().await?;
    let mut samples = Samples::new();
    for _ in rounds(options.rounds) {
        for &holders in &options.holders {
            for way in Way::ALL {
                samples.add((holders, way), sample(&server, way, holders, options).await?);
            }
        }
    }
    let Options { rounds, calls, callers, .. } = options;
    println!(
        "{}, over TCP on this machine. Medians of {rounds} interleaved rounds of {calls} slots, which {callers} \
         callers on one connection take and free. CPU is the user and system time of the server for each slot. The \
         ratios are relative to a hold of a fixed window with its settlement, in the same round.\n\n\
         | holders of the subject | way | CPU, µs | ratio | bytes of each other holder |\n|--:|---|--:|--:|--:|",
        server.redis.version(),
    );
    let cpu = |sample: &(Cost, u64)| sample.0.cpu;
    for &holders in &options.holders {
        for way in Way::ALL {
            let key = (holders, way);
            let ratio = samples.ratio((&key, &(holders, Way::PlainHold)), cpu)?;
            let cost = Thousandths(samples.median(&key, cpu)?);
            let bytes = samples.median(&key, |sample| sample.1)?;
            println!("| {holders} | {} | {cost} | × {ratio} | {bytes} |", way.name());
        }
    }
    wake_ups::compare(&server, *rounds, &options.held).await
}
