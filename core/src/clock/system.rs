//! The machine's clock, read by its cycle counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Clock;
use crate::Timestamp;
use crate::time::micros_of;

/// The machine's clock: the wall clock when it was made, carried on by the monotonic clock.
///
/// Whatever happens to the wall clock, within one process it goes on; the price is that it does not
/// follow corrections of the wall clock either. What one thread reads never steps back.
///
/// Asking the system for the time costs about as much as the rest of a decision in memory. So this
/// asks the processor's cycle counter, and the system only once in 10 ms, to set itself by: it is
/// never further from the system's clock than the counter strays in that time, which is far less than
/// a microsecond. Where the counter cannot be trusted (the processor or the kernel says so) each
/// reading asks the system.
///
/// *What it can do wrong:* while one thread sets it anew, another may still read it as it was, up to a
/// microsecond behind. On a machine whose processors' counters disagree, although its kernel relies on
/// them, readings on two processors differ by as much as the counters do; then even a thread that
/// moves from one to the other may see it step back. States of this library allow for both: they never
/// go back behind what they have seen, which costs at most the step.
///
/// ```
/// use tidegate_core::clock::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let earlier = clock.now();
/// assert!(clock.now() >= earlier);
/// ```
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
    pub(super) started_at: u64,
    cycles: Option<Arc<Cycles>>,
}

impl SystemClock {
    /// A clock that is set by the wall clock now.
    #[must_use]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = Instant::now();
        let cycles = counter_is_trusted().then(|| Arc::new(Cycles::new(started)));
        Self { started, started_at: micros_of(since_epoch), cycles }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let since = match &self.cycles {
            Some(cycles) => cycles.nanos() / 1_000,
            None => micros_of(self.started.elapsed()),
        };
        Timestamp::from_micros(self.started_at.saturating_add(since))
    }
}

/// Whether the system itself reads its clock by the counter, as far as it says.
fn counter_is_trusted() -> bool {
    if cfg!(not(target_os = "linux")) {
        return true;
    }
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source)
        .is_ok_and(|source| matches!(source.trim(), "tsc" | "arch_sys_counter"))
}

/// Nanoseconds since the start by the counter: a line that is drawn anew each time it has run out.
#[derive(Debug)]
struct Cycles {
    counter: quanta::Clock,
    started: Instant,
    /// Nanoseconds in 2^32 cycles, as measured once.
    slope: u64,
    /// Which of the two lines is in force, by its last bit: how often the line has changed.
    changes: AtomicU64,
    lines: [Line; 2],
    /// Whether a thread is drawing the next line.
    busy: AtomicBool,
}

#[derive(Debug, Default)]
struct Line {
    /// Where the line begins.
    cycles: AtomicU64,
    nanos: AtomicU64,
    /// Nanoseconds in 2^32 cycles.
    slope: AtomicU64,
    /// Cycles for which the line is good.
    length: AtomicU64,
}

/// Nanoseconds for which a line is good.
const LENGTH: u64 = 10_000_000;

impl Cycles {
    fn new(started: Instant) -> Self {
        let counter = quanta::Clock::new();
        let slope = counter.delta_as_nanos(0, 1 << 32).max(1);
        // Both lines have no length yet: the first reading draws one.
        let (changes, lines, busy) = Default::default();
        Self { counter, started, slope, changes, lines, busy }
    }

    #[inline]
    fn nanos(&self) -> u64 {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let [now, next] = &self.lines;
            let line = if changes.is_multiple_of(2) { now } else { next };
            let nanos = line.at(self.counter.raw());
            // Nobody writes to a line while it is in force.
            fence(Ordering::Acquire);
            if self.changes.load(Ordering::Relaxed) == changes {
                return nanos.unwrap_or_else(|| self.draw_line(changes));
            }
        }
    }

    /// Draws the next line from the system's clock, and reads that.
    #[cold]
    fn draw_line(&self, changes: u64) -> u64 {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cycles = self.counter.raw();
        if self.busy.swap(true, Ordering::Acquire) {
            return nanos;
        }
        let [one, other] = &self.lines;
        let (line, next) = if changes.is_multiple_of(2) { (one, other) } else { (other, one) };
        if self.changes.load(Ordering::Relaxed) == changes {
            // A line that ran ahead is followed by one that begins where it ended, and is flatter.
            let begin = nanos.max(line.end());
            let ahead = (begin - nanos).min(LENGTH / 2);
            next.draw(cycles, begin, self.slope - self.slope / LENGTH * ahead);
            self.changes.store(changes.wrapping_add(1), Ordering::Release);
        }
        self.busy.store(false, Ordering::Release);
        nanos.max(line.end())
    }
}

impl Line {
    /// The time at a reading of the counter, if the line is good for it.
    #[inline]
    fn at(&self, cycles: u64) -> Option<u64> {
        let since = cycles.wrapping_sub(self.cycles.load(Ordering::Relaxed));
        let slope = self.slope.load(Ordering::Relaxed);
        let nanos = self.nanos.load(Ordering::Relaxed);
        (since < self.length.load(Ordering::Relaxed)).then(|| nanos + ((since * slope) >> 32))
    }

    /// The last time that is on the line.
    fn end(&self) -> u64 {
        let slope = self.slope.load(Ordering::Relaxed);
        self.nanos.load(Ordering::Relaxed) + ((self.length.load(Ordering::Relaxed) * slope) >> 32)
    }

    fn draw(&self, cycles: u64, nanos: u64, slope: u64) {
        self.cycles.store(cycles, Ordering::Relaxed);
        self.nanos.store(nanos, Ordering::Relaxed);
        self.slope.store(slope, Ordering::Relaxed);
        self.length.store((LENGTH << 32) / slope.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Over many lines, and a pause in which several would have run out.
    #[test]
    fn readings_never_step_back_and_stay_by_the_system_s_clock() {
        let cycles = Cycles::new(Instant::now());
        let mut last = 0;
        while cycles.started.elapsed() < Duration::from_millis(300) {
            let before = cycles.started.elapsed();
            let nanos = cycles.nanos();
            let after = cycles.started.elapsed();
            assert!(nanos >= last, "{nanos} after {last}");
            let slack = Duration::from_micros(50);
            let read = Duration::from_nanos(nanos);
            assert!(before <= read + slack && read <= after + slack, "{read:?} at {before:?}");
            last = nanos;
            if (100..120).contains(&before.as_millis()) {
                std::thread::sleep(Duration::from_millis(35));
            }
        }
    }
}
