//! The state of a circuit breaker, packed into one 64-bit word, so that one compare-and-swap
//! changes it.

use super::config::Settings;
use super::meter::BreakerMeter;
use super::state::CircuitState;
use crate::Timestamp;
use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        /// A number that identifies the current period in which the circuit is closed. The circuit
        /// ignores the answer to a call that was sent in an earlier period.
        round: u64,
        failures: u64,
    },
    /// The circuit is open until the time `until`, and half open after that time.
    Tripped {
        /// The end of the open period, in microseconds since 1970. A probe stores this time, so
        /// that the circuit ignores the answer to a probe of an earlier open period.
        until: u64,
        probes: u64,
        reopened: u64,
    },
}

const TRIPPED: u64 = 1 << 63;
const UNTIL: Field = Field { shift: 0, bits: 52 };
const PROBES: Field = Field { shift: 52, bits: 6 };
const REOPENED: Field = Field { shift: 58, bits: 5 };
const FAILURES: Field = Field { shift: 0, bits: 32 };
const ROUND: Field = Field { shift: 32, bits: 31 };

struct Field {
    shift: u32,
    bits: u32,
}

impl Field {
    const fn max(&self) -> u64 {
        (1 << self.bits) - 1
    }

    const fn get(&self, word: u64) -> u64 {
        (word >> self.shift) & self.max()
    }

    /// Returns `value` shifted to the position of this field in the packed word. A larger value
    /// than the field can contain is replaced by the maximum.
    fn put(&self, value: u64) -> u64 {
        value.min(self.max()) << self.shift
    }
}

