//! The servers, and their requests.

use std::fmt;

use super::load::Load;
use super::{grpc, http, resp};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Protocol {
    Resp,
    Http,
    Grpc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    Tidegate,
    TidegateOnRedis,
    /// tidegate-server on Redis, with a limit that it may lease.
    TidegateLeased,
    Throttlecrab,
    Redis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    /// `THROTTLE`, with the same bytes for tidegate-server and for throttlecrab.
    Throttle,
    Incr,
    /// `POST /v1/acquire`
    Acquire,
    /// `POST /json`
    Json,
    /// `POST /throttle` of throttlecrab.
    HttpThrottle,
    /// `ShouldRateLimit` of Envoy, with one descriptor.
    ShouldRateLimit,
    /// `Throttle` of throttlecrab.
    GrpcThrottle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Contender {
    pub(super) peer: Peer,
    pub(super) call: Call,
}

pub(super) const fn contender(peer: Peer, call: Call) -> Contender {
    Contender { peer, call }
}

impl Protocol {
    /// Returns the contenders of a protocol. The table compares all others with the second one,
    /// throttlecrab-server.
    pub(super) fn contenders(self) -> &'static [Contender] {
        match self {
            Self::Resp => {
                &const {
                    [
                        contender(Peer::Tidegate, Call::Throttle),
                        contender(Peer::Throttlecrab, Call::Throttle),
                        contender(Peer::Redis, Call::Incr),
                        contender(Peer::TidegateOnRedis, Call::Throttle),
                    ]
                }
            }
            Self::Http => {
                &const {
                    [
                        contender(Peer::Tidegate, Call::Acquire),
                        contender(Peer::Throttlecrab, Call::HttpThrottle),
                        contender(Peer::Tidegate, Call::Json),
                        contender(Peer::TidegateOnRedis, Call::Acquire),
                    ]
                }
            }
            Self::Grpc => {
                &const {
                    [
                        contender(Peer::Tidegate, Call::ShouldRateLimit),
                        contender(Peer::Throttlecrab, Call::GrpcThrottle),
                        contender(Peer::TidegateOnRedis, Call::ShouldRateLimit),
                    ]
                }
            }
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp => "RESP",
            Self::Http => "HTTP",
            Self::Grpc => "gRPC",
        })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = match self.peer {
            Peer::Tidegate => "**tidegate-server**",
            Peer::TidegateOnRedis => "tidegate-server on Redis",
            Peer::TidegateLeased => "tidegate-server on Redis, leased",
            Peer::Throttlecrab => "throttlecrab-server",
            Peer::Redis => "redis-server",
        };
        let call = match self.call {
            Call::Throttle => "`THROTTLE`",
            Call::Incr => "`INCR`",
            Call::Acquire => "`/v1/acquire`",
            Call::Json => "`/json`",
            Call::HttpThrottle => "`/throttle`",
            Call::ShouldRateLimit => "`ShouldRateLimit`",
            Call::GrpcThrottle => "`Throttle`",
        };
        write!(f, "{peer}, {call}")
    }
}

impl Call {
    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::Throttle | Self::Incr => Protocol::Resp,
            Self::Acquire | Self::Json | Self::HttpThrottle => Protocol::Http,
            Self::ShouldRateLimit | Self::GrpcThrottle => Protocol::Grpc,
        }
    }

    /// Returns the path of the HTTP or gRPC request, or an empty text for RESP.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Throttle | Self::Incr => "",
            Self::Acquire => "/v1/acquire",
            Self::Json => "/json",
            Self::HttpThrottle => "/throttle",
            Self::ShouldRateLimit => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Self::GrpcThrottle => "/throttlecrab.RateLimiter/Throttle",
        }
    }

    pub(super) fn request(self, load: Load, subject: &str, authority: &str) -> Vec<u8> {
        let [burst, count, period] = load.bucket();
        let post = |body: String| http::post(self.path(), authority, &body);
        let key = load.descriptor();
        match self {
            Self::Throttle => {
                let [burst, count, period] = load.bucket().map(|number| number.to_string());
                resp::command(&["THROTTLE", subject, &burst, &count, &period])
            }
            Self::Incr => resp::command(&["INCR", subject]),
            Self::Acquire => post(format!(
                r#"{{"policy":"gcra {count}/{period}s burst {burst}","subject":"{subject}"}}"#
            )),
            Self::Json => post(format!(
                r#"{{"domain":"bench","descriptors":[{{"entries":[{{"key":"{key}","value":"{subject}"}}]}}]}}"#
            )),
            Self::HttpThrottle => post(format!(
                r#"{{"key":"{subject}","max_burst":{burst},"count_per_period":{count},"period":{period}}}"#
            )),
            Self::ShouldRateLimit => {
                let entry =
                    [grpc::field(1, key.as_bytes()), grpc::field(2, subject.as_bytes())].concat();
                let descriptor = grpc::field(1, &entry);
                let request = [grpc::field(1, b"bench"), grpc::field(2, &descriptor)].concat();
                grpc::message(&request)
            }
            Self::GrpcThrottle => {
                let mut request = grpc::field(1, subject.as_bytes());
                for (field, value) in [(2, burst), (3, count), (4, period), (5, 1)] {
                    request.extend(grpc::number(field, value));
                }
                grpc::message(&request)
            }
        }
    }
}
