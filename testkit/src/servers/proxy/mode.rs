//! The modes of a proxy.

use std::time::Duration;

/// The behavior of a proxy. A change applies to all bytes that arrive afterwards, on open
/// connections too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwards everything.
    Pass,
    /// Forwards everything after a delay. The order is kept.
    Delay {
        /// The delay of requests.
        requests: Duration,
        /// The delay of answers.
        answers: Duration,
    },
    /// Forwards everything, but delays the first bytes that the server sends on each connection.
    /// They belong to the setup of the connection; all later bytes are not delayed.
    DelayFirstAnswer(Duration),
    /// Forwards requests and drops answers. Connections stay open.
    SwallowAnswers,
    /// Drops everything in both directions. Connections stay open.
    BlackHole,
    /// Forwards requests. When the server answers, which shows that it has executed the request,
    /// drops the answer and ends the connection like this.
    LoseAnswer(End),
    /// Forwards requests. When the server answers, forwards half of the answer's bytes and ends the
    /// connection like this.
    HalveAnswer(End),
    /// Refuses new connections. Open connections are not affected; [`cut`](super::Proxy::cut) ends
    /// them.
    Refuse,
}

/// The way in which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The connection is closed in order.
    Close,
    /// The connection is reset, as by a host that has restarted.
    Reset,
    /// The connection stays open and forwards nothing, forever.
    Hang,
}

/// The fate of the bytes of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Deliver(Duration),
    Drop,
    /// The bytes are dropped, and the connection ends.
    End(End),
    /// The first half is delivered, and the connection ends.
    Halve(End),
}

impl Mode {
    pub(super) fn for_request(self) -> Fate {
        match self {
            Self::Delay { requests, .. } => Fate::Deliver(requests),
            Self::BlackHole => Fate::Drop,
            _ => Fate::Deliver(Duration::ZERO),
        }
    }

    pub(super) fn for_answer(self, is_first: bool) -> Fate {
        match self {
            Self::Delay { answers, .. } => Fate::Deliver(answers),
            Self::DelayFirstAnswer(delay) if is_first => Fate::Deliver(delay),
            Self::SwallowAnswers | Self::BlackHole => Fate::Drop,
            Self::LoseAnswer(end) => Fate::End(end),
            Self::HalveAnswer(end) => Fate::Halve(end),
            Self::Pass | Self::Refuse | Self::DelayFirstAnswer(_) => Fate::Deliver(Duration::ZERO),
        }
    }
}
