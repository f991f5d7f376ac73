//! Measures the memory of servers: at rest, after a load, and with many subjects.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use super::Options;
use super::call::{Call, Peer, Protocol};
use super::client::{Client, Pace, Until};
use super::exchange::exchange;
use super::load::Load;
use super::process::{Cores, Memory, Process, memory};
use crate::Outcome;

/// The directory of the limits with which the guides begin.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/server");

const REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Footprint {
    pub(super) peer: Peer,
    pub(super) at_rest: Memory,
    /// The memory after requests for one subject, and then for many subjects whose states expire
    /// soon.
    pub(super) after_load: Memory,
    /// The memory while the server stores the states of `subjects` subjects.
    pub(super) full: Memory,
    pub(super) subjects: u64,
}

impl Footprint {
    pub(super) fn per_subject(&self) -> u64 {
        self.full.anonymous.saturating_sub(self.after_load.anonymous) / self.subjects.max(1)
    }
}

pub(super) fn measure(
    cores: Cores,
    throttlecrab: Option<&PathBuf>,
    options: &Options,
) -> Outcome<Vec<Footprint>> {
    let mut footprints = vec![];
    let tidegate = Process::tidegate(cores, "memory", EXAMPLE)?;
    footprints.push(footprint(Peer::Tidegate, &tidegate, options)?);
    drop(tidegate);
    if let Some(program) = throttlecrab {
        let throttlecrab = Process::throttlecrab(cores, program)?;
        footprints.push(footprint(Peer::Throttlecrab, &throttlecrab, options)?);
    }
    Ok(footprints)
}

fn footprint(peer: Peer, process: &Process, options: &Options) -> Outcome<Footprint> {
    let rested = || {
        sleep(REST);
        memory(process.pid())
    };
    let at_rest = rested()?;
    for (load, until) in [
        (Load::Hot, Until::Time(options.duration())),
        (Load::Many, Until::Time(options.duration())),
    ] {
        send(process, load, until, options)?;
    }
    let after_load = rested()?;
    let subjects = u64::try_from(options.stored)?;
    send(process, Load::Stored, Until::Requests(subjects), options)?;
    Ok(Footprint { peer, at_rest, after_load, full: rested()?, subjects })
}

fn send(process: &Process, load: Load, until: Until, options: &Options) -> Outcome<()> {
    let address = process.address(Protocol::Resp);
    let subjects = load.subjects(options);
    let request = |subject: &String| Call::Throttle.request(load, subject, "");
    let requests: Vec<Vec<u8>> = subjects.iter().map(request).collect();
    let mut client = Client::connect(address, 8, || exchange(Call::Throttle, ""))?;
    let run = client.run(&requests, Pace::Together(64), until)?;
    if run.allowed == run.requests {
        return Ok(());
    }
    Err(format!("memory, {load}: {} of {} were allowed", run.allowed, run.requests).into())
}
