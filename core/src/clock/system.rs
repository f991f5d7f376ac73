//! The machine's clock, which is computed from the cycle counter of the processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Clock;
use crate::time::{MAX_EXACT, Timestamp, micros_of};

/// The machine's clock. It starts at the time of the wall clock, and then advances with the
/// monotonic clock.
///
/// After its creation, the clock ignores all changes of the wall clock, errors as well as
/// corrections. The readings of one thread never step back.
///
/// A system call for the time takes about as long as the rest of a decision in memory. So this
/// clock reads the cycle counter of the processor instead. Every 10 ms, the clock is calibrated: it
/// compares the counter with the system's clock. Between two calibrations, the counter drifts by
/// far less than a microsecond.
///
/// If the kernel reports that the cycle counter is not reliable, or if the processor has no
/// reliable counter, each reading is a system call.
///
/// *Error:* While one thread calibrates the clock, another thread possibly still uses the previous
/// calibration. The time that this other thread reads can then be late by up to a microsecond. On
/// some machines, the counters of the processors differ, although the kernel relies on them. A
/// thread that moves to another processor then possibly sees the time step back. The states of this
/// library tolerate both errors: a step back of the clock delays a recovery by at most the length
/// of the step.
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
    /// Creates a clock that starts at the current time of the wall clock.
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
    // This method is not inlined, because inlining it would slow its callers more than a function
    // call does.
    #[inline(never)]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(match &self.cycles {
            Some(cycles) => cycles.micros(),
            None => self.started_at.saturating_add(micros_of(self.started.elapsed())),
        })
    }
}

/// Returns `true` if the kernel uses the cycle counter for its own clock. Only Linux reports the
/// source of its clock, so the function returns `true` on all other systems.
fn counter_is_trusted() -> bool {
    if cfg!(not(target_os = "linux")) {
        return true;
    }
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source)
        .is_ok_and(|source| matches!(source.trim(), "tsc" | "arch_sys_counter"))
}

/// A clock that computes the time from the cycle counter. The function from cycles to time is
/// linear and is called a calibration. A calibration is valid for 10 ms. Then the clock computes
/// the next calibration.
#[derive(Debug)]
struct Cycles {
    counter: quanta::Clock,
    started: Instant,
    started_at: u64,
    /// The number of nanoseconds in 2^32 cycles. It is measured once, when the clock is created.
    slope: u64,
    /// The number of times that the calibration was replaced. Two calibrations are stored, and the
    /// last bit of this number selects the current calibration.
    changes: AtomicU64,
    lines: [Line; 2],
    busy: AtomicBool,
}

#[derive(Debug, Default)]
struct Line {
    /// The value of the cycle counter at the start of the calibration.
    cycles: AtomicU64,
    /// The time at the start of the calibration in whole microseconds since 1970. The fraction of a
    /// microsecond is in `fraction`, in units of 2^-40 µs.
    micros: AtomicU64,
    fraction: AtomicU64,
    /// The time of one cycle, in units of 2^-40 µs.
    slope: AtomicU64,
    length: AtomicU64,
    /// The end of the calibration, in nanoseconds since the start of the clock.
    ends: AtomicU64,
}

/// The number of nanoseconds for which a calibration is valid.
const LENGTH: u64 = 10_000_000;

impl Cycles {
    fn new(started: Instant, started_at: u64) -> Self {
        let counter = quanta::Clock::new();
        let slope = counter.delta_as_nanos(0, 1 << 32).max(1);
        // The clock starts with two calibrations of length 0, so its first reading computes a valid
        // calibration.
        let (changes, lines, busy) = Default::default();
        Self { counter, started, started_at, slope, changes, lines, busy }
    }

    /// Returns microseconds since 1970.
    ///
    /// A separate function handles an invalid calibration, so that this function uses few
    /// registers. The counter is read first, because on some processors the reading is a function
    /// call, and earlier values would have to be saved during that call.
    #[inline]
    fn micros(&self) -> u64 {
        let cycles = self.counter.raw();
        let changes = self.changes.load(Ordering::Acquire);
        let micros = self.line(changes).at(cycles);
        match micros {
            Some(micros) if self.is_current(changes) => micros,
            _ => self.micros_slow(),
        }
    }

