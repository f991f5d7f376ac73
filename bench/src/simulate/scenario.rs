//! Runs the simulations for a number of nodes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_memory::core::layers::LeasedStore;
use tidegate_memory::core::{Operation, StoreExt};
use tidegate_memory::{Call, Charge, FixedWindow, MemoryStore, Policy};
use tidegate_simulation::{
    Ledger, LinkStore, Load, SimulatedClock, Simulation, World as SimulatedWorld,
};

use super::Options;
use crate::Outcome;

type World = SimulatedWorld<MemoryStore<SimulatedClock>, LeasedStore<LinkStore, SimulatedClock>>;

const DAY: Duration = Duration::from_secs(86_400);

/// The length of a window in the simulation of several windows.
const WINDOW: Duration = Duration::from_secs(1);

/// The number of measured windows. The leases begin in the window before them.
const WINDOWS: usize = 5;

/// The results of the simulations. Parts of the limit are in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    /// The maximum number of admitted requests above the limit, in any window of any run.
    pub(super) overshoot: u64,
    /// The part of the limit that is refused if exactly as many requests arrive as the limit
    /// admits.
    pub(super) refused: u64,
    /// The part of the limit that stays charged and unused until the window ends, because a node
    /// was killed.
    pub(super) stranded: u64,
    /// The part of the limit of a window that stays unused although a quarter more requests arrive.
    pub(super) unused: u64,
    /// The calls to the server per request, in thousandths, if exactly as many requests arrive as
    /// the limit admits.
    pub(super) calls: u64,
    /// The calls to the server per request, in thousandths, if a quarter more requests arrive than
    /// the limit admits.
    pub(super) calls_when_full: u64,
}

impl Figures {
    pub(super) fn simulated(nodes: usize, options: &Options) -> Outcome<Self> {
        let limit = options.limit;
        let exactly = exactly(nodes, options)?;
        let mut overshoot = exactly.admissions().total().saturating_sub(limit);
        let mut stranded = 0;
        for kill in 0..options.kills {
            let (admitted, lost) = killed(nodes, kill as u64, options)?;
            overshoot = overshoot.max(admitted.saturating_sub(limit));
            stranded = stranded.max(millionths(lost, limit));
        }
        let full = full(nodes, options)?;
        let per_window = window_limit(options);
        let windows = full.admissions().in_windows(WINDOW);
        let most = windows.iter().copied().max().unwrap_or(0);
        let windows: Vec<_> = windows.into_iter().skip(1).take(WINDOWS).collect();
        let unused: u64 = windows.iter().map(|admitted| per_window.saturating_sub(*admitted)).sum();
        let all_windows = per_window.saturating_mul(WINDOWS as u64);
        let calls = |ledger: &Ledger| {
            ledger.sent() as u64 * 1_000 / (ledger.requests().len() as u64).max(1)
        };
        Ok(Self {
            overshoot: overshoot.max(most.saturating_sub(per_window)),
            refused: millionths(exactly.refused() as u64, limit),
            stranded,
            unused: millionths(unused, all_windows),
            calls: calls(&exactly),
            calls_when_full: calls(&full),
        })
    }
}

/// Simulates exactly as many requests as the limit admits.
fn exactly(nodes: usize, options: &Options) -> Outcome<Ledger> {
    let policy = Policy::new("hot", FixedWindow::new(options.limit, DAY))?;
    let load = Load::new(&policy).per_second(options.rate).requests(options.limit).lasting(DAY);
    Ok(simulate(nodes, 0, options, async move |world: World| world.run(load).await))
}

/// Kills a node when about half of the limit is used. Returns the admitted amount, and the amount
/// that stays charged and unused.
fn killed(nodes: usize, kill: u64, options: &Options) -> Outcome<(u64, u64)> {
    let limit = options.limit;
    let policy = Policy::new("hot", FixedWindow::new(limit, DAY))?;
    let charged = Arc::new(Mutex::new(0));
    let (result, rate) = (Arc::clone(&charged), options.rate);
    let ledger = simulate(nodes, 1 + kill, options, async move |world: World| {
        let half = Duration::from_millis(limit * 500 / rate);
        let load = Load::new(&policy).per_second(rate).lasting(half + Duration::from_millis(1));
        let load = world.start(load);
        // The node is killed at a random time in the last tenth of `half`.
        let before = world.random(kill).below(limit * 50_000 / rate);
        world.sleep(half - Duration::from_micros(before)).await;
        world.nodes()[0].kill();
        load.await;
        for node in world.nodes().iter().filter(|node| !node.is_killed()) {
            node.store().close().await;
        }
        let charges = [Charge::new(&policy, "s0").cost(0)];
        let peek = world.server().decide_now(&Call::new(Operation::Peek, &charges));
        let remaining = peek
            .ok()
            .and_then(|decision| decision.verdicts().first().map(|verdict| verdict.remaining()));
        let mut charged = result.lock().unwrap_or_else(PoisonError::into_inner);
        *charged = limit - remaining.unwrap_or(0);
    });
    let admitted = ledger.admissions().total();
    let charged = *charged.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((admitted, charged - admitted.min(charged)))
}

/// Returns the limit of each window. A quarter more requests arrive in a window.
fn window_limit(options: &Options) -> u64 {
    options.rate * 4 / 5
}

/// Simulates several windows in which more requests arrive than are admitted.
fn full(nodes: usize, options: &Options) -> Outcome<Ledger> {
    let policy = Policy::new("hot", FixedWindow::new(window_limit(options), WINDOW))?;
    let windows = u32::try_from(WINDOWS + 1)?;
    let load = Load::new(&policy).per_second(options.rate).lasting(WINDOW * windows);
    Ok(simulate(nodes, 1_000, options, async move |world: World| world.run(load).await))
}

fn simulate<F: Future<Output = ()> + Send + 'static>(
    nodes: usize,
    number: u64,
    options: &Options,
    scenario: impl FnOnce(World) -> F + Send,
) -> Ledger {
    let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
    let lease = options.lease();
    Simulation::new(seed).nodes(nodes).clock_error(100).run(
        |clock| MemoryStore::builder().clock(clock).build(),
        |host| host.link().leased(lease.clone().clock(host.clock())),
        scenario,
    )
}

fn millionths(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1_000_000).checked_div(whole).unwrap_or(0)
}
