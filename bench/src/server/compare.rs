//! The rows of the servers in the table of `compare`.

use std::collections::BTreeMap;

use super::call::{Call, Contender, Peer, Protocol, contender};
use super::load::{Load, Scenario, Shape, scenario};
use super::process::Process;
use super::{Options, Results, Sample, Servers};
use crate::Outcome;
use crate::harness::{Row, Thousandths, rounds};

/// The directory with the limit that the server may lease.
const LEASED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/limits-leased");

type Key = (Scenario, Contender);

const fn key(protocol: Protocol, shape: Shape, load: Load, peer: Peer, call: Call) -> Key {
    (scenario(protocol, shape, load), contender(peer, call))
}

const fn http(peer: Peer, call: Call) -> Key {
    key(Protocol::Http, Shape::Many, Load::Many, peer, call)
}

const fn resp(peer: Peer, call: Call) -> Key {
    key(Protocol::Resp, Shape::Many, Load::Many, peer, call)
}

const fn grpc(shape: Shape, load: Load, peer: Peer, call: Call) -> Key {
    key(Protocol::Grpc, shape, load, peer, call)
}

const ACQUIRE: Key = http(Peer::Tidegate, Call::Acquire);
const JSON: Key = http(Peer::Tidegate, Call::Json);
const HTTP_THROTTLE: Key = http(Peer::Throttlecrab, Call::HttpThrottle);
const RESP: Key = resp(Peer::Tidegate, Call::Throttle);
const RESP_THROTTLE: Key = resp(Peer::Throttlecrab, Call::Throttle);
const INCR: Key = resp(Peer::Redis, Call::Incr);
const GRPC: Key = grpc(Shape::Streams, Load::Many, Peer::Tidegate, Call::ShouldRateLimit);
const GRPC_THROTTLE: Key = grpc(Shape::Streams, Load::Many, Peer::Throttlecrab, Call::GrpcThrottle);
const AT_RATE: Key = grpc(Shape::Arrivals, Load::Many, Peer::Tidegate, Call::ShouldRateLimit);
const THROTTLE_AT_RATE: Key =
    grpc(Shape::Arrivals, Load::Many, Peer::Throttlecrab, Call::GrpcThrottle);
const ON_REDIS: Key =
    grpc(Shape::Arrivals, Load::Many, Peer::TidegateOnRedis, Call::ShouldRateLimit);
const MANY_ON_REDIS: Key =
    grpc(Shape::Streams, Load::Many, Peer::TidegateOnRedis, Call::ShouldRateLimit);
const LEASED_AT_RATE: Key =
    grpc(Shape::Arrivals, Load::Hot, Peer::TidegateLeased, Call::ShouldRateLimit);

/// The measurements of a round, in order. Measurements that are compared with each other are
/// adjacent.
const KEYS: [Key; 13] = [
    ACQUIRE,
    HTTP_THROTTLE,
    JSON,
    RESP,
    RESP_THROTTLE,
    INCR,
    GRPC,
    GRPC_THROTTLE,
    AT_RATE,
    THROTTLE_AT_RATE,
    ON_REDIS,
    MANY_ON_REDIS,
    LEASED_AT_RATE,
];

/// Measures the rows. With `short`, the loads are small. If a program is missing, its rows name the
/// reason.
pub(crate) fn compare(short: bool) -> Vec<Row> {
    let (rounds, millis, subjects, rate) = match short {
        true => (1, 20, 100, 200),
        false => (7, 1_000, 100_000, 20_000),
    };
    let (protocols, stored) = (vec![], 0);
    let options = Options { rounds, millis, protocols, subjects, stored, rate };
    rows(&Measured::new(&options))
}

