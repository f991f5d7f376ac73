//! Measures the CPU time for which tidegate-server takes and frees a slot, over each protocol.

use std::fmt;

use tidegate_test_servers::Redis;

use super::call::Call;
use super::client::{Client, Pace, Until};
use super::exchange::exchange;
use super::process::{Cores, Process, cpu_time};
use super::{grpc, http, resp};
use crate::harness::{Samples, Thousandths, nanos, rounds};
use crate::{Outcome, block_on};

/// The directory of the limit for calls over gRPC. The other calls contain the same policy.
const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/limits-slots");
const POLICY: &str = "slots: concurrent 100000 lease 1h";

/// The number of requests in flight on the connection.
const DEPTH: usize = 16;

/// The number of slots that are taken before the first of them is freed. It exceeds [`DEPTH`], so
/// that each slot is taken before the server gets the request that frees it.
const BLOCK: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Front {
    Resp,
    V1,
    Envoy,
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp => "RESP: `TG.HOLD` and `TG.CANCEL`",
            Self::V1 => "HTTP: `/v1/hold` and `/v1/cancel`",
            Self::Envoy => "gRPC: Envoy's requests for the begin and the end",
        })
    }
}

impl Front {
    const ALL: [Self; 3] = [Self::Resp, Self::V1, Self::Envoy];

    /// Returns a call over the protocol of the front. Only its protocol and its path are used.
    const fn call(self) -> Call {
        match self {
            Self::Resp => Call::Throttle,
            Self::V1 => Call::Acquire,
            Self::Envoy => Call::ShouldRateLimit,
        }
    }

    /// Returns the request that takes a slot, or the request that frees it.
    fn request(self, id: &str, is_end: bool, authority: &str) -> Vec<u8> {
        match (self, is_end) {
            (Self::Resp, false) => {
                resp::command(&["TG.HOLD", "subject", POLICY, "ID", id, "EX", "3600"])
            }
            (Self::Resp, true) => resp::command(&["TG.CANCEL", "subject", POLICY, "ID", id]),
            (Self::V1, _) => {
                let (path, life) = match is_end {
                    false => ("/v1/hold", r#","ttl_ms":3600000"#),
                    true => ("/v1/cancel", ""),
                };
                let body =
                    format!(r#"{{"policy":"{POLICY}","subject":"subject","id":"{id}"{life}}}"#);
                http::post(path, authority, &body)
            }
            (Self::Envoy, _) => {
                let entry = |key: &[u8], value: &[u8]| {
                    grpc::field(1, &[grpc::field(1, key), grpc::field(2, value)].concat())
                };
                let mut descriptor =
                    [entry(b"user", b"subject"), entry(b"id", id.as_bytes())].concat();
                if is_end {
                    descriptor.extend(grpc::number(4, 1)); // is_negative_hits
                }
                grpc::message(&[grpc::field(1, b"bench"), grpc::field(2, &descriptor)].concat())
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    server: u64,
    redis: u64,
}

/// Measures the fronts, and prints the medians of `count` rounds, each with `slots` slots.
pub(crate) fn slots(count: usize, slots: usize) -> Outcome<()> {
    let cores = Cores::choose();
    let redis = block_on(async { Ok(Redis::start().await?) })?;
    let redis_pid = redis.pid().ok_or("redis-server has ended")?;
    cores.place(redis_pid)?;
    let stores = [("memory", "memory".to_owned()), ("Redis", redis.url())];
    let servers =
        stores.iter().map(|(name, store)| Ok((*name, Process::tidegate(cores, store, LIMITS)?)));
    let servers = servers.collect::<Outcome<Vec<_>>>()?;
    let mut samples = Samples::new();
    for round in rounds(count) {
        for (store, server) in &servers {
            for front in Front::ALL {
                let prefix = format!("{round}-{}", front as u8);
                let cost = measure(front, server, redis_pid, &prefix, slots)?;
                samples.add((front, *store), cost);
            }
        }
    }
    println!(
        "\ntidegate-server, with {DEPTH} requests in flight on one connection: the CPU time for each slot that is \
         taken and freed.\n\n| front | store | server, µs | Redis, µs |\n|---|---|--:|--:|"
    );
    for front in Front::ALL {
        for (store, _) in &servers {
            let key = (front, *store);
            let server = Thousandths(samples.median(&key, |cost| cost.server)?);
            let redis = Thousandths(samples.median(&key, |cost| cost.redis)?);
            let redis = if *store == "Redis" { redis.to_string() } else { String::new() };
            println!("| {front} | {store} | {server} | {redis} |");
        }
    }
    Ok(())
}

fn measure(
    front: Front,
    server: &Process,
    redis: u32,
    prefix: &str,
    slots: usize,
) -> Outcome<Cost> {
    let address = server.address(front.call().protocol());
    let authority = address.to_string();
    let ids: Vec<String> = (0..slots).map(|number| format!("{prefix}-{number}")).collect();
    let block_requests = |ids: &[String]| -> Vec<Vec<u8>> {
        let requests = |is_end| ids.iter().map(move |id| (id, is_end));
        let both = requests(false).chain(requests(true));
        both.map(|(id, is_end)| front.request(id, is_end, &authority)).collect()
    };
    let requests: Vec<Vec<u8>> = ids.chunks(BLOCK).flat_map(block_requests).collect();
    let mut client = Client::connect(address, 1, || exchange(front.call(), &authority))?;
    let times = || -> Outcome<_> { Ok([cpu_time(server.pid())?, cpu_time(redis)?]) };
    let before = times()?;
    let run = client.run(&requests, Pace::Each(DEPTH), Until::Requests(requests.len() as u64))?;
    let after = times()?;
    if run.allowed != run.requests {
        return Err(format!("{front}: {} of {} were allowed", run.allowed, run.requests).into());
    }
    let per_slot = |index: usize| -> Outcome<u64> {
        Ok(nanos(after[index].saturating_sub(before[index]))? / slots.max(1) as u64)
    };
    Ok(Cost { server: per_slot(0)?, redis: per_slot(1)? })
}
