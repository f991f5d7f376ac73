//! The modes of a proxy.

use std::time::Duration;

/// The behavior of a proxy. A change of the mode applies to all later bytes, on open and on new
/// connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwards all bytes immediately.
    Pass,
    /// Forwards all bytes after a delay. The order of the bytes is kept.
    Delay {
        /// The delay of the bytes that clients send.
        requests: Duration,
        /// The delay of the bytes that the server sends.
        answers: Duration,
    },
    /// Forwards all bytes, but delays the first bytes that the server sends on each connection.
    /// These bytes belong to the setup of the connection.
    DelayFirstAnswer(Duration),
    /// Forwards requests and drops answers. Connections stay open.
    SwallowAnswers,
    /// Drops all bytes in both directions. Connections stay open.
    BlackHole,
    /// Forwards requests. When the server answers, drops the answer and ends the connection in the
    /// way that [`End`] specifies. So the server executes the request, and the client gets no
    /// answer.
    LoseAnswer(End),
    /// Forwards requests. When the server answers, forwards half of the answer's bytes and ends the
    /// connection in the way that [`End`] specifies.
    HalveAnswer(End),
    /// Refuses new connections. Open connections are not affected. To end open connections, call
    /// [`cut`](super::Proxy::cut).
    Refuse,
}

/// The way in which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The connection is closed without a reset.
    Close,
    /// The connection is reset, as after a restart of the server's host.
    Reset,
    /// The connection stays open forever, and forwards nothing.
    Hang,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Deliver(Duration),
    Drop,
    /// The bytes are dropped, and the connection ends.
    End(End),
    /// The first half of the bytes is delivered, and the connection ends.
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
