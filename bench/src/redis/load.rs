//! Callers on one connection, and what the server spends on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Outcome;
use super::contender::{Answers, Contender};
use super::restore::restore;
use super::server::Server;
use crate::figures::Sample;

/// How many callers make how many calls together, each waiting for its answer before its next call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) callers: usize,
    pub(crate) calls: usize,
}

/// Measures one contender once: restores the warmup, calls once per subject to warm up, and measures.
pub(crate) async fn sample(
    server: &Server,
    contender: &Arc<Contender>,
    load: Load,
) -> Outcome<Sample> {
    restore(server, contender).await?;
    let warm_up = contender.subjects.div_ceil(contender.decisions());
    drive(contender, Load { calls: warm_up, ..load }).await?;

    let cpu_before = server.redis.cpu_time().await?;
    let started = Instant::now();
    let (allowed, mut latencies) = drive(contender, load).await?;
    let took = started.elapsed();
    let cpu = server.redis.cpu_time().await?.saturating_sub(cpu_before + server.reading);

    let decisions = load.calls * contender.decisions();
    expect(contender, allowed, decisions)?;
    latencies.sort_unstable();
    Sample::new(decisions, took, cpu, &latencies, memory(server, contender).await?)
}

/// Makes calls, and says how many decisions allowed, and how long each call took.
async fn drive(contender: &Arc<Contender>, load: Load) -> Outcome<(usize, Vec<Duration>)> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..load.callers {
        let (contender, next) = (Arc::clone(contender), Arc::clone(&next));
        callers.spawn(async move {
            let (mut allowed, mut latencies) = (0, vec![]);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= load.calls {
                    return Outcome::Ok((allowed, latencies));
                }
                let asked = Instant::now();
                allowed += contender.call(number).await?;
                latencies.push(asked.elapsed());
            }
        });
    }
    let (mut allowed, mut latencies) = (0, Vec::with_capacity(load.calls));
    while let Some(caller) = callers.join_next().await {
        let (its_allowed, its_latencies) = caller??;
        allowed += its_allowed;
        latencies.extend(its_latencies);
    }
    Ok((allowed, latencies))
}

/// Figures of other answers than they are said to be of would mislead.
fn expect(contender: &Contender, allowed: usize, decisions: usize) -> Outcome<()> {
    let as_said = match contender.id.answers {
        Answers::Allowed => allowed == decisions,
        // Few slip in as a window ends, or as a log moves on.
        Answers::Denied => allowed <= decisions / 10,
    };
    if as_said {
        return Ok(());
    }
    let (name, answers) = (contender.id.name, contender.id.answers);
    Err(format!("{name}, {answers}: {allowed} of {decisions} were allowed").into())
}

async fn memory(server: &Server, contender: &Contender) -> Outcome<Option<u64>> {
    let mut usage = redis::cmd("MEMORY");
    usage.arg("USAGE").arg(contender.key(&contender.subject(0))).arg("SAMPLES").arg(0);
    Ok(usage.query_async(&mut server.connection.clone()).await?)
}
