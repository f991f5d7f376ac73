//! The machine's clock, read from its cycle counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Clock;
use crate::Timestamp;
use crate::time::{MAX_EXACT, micros_of};

/// The machine's clock: the wall clock at its creation, continued by the monotonic clock.
///
/// Within one process it does not follow later changes of the wall clock, whether errors or corrections. The
/// readings of one thread never step back.
///
/// A system call for the time costs about as much as the rest of a decision in memory. So this clock reads the
/// processor's cycle counter, and calibrates it against the system's clock every 10 ms: the difference is never
/// more than the counter's drift in that time, which is far less than a microsecond. If the processor or the
/// kernel reports that the counter is not reliable, each reading is a system call.
///
/// *Error:* while one thread recalibrates it, another may still use the previous calibration, up to a
/// microsecond behind. On a machine whose processors' counters disagree, although its kernel relies on them,
/// readings on two processors differ by as much as the counters do; then a thread that migrates between them
/// may see the time step back. States of this library allow for both: they never go back before the time at
/// which they were last written, which costs at most the step.
///
/// ```
/// use tidegate_core::{Clock, SystemClock};
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
    /// A clock that starts at the current time of the wall clock.
    #[must_use]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (started, started_at) = (Instant::now(), micros_of(since_epoch));
        let cycles = counter_is_trusted().then(|| Arc::new(Cycles::new(started, started_at)));
        Self { started, started_at, cycles }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    // A call of its own: what it takes within a caller is more than that.
    #[inline(never)]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(match &self.cycles {
            Some(cycles) => cycles.micros(),
            None => self.started_at.saturating_add(micros_of(self.started.elapsed())),
        })
    }
}

/// Whether the kernel itself uses the counter for its clock, as far as it reports that.
fn counter_is_trusted() -> bool {
    if cfg!(not(target_os = "linux")) {
        return true;
    }
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source)
        .is_ok_and(|source| matches!(source.trim(), "tsc" | "arch_sys_counter"))
}

/// The time by the counter: a line (time over cycles) that is replaced each time it has run out.
#[derive(Debug)]
struct Cycles {
    counter: quanta::Clock,
    started: Instant,
    /// Microseconds since 1970.
    started_at: u64,
    /// Nanoseconds in 2^32 cycles, as measured once.
    slope: u64,
    /// Which of the two lines is in force, by its last bit: how often the line has changed.
    changes: AtomicU64,
    lines: [Line; 2],
    /// Whether a thread is computing the next line.
    busy: AtomicBool,
}

#[derive(Debug, Default)]
struct Line {
    /// Where the line begins.
    cycles: AtomicU64,
    /// The time there, in microseconds since 1970, and its fraction in units of 2^-40 µs.
    micros: AtomicU64,
    fraction: AtomicU64,
    /// The length of a cycle, in units of 2^-40 µs.
    slope: AtomicU64,
    /// Cycles for which the line is good.
    length: AtomicU64,
    /// Nanoseconds from the start to its end.
    ends: AtomicU64,
}

/// Nanoseconds for which a line is good.
const LENGTH: u64 = 10_000_000;

impl Cycles {
    fn new(started: Instant, started_at: u64) -> Self {
        let counter = quanta::Clock::new();
        let slope = counter.delta_as_nanos(0, 1 << 32).max(1);
        // Both lines have no length yet: the first reading computes one.
        let (changes, lines, busy) = Default::default();
        Self { counter, started, started_at, slope, changes, lines, busy }
    }

    /// Microseconds since 1970. Anything but the usual comes in the last place, so that nothing has to be
    /// kept for it; and the counter comes first, which is a call where it is not an instruction.
    #[inline]
    fn micros(&self) -> u64 {
        let cycles = self.counter.raw();
        let changes = self.changes.load(Ordering::Acquire);
        let micros = self.line(changes).at(cycles);
        match micros {
            Some(micros) if self.is_in_force(changes) => micros,
            _ => self.micros_later(),
        }
    }