fn rows(measured: &Measured) -> Vec<Row> {
    let cpu = |one, other| measured.ratio(one, other, |sample| sample.cpu);
    // `p99` is in nanoseconds, and a thousandth of a millisecond is 1,000 ns.
    let millis = |key| measured.median(key, |sample| sample.p99 / 1_000);
    let redis_micros = |key| measured.median(key, |sample| sample.store.unwrap_or_default());
    let per_second = |key| measured.median(key, |sample| sample.per_second * 1_000);
    vec![
        Row::at_most("RLS on Redis, 20,000 calls/s: p99", "ms", 3_000, millis(ON_REDIS)),
        Row::at_most(
            "RLS on Redis, 20,000 calls/s: Redis CPU per decision",
            "µs",
            4_000,
            redis_micros(ON_REDIS),
        ),
        Row::at_least(
            "RLS on Redis: calls/s with 64 calls in flight",
            "/s",
            20_000_000,
            per_second(MANY_ON_REDIS),
        ),
        Row::at_most(
            "RLS on Redis, 20,000 calls/s, one hot leased limit: Redis CPU per decision",
            "µs",
            200,
            redis_micros(LEASED_AT_RATE),
        ),
        Row::at_most(
            "server on memory, HTTP `/v1/acquire`: CPU / throttlecrab",
            "×",
            900,
            cpu(ACQUIRE, HTTP_THROTTLE),
        ),
        Row::at_most(
            "server on memory, HTTP `/json`: CPU / throttlecrab",
            "×",
            1_000,
            cpu(JSON, HTTP_THROTTLE),
        ),
        Row::at_most(
            "server on memory, gRPC: CPU / throttlecrab",
            "×",
            1_000,
            cpu(GRPC, GRPC_THROTTLE),
        ),
        Row::at_most(
            "server on memory, RESP on 32 connections: CPU / throttlecrab",
            "×",
            900,
            cpu(RESP, RESP_THROTTLE),
        ),
        Row::at_most(
            "server on memory, RESP on 32 connections: CPU / `INCR`",
            "×",
            1_100,
            cpu(RESP, INCR),
        ),
        Row::at_most(
            "RLS on memory, 20,000 calls/s: p99 / throttlecrab",
            "×",
            1_200,
            measured.ratio(AT_RATE, THROTTLE_AT_RATE, |sample| sample.p99),
        ),
    ]
}

struct Measured {
    results: Results,
    failed: BTreeMap<Key, String>,
}

impl Measured {
    fn new(options: &Options) -> Self {
        let mut measured = Self { results: Results::new(), failed: BTreeMap::new() };
        match servers() {
            Ok(servers) => measured.measure(&servers, options),
            Err(error) => {
                measured.failed = KEYS.map(|key| (key, error.to_string())).into_iter().collect();
            }
        }
        measured
    }

    fn measure(&mut self, servers: &Servers, options: &Options) {
        for _ in rounds(options.rounds) {
            for key in KEYS {
                if self.failed.contains_key(&key) {
                    continue;
                }
                match servers.sample(key.0, key.1, options) {
                    Ok(sample) => self.results.add(key, sample),
                    Err(error) => drop(self.failed.insert(key, error.to_string())),
                }
            }
        }
    }

    fn check(&self, key: Key) -> Outcome<()> {
        self.failed.get(&key).map_or(Ok(()), |reason| Err(reason.clone().into()))
    }

    fn median(&self, key: Key, figure: impl Fn(&Sample) -> u64) -> Outcome<Thousandths> {
        self.check(key)?;
        self.results.median(&key, figure).map(Thousandths)
    }

    fn ratio(&self, one: Key, other: Key, figure: impl Fn(&Sample) -> u64) -> Outcome<Thousandths> {
        self.check(one)?;
        self.check(other)?;
        self.results.ratio((&one, &other), figure)
    }
}

/// Starts all servers, and also a server with a limit that it may lease.
fn servers() -> Outcome<Servers> {
    let mut servers = Servers::start()?;
    servers.leased = match servers.redis() {
        Ok(redis) => Process::tidegate(servers.cores, &redis.url(), LEASED)
            // A server with other limits has started before, so the cause of the error is the
            // limit.
            .map_err(|_| "the server refused the limit".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    Ok(servers)
}
