//! Defines the subjects, the connections and the pace of the requests.

use std::fmt;

use super::Options;
use super::call::{Peer, Protocol};
use super::client::Pace;

/// The subjects, and whether they are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// One subject.
    Hot,
    /// Subjects in turn.
    Many,
    Refused,
    /// Subjects whose states are stored for a long time.
    Stored,
}

impl Load {
    /// Returns the capacity, the refill per period, and the period in seconds.
    pub(super) fn bucket(self) -> [u64; 3] {
        match self {
            Self::Hot | Self::Many => [1_000_000_000, 1_000_000, 60],
            // With a capacity of 1, throttlecrab would admit all requests.
            Self::Refused => [2, 1, 86_400],
            Self::Stored => [1_000, 1, 86_400],
        }
    }

    /// Returns the key of the descriptor whose limit in `limits/limits.yaml` is the same bucket.
    pub(super) fn descriptor(self) -> &'static str {
        match self {
            Self::Hot | Self::Many | Self::Stored => "user",
            Self::Refused => "refused",
        }
    }

    pub(super) fn subjects(self, options: &Options) -> Vec<String> {
        let (name, count) = match self {
            Self::Hot => return vec!["user".to_owned()],
            Self::Many => ("user", options.subjects),
            Self::Refused => ("refused", options.subjects.min(1_000)),
            Self::Stored => ("stored", options.stored),
        };
        (0..count).map(|number| format!("{name}-{number:06}")).collect()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hot => "one subject",
            Self::Many => "many subjects",
            Self::Refused => "refused",
            Self::Stored => "stored",
        })
    }
}

/// The connections, and the pace of the requests on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    One,
    Many,
    Pipelined,
    Streams,
    /// A fixed rate of arrivals.
    Arrivals,
}

impl Shape {
    pub(super) fn connections(self) -> usize {
        match self {
            Self::One => 1,
            Self::Many => 32,
            Self::Pipelined => 8,
            Self::Streams | Self::Arrivals => 4,
        }
    }

    pub(super) fn pace(self, options: &Options) -> Pace {
        match self {
            Self::One | Self::Many => Pace::Each(1),
            // Like a client of Redis, this client sends all requests, and then reads all replies.
            Self::Pipelined => Pace::Together(64),
            Self::Streams => Pace::Each(16),
            Self::Arrivals => Pace::Rate(options.rate),
        }
    }
}

/// A table of the report: all servers with the same protocol, connections and load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scenario {
    pub(super) protocol: Protocol,
    pub(super) shape: Shape,
    pub(super) load: Load,
}

pub(super) const fn scenario(protocol: Protocol, shape: Shape, load: Load) -> Scenario {
    Scenario { protocol, shape, load }
}

pub(super) const SCENARIOS: [Scenario; 14] = [
    scenario(Protocol::Resp, Shape::One, Load::Hot),
    scenario(Protocol::Resp, Shape::Many, Load::Hot),
    scenario(Protocol::Resp, Shape::Many, Load::Many),
    scenario(Protocol::Resp, Shape::Pipelined, Load::Hot),
    scenario(Protocol::Resp, Shape::Pipelined, Load::Many),
    scenario(Protocol::Resp, Shape::Pipelined, Load::Refused),
    // `INCR` takes hardly any CPU time, so its latency shows how fast this machine can answer.
    scenario(Protocol::Resp, Shape::Arrivals, Load::Many),
    scenario(Protocol::Http, Shape::Many, Load::Hot),
    scenario(Protocol::Http, Shape::Many, Load::Many),
    scenario(Protocol::Http, Shape::Many, Load::Refused),
    scenario(Protocol::Grpc, Shape::Streams, Load::Hot),
    scenario(Protocol::Grpc, Shape::Streams, Load::Many),
    scenario(Protocol::Grpc, Shape::Streams, Load::Refused),
    scenario(Protocol::Grpc, Shape::Arrivals, Load::Many),
];

impl Scenario {
    /// Returns `true` if a server can have this load. Redis cannot refuse `INCR`.
    pub(super) fn is_of(self, peer: Peer) -> bool {
        peer != Peer::Redis || self.load != Load::Refused
    }

    pub(super) fn name(self, options: &Options) -> String {
        let Self { protocol, shape, load } = self;
        let connections = shape.connections();
        let shape = match shape.pace(options) {
            Pace::Each(1) if connections == 1 => "1 connection".to_owned(),
            Pace::Each(1) => format!("{connections} connections"),
            Pace::Each(depth) => format!("{connections} connections of {depth} calls at once"),
            Pace::Together(depth) => format!("{connections} connections, {depth} in a pipeline"),
            Pace::Rate(rate) => format!("{rate} calls/s on {connections} connections"),
        };
        format!("{protocol}, {shape}, {load}")
    }
}