    /// The same if the line has run out, or is just being replaced.
    #[cold]
    #[inline(never)]
    fn micros_later(&self) -> u64 {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let line = self.line(changes);
            let micros = line.at(self.counter.raw());
            let (cycles, nanos) = self.both();
            let ends = line.ends.load(Ordering::Relaxed);
            if !self.is_in_force(changes) {
                continue;
            }
            if let Some(micros) = micros {
                return micros;
            }
            // No thread has read a later time.
            let begin = nanos.max(ends);
            if !self.busy.swap(true, Ordering::Acquire) {
                if self.is_in_force(changes) {
                    // A line that ran ahead is followed by one that begins where it ended, and has a lower slope.
                    let ahead = (begin - nanos).min(LENGTH / 2);
                    let slope = self.slope - self.slope / LENGTH * ahead;
                    let next = self.line(changes.wrapping_add(1));
                    next.draw(cycles, begin, self.micros_at(begin), slope);
                    self.changes.store(changes.wrapping_add(1), Ordering::Release);
                }
                self.busy.store(false, Ordering::Release);
            }
            return self.micros_at(begin);
        }
    }

    /// The counter, and the system's clock right after, as nanoseconds since the start: within a
    /// microsecond, unless the thread is interrupted again and again. In this order a line never begins
    /// behind a time that the system has returned to any thread.
    fn both(&self) -> (u64, u64) {
        let (mut cycles, mut nanos) = (0, 0);
        for _ in 0..4 {
            cycles = self.counter.raw();
            nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let took = u128::from(self.counter.raw().wrapping_sub(cycles));
            if (took * u128::from(self.slope)) >> 32 < 1_000 {
                break;
            }
        }
        (cycles, nanos)
    }

    /// The line that is in force after this many changes.
    #[inline]
    fn line(&self, changes: u64) -> &Line {
        let [one, other] = &self.lines;
        if changes.is_multiple_of(2) { one } else { other }
    }

    /// Whether the line that was in force after this many changes still is: then no thread has written to it.
    #[inline]
    fn is_in_force(&self, changes: u64) -> bool {
        fence(Ordering::Acquire);
        self.changes.load(Ordering::Relaxed) == changes
    }

    /// The time this many nanoseconds after the start.
    fn micros_at(&self, nanos: u64) -> u64 {
        self.started_at.saturating_add(nanos / 1_000).min(MAX_EXACT)
    }
}

impl Line {
    /// The time at a reading of the counter, if the line is good for it.
    #[inline]
    fn at(&self, cycles: u64) -> Option<u64> {
        let since = cycles.wrapping_sub(self.cycles.load(Ordering::Relaxed));
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        // The product is at most 2^40 times the length in microseconds.
        (since < of(&self.length))
            .then(|| of(&self.micros) + ((of(&self.fraction) + since * of(&self.slope)) >> 40))
    }

    /// From here on, and `nanos` after the start, which is at `micros`. `slope` is in
    /// nanoseconds in 2^32 cycles.
    fn draw(&self, cycles: u64, nanos: u64, micros: u64, slope: u64) {
        let length = (LENGTH << 32) / slope.max(1);
        let set = |number: &AtomicU64, to: u64| number.store(to, Ordering::Relaxed);
        set(&self.cycles, cycles);
        set(&self.micros, micros);
        set(&self.fraction, ((nanos % 1_000) << 40) / 1_000);
        set(&self.slope, slope.saturating_mul(1 << 8) / 1_000);
        set(&self.length, length);
        set(&self.ends, nanos.saturating_add((length * slope) >> 32));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Over many lines, and a pause in which several would have run out.
    #[test]
    fn readings_never_step_back_and_stay_by_the_system_s_clock() {
        let cycles = Cycles::new(Instant::now(), 1 << 50);
        let mut last = 0;
        while cycles.started.elapsed() < Duration::from_millis(300) {
            let before = cycles.started.elapsed();
            let micros = cycles.micros() - (1 << 50);
            let after = cycles.started.elapsed();
            assert!(micros >= last, "{micros} after {last}");
            let slack = Duration::from_micros(50);
            let read = Duration::from_micros(micros);
            assert!(before <= read + slack && read <= after + slack, "{read:?} at {before:?}");
            last = micros;
            if (100..120).contains(&before.as_millis()) {
                std::thread::sleep(Duration::from_millis(35));
            }
        }
    }

    /// Each line is then 100 µs ahead of the system's clock where it ends, and the next one has to begin
    /// there.
    #[test]
    fn a_counter_that_is_taken_for_too_slow_makes_nothing_step_back() {
        let mut cycles = Cycles::new(Instant::now(), 1 << 50);
        cycles.slope += cycles.slope / 100;
        let (mut last, mut most) = (0, 0);
        while cycles.started.elapsed() < Duration::from_millis(200) {
            let micros = cycles.micros();
            assert!(micros >= last, "{micros} after {last}");
            last = micros;
            let system = (1 << 50) + micros_of(cycles.started.elapsed());
            most = most.max(micros.saturating_sub(system));
        }
        assert!((20..1_000).contains(&most), "{most} us ahead at most");
    }

    #[test]
    fn no_thread_sees_it_step_back_while_others_draw_lines() {
        let cycles = Cycles::new(Instant::now(), 1 << 50);
        let read = || {
            let mut last = 0;
            while cycles.started.elapsed() < Duration::from_millis(300) {
                let micros = cycles.micros();
                assert!(micros >= last, "{micros} after {last}");
                last = micros;
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(read))));
    }
}