impl State {
    fn from_word(word: u64) -> Self {
        if word & TRIPPED == 0 {
            Self::Closed { round: ROUND.get(word), failures: FAILURES.get(word) }
        } else {
            Self::Tripped {
                until: UNTIL.get(word),
                probes: PROBES.get(word),
                reopened: REOPENED.get(word),
            }
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Closed { round, failures } => ROUND.put(round) | FAILURES.put(failures),
            Self::Tripped { until, probes, reopened } => {
                TRIPPED | UNTIL.put(until) | PROBES.put(probes) | REOPENED.put(reopened)
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticket {
    /// The call was sent while the circuit was closed.
    Closed { round: u64 },
    /// The call is a probe, which was sent while the circuit was half open.
    Probe { until: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The circuit is open, and stays open for this many microseconds.
    Open(u64),
    /// The circuit is half open, and the maximum number of probes is in flight.
    Probing,
}

/// The circuit of a breaker. All atomic accesses to its state are relaxed, because no other memory
/// depends on the state.
#[derive(Debug)]
pub(super) struct Circuit {
    word: AtomicU64,
    opened: AtomicU64,
    settings: Settings,
    meter: BreakerMeter,
}

impl Circuit {
    pub(super) fn new(settings: Settings) -> Self {
        let closed = State::Closed { round: 0, failures: 0 };
        let (word, opened) = (AtomicU64::new(closed.word()), AtomicU64::new(0));
        Self { word, opened, settings, meter: BreakerMeter::default() }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn state(&self, now: impl FnOnce() -> Timestamp) -> CircuitState {
        match self.load() {
            State::Closed { .. } => CircuitState::Closed,
            State::Tripped { until, .. } if now().as_micros() < until => CircuitState::Open,
            State::Tripped { .. } => CircuitState::HalfOpen,
        }
    }

    pub(super) fn times_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns the permission to send a call to the store, or a refusal. Reads the clock only if
    /// the circuit is not closed.
    pub(super) fn enter(&self, now: impl FnOnce() -> Timestamp) -> Result<Ticket, Refusal> {
        self.meter.begin(|| self.gauge_state());
        if let State::Closed { round, .. } = self.load() {
            return Ok(Ticket::Closed { round });
        }
        let now = now().as_micros();
        let mut entered = Err(Refusal::Probing);
        self.change(|state| match state {
            State::Closed { round, .. } => {
                entered = Ok(Ticket::Closed { round });
                None
            }
            State::Tripped { until, .. } if now < until => {
                entered = Err(Refusal::Open(until - now));
                None
            }
            State::Tripped { probes, .. } if probes >= self.settings.probes => {
                entered = Err(Refusal::Probing);
                None
            }
            State::Tripped { until, probes, reopened } => {
                entered = Ok(Ticket::Probe { until });
                Some(State::Tripped { until, probes: probes + 1, reopened })
            }
        });
        if matches!(entered, Ok(Ticket::Probe { .. })) {
            self.meter.changed(|| self.gauge_state());
        }
        entered
    }

    /// Records that the store has answered a call. Returns `true` if the answer has closed the
    /// circuit.
    pub(super) fn answered(&self, ticket: Ticket) -> bool {
        let changed = self.change(|state| match (ticket, state) {
            (Ticket::Closed { round }, State::Closed { round: current, failures })
                if round == current && failures > 0 =>
            {
                Some(State::Closed { round, failures: 0 })
            }
            (Ticket::Probe { until }, State::Tripped { until: current, .. })
                if until == current =>
            {
                Some(State::Closed { round: until & ROUND.max(), failures: 0 })
            }
            _ => None,
        });
        let has_closed = matches!(ticket, Ticket::Probe { .. }) && changed.is_some();
        if has_closed {
            self.meter.changed(|| self.gauge_state());
        }
        has_closed
    }

    /// Records that a call to the store has failed. Returns `true` if the failure has opened a
    /// closed circuit.
    pub(super) fn failed(&self, ticket: Ticket, now: Timestamp) -> bool {
        let open = |reopened| {
            let until = now.as_micros().saturating_add(self.settings.open_micros(reopened));
            State::Tripped { until, probes: 0, reopened }
        };
        let changed = self.change(|state| match (ticket, state) {
            (Ticket::Closed { round }, State::Closed { round: current, failures })
                if round == current =>
            {
                let failures = failures + 1;
                let closed = failures < self.settings.failures;
                Some(if closed { State::Closed { round, failures } } else { open(0) })
            }
            (Ticket::Probe { until }, State::Tripped { until: current, reopened, .. })
                if until == current =>
            {
                Some(open(reopened + 1))
            }
            _ => None,
        });
        let is_open = matches!(changed, Some(State::Tripped { .. }));
        if is_open {
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.meter.opened();
            self.meter.changed(|| self.gauge_state());
        }
        is_open && matches!(ticket, Ticket::Closed { .. })
    }

    pub(super) fn release(&self, ticket: Ticket) {
        let Ticket::Probe { until } = ticket else {
            return;
        };
        self.change(|state| match state {
            State::Tripped { until: current, probes, reopened } if until == current => {
                Some(State::Tripped { until, probes: probes.saturating_sub(1), reopened })
            }
            _ => None,
        });
    }

    /// Returns the state of the circuit for the metrics. This method does not read the clock, so
    /// the metrics show the state `half-open` only after the first probe was sent.
    fn gauge_state(&self) -> CircuitState {
        match self.load() {
            State::Closed { .. } => CircuitState::Closed,
            State::Tripped { probes: 0, .. } => CircuitState::Open,
            State::Tripped { .. } => CircuitState::HalfOpen,
        }
    }

    fn load(&self) -> State {
        State::from_word(self.word.load(Ordering::Relaxed))
    }

    /// Changes the state by compare-and-swap. Returns the new state, or `None` if `change` returns
    /// `None`.
    fn change(&self, mut change: impl FnMut(State) -> Option<State>) -> Option<State> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let changed = change(State::from_word(word))?;
            let swap = self.word.compare_exchange_weak(
                word,
                changed.word(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swap {
                Ok(_) => return Some(changed),
                Err(current) => word = current,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::MAX_PROBES;
    use super::*;

    #[test]
    fn a_packed_state_unpacks_to_the_same_state() {
        for state in [
            State::Closed { round: 0, failures: 0 },
            State::Closed { round: ROUND.max(), failures: FAILURES.max() },
            State::Tripped { until: 0, probes: 0, reopened: 0 },
            State::Tripped { until: UNTIL.max(), probes: 63, reopened: 31 },
            State::Tripped { until: 1_790_000_000_000_123, probes: 1, reopened: 2 },
        ] {
            assert_eq!(State::from_word(state.word()), state);
        }
        assert_eq!(u64::from(MAX_PROBES), PROBES.max());
        assert_eq!(Timestamp::MAX.as_micros(), UNTIL.max());
        let reopened = |n| State::Tripped { until: 7, probes: 0, reopened: n };
        assert_eq!(State::from_word(reopened(32).word()), reopened(31), "the count saturates");
    }
}
