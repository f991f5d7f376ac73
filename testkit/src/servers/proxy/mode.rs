//! What a proxy does to the bytes that pass.

use std::time::Duration;

/// What a proxy does. A change holds for the bytes that arrive from then on, on open connections too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Everything passes, so much later. The order is kept.
    Delay {
        /// How late requests reach the server.
        requests: Duration,
        /// How late answers reach the client.
        answers: Duration,
    },
    /// Everything passes, but the first bytes of the server on a connection come so much later: those that
    /// set it up, whereas all others take no time.
    DelayFirstAnswer(Duration),
    /// Requests reach the server, answers are thrown away, connections stay open.
    SwallowAnswers,
    /// Nothing passes either way, connections stay open.
    BlackHole,
    /// When an answer comes, which shows that the request was carried out, its connection ends like this
    /// instead.
    LoseAnswer(End),
    /// When an answer comes, half of its bytes pass, and then its connection ends like this.
    HalveAnswer(End),
    /// New connections are refused. Open ones go on; [`cut`](super::Proxy::cut) ends them.
    Refuse,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Closed in order.
    Close,
    /// Reset, as by a host that has restarted.
    Reset,
    /// Not at all: it stays open, and silent for ever.
    Hang,
}

/// What happens to some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Deliver(Duration),
    Drop,
    /// They are lost, and the connection ends.
    End(End),
    /// The first half arrives, and the connection ends.
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