    /// Returns microseconds since 1970, like [`micros`](Self::micros), if the current calibration
    /// has ended or is being replaced. Computes the next calibration if no other thread does.
    #[cold]
    #[inline(never)]
    fn micros_slow(&self) -> u64 {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let line = self.line(changes);
            let micros = line.at(self.counter.raw());
            let (cycles, nanos) = self.both();
            let ends = line.ends.load(Ordering::Relaxed);
            if !self.is_current(changes) {
                continue;
            }
            if let Some(micros) = micros {
                return micros;
            }
            // Earlier readings possibly returned times up to the end of the previous calibration,
            // so the next calibration must not begin before this end.
            let begin = nanos.max(ends);
            if !self.busy.swap(true, Ordering::Acquire) {
                if self.is_current(changes) {
                    // If the previous calibration ended ahead of the system's clock, the next
                    // calibration begins at that end and has a lower slope, so that the system's
                    // clock catches up.
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

    /// Reads the counter, and immediately afterwards the system's clock, as nanoseconds since the
    /// start of the clock. The two readings are within a microsecond, except if the thread is
    /// interrupted several times. Because the counter is read first, a calibration from these
    /// values begins at the time of the system's clock, or slightly later.
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

    /// Returns the calibration that is current after `changes` replacements.
    #[inline]
    fn line(&self, changes: u64) -> &Line {
        let [one, other] = &self.lines;
        if changes.is_multiple_of(2) { one } else { other }
    }

    /// Returns `true` if no thread has replaced the calibration since the caller read `changes`.
    /// All values that the caller read from the calibration then belong together.
    #[inline]
    fn is_current(&self, changes: u64) -> bool {
        fence(Ordering::Acquire);
        self.changes.load(Ordering::Relaxed) == changes
    }

    fn micros_at(&self, nanos: u64) -> u64 {
        self.started_at.saturating_add(nanos / 1_000).min(MAX_EXACT)
    }
}

impl Line {
    /// Returns the time at the value `cycles` of the counter, or `None` if the calibration is not
    /// valid for this value.
    #[inline]
    fn at(&self, cycles: u64) -> Option<u64> {
        let since = cycles.wrapping_sub(self.cycles.load(Ordering::Relaxed));
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        // The product fits in 64 bits: it is less than 10,000 · 2^40, because a calibration lasts
        // 10,000 µs, and the slope is in units of 2^-40 µs.
        (since < load(&self.length)).then(|| {
            load(&self.micros) + ((load(&self.fraction) + since * load(&self.slope)) >> 40)
        })
    }

    /// Writes a calibration that begins at the value `cycles` of the counter. At this value,
    /// `nanos` nanoseconds have passed since the start of the clock, and the time is `micros`.
    /// `slope` is in nanoseconds per 2^32 cycles.
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

    /// The test reads the clock during many calibrations. Once, it sleeps for longer than several
    /// calibrations.
    #[test]
    fn readings_never_step_back_and_stay_near_the_system_s_clock() {
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

    /// The measured slope is 1 % too high, so each calibration ends 100 µs ahead of the system's
    /// clock. The next calibration must begin at the end of the previous calibration.
    #[test]
    fn readings_never_step_back_if_the_measured_slope_is_too_high() {
        let mut cycles = Cycles::new(Instant::now(), 1 << 50);
        cycles.slope += cycles.slope / 100;
        let (mut last, mut max) = (0, 0);
        while cycles.started.elapsed() < Duration::from_millis(200) {
            let micros = cycles.micros();
            assert!(micros >= last, "{micros} after {last}");
            last = micros;
            let system = (1 << 50) + micros_of(cycles.started.elapsed());
            max = max.max(micros.saturating_sub(system));
        }
        assert!((20..1_000).contains(&max), "{max} us ahead at most");
    }

    #[test]
    fn no_thread_sees_a_step_back_while_other_threads_replace_lines() {
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
