//! Causes faults of a cluster, and measures clients during a fault.

use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use tidegate_test_servers::Cluster;
use tokio::time::sleep;

use super::client::Kind;
use super::load::Load;
use crate::Outcome;

/// The node with the fault.
const SICK: usize = 0;

const TIMEOUT: Duration = Duration::from_millis(300);

/// A fault of one of three nodes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    None,
    /// SIGSTOP: the node keeps its connections, and does not answer.
    Paused,
    /// SIGSTOP, while a slot moves between the other nodes twice per second.
    PausedAndMoving,
    /// The machine of the node disappears: connections are neither answered nor refused.
    Gone,
    /// SIGKILL of a node without a replica.
    Killed,
}

impl Fault {
    pub(super) const ALL: [Self; 5] =
        [Self::None, Self::Killed, Self::Paused, Self::PausedAndMoving, Self::Gone];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Paused => "one paused",
            Self::PausedAndMoving => "one paused, a slot moves elsewhere",
            Self::Gone => "one gone without a word",
            Self::Killed => "one killed",
        })
    }
}

/// Measures calls to the other two nodes while one node has a fault. Returns the cells of a table.
pub(super) async fn others(kind: Kind, fault: Fault, time: Duration) -> Outcome<String> {
    let cluster = Cluster::start().await?;
    let client = kind.connect(&cluster, TIMEOUT).await?;
    let keys = |callers: usize, is_wanted: fn(usize) -> bool| {
        keys_at(&cluster, is_wanted).into_iter().take(callers).collect()
    };
    let rest = Some(Duration::from_millis(2));
    let well = Load { keys: keys(16, |node| node != SICK), time, rest };
    let sick = Load { keys: keys(4, |node| node == SICK), time, rest };
    // These calls open all connections before the fault begins.
    let both = [&well.keys[..], &sick.keys[..]].concat();
    Load { keys: both, time: Duration::from_millis(200), rest }.run(&client).await?;
    let moving = Cluster::slot_of(well.keys[0].as_bytes());
    let mut silent = None;
    match fault {
        Fault::None => {}
        Fault::Paused | Fault::PausedAndMoving => cluster.node(SICK).pause().await?,
        Fault::Killed => cluster.node(SICK).kill().await?,
        Fault::Gone => {
            cluster.node(SICK).kill().await?;
            // The operating system accepts connections to the port of the killed node, but no
            // process answers.
            silent = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, cluster.node(SICK).port()))?);
        }
    }
    let moves = async {
        let end = Instant::now() + time;
        while matches!(fault, Fault::PausedAndMoving) && Instant::now() < end {
            let other = if cluster.primary_of_slot(moving).await? == 1 { 2 } else { 1 };
            cluster.move_slot(moving, other).await?;
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    };
    let (well, _, ()) = tokio::try_join!(well.run(&client), sick.run(&client), moves)?;
    drop(silent);
    Ok(well.to_string())
}

/// Returns keys on those of three nodes for which `is_wanted` returns `true`.
fn keys_at(cluster: &Cluster, is_wanted: fn(usize) -> bool) -> Vec<String> {
    let share = 16_384_usize.div_ceil(cluster.nodes().len());
    let node = |key: &String| usize::from(Cluster::slot_of(key.as_bytes())) / share;
    (0..100).map(|number| format!("key{number}")).filter(|key| is_wanted(node(key))).collect()
}

/// Measures calls to a slot that has begun to move. Returns the cells of a table.
pub(super) async fn migration(kind: Kind, callers: usize, time: Duration) -> Outcome<String> {
    let cluster = Cluster::start().await?;
    let client = kind.connect(&cluster, TIMEOUT).await?;
    let slot = Cluster::slot_of(b"tag");
    let from = cluster.primary_of_slot(slot).await?;
    let to = (from + 1) % cluster.nodes().len();
    cluster.begin_moving_slot(slot, to).await?;
    let keys: Vec<String> = (0..callers).map(|caller| format!("{{tag}}{caller}")).collect();
    let seen = Load { keys: keys.clone(), time, rest: None }.run(&client).await?;
    // Calls that timed out can still be in flight.
    sleep(TIMEOUT).await;
    cluster.finish_moving_slot(slot, to).await?;
    let mut executed = 0;
    for key in keys {
        executed += counted(&cluster, to, &key).await?;
    }
    let answers = seen.answers();
    let per_second = u64::try_from(answers)? * 1_000 / u64::try_from(time.as_millis())?.max(1);
    let unanswered = executed.saturating_sub(u64::try_from(answers)?);
    Ok(format!("{per_second} | {} | {} | {unanswered}", seen.errors, seen.timeouts))
}

/// Measures one call to a node that is paused for a second, while callers call the other nodes.
/// Returns the cells of a table.
pub(super) async fn executions(kind: Kind) -> Outcome<String> {
    let cluster = Cluster::start().await?;
    let client = kind.connect(&cluster, Duration::from_millis(200)).await?;
    let keys = keys_at(&cluster, |node| node == SICK);
    let (key, node) = (keys.first().ok_or("no key")?.as_str(), SICK);
    client.increment(key).await?;
    let (time, rest) = (Duration::from_secs(2), Some(Duration::from_millis(2)));
    // The client repeats the call to the paused node only if it also has calls to other nodes.
    let keys = keys_at(&cluster, |node| node != SICK).into_iter().take(4).collect();
    let others = Load { keys, time, rest };
    cluster.node(node).pause().await?;
    let asked = Instant::now();
    let call = async {
        let answer = client.increment(key).await;
        let answer = answer.map_or_else(|error| error.to_string(), |value| value.to_string());
        format!("{answer} after {} ms", asked.elapsed().as_millis())
    };
    let resume = async {
        sleep(Duration::from_secs(1)).await;
        cluster.node(node).resume().await
    };
    let (answer, resumed, others) = tokio::join!(call, resume, others.run(&client));
    others?;
    resumed?;
    sleep(Duration::from_secs(1)).await;
    Ok(format!("{answer} | {} times", counted(&cluster, node, key).await?.saturating_sub(1)))
}

async fn counted(cluster: &Cluster, node: usize, key: &str) -> Outcome<u64> {
    let value = cluster.node(node).command(&["GET", key]).await?.text();
    Ok(if value.is_empty() { 0 } else { value.parse()? })
}
