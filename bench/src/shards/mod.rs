//! How often a request is refused though a shard has room, when just the limit arrives. In virtual
//! time, on the memory store: nothing here depends on the machine.

mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_memory::core::layers::ShardedStore;
use tidegate_memory::core::no_semver::{ShardPick, ShardWeights};
use tidegate_memory::core::policy::Shards;
use tidegate_memory::{Answer, Call, Charge, FixedWindow, ManualClock, MemoryStore, Policy, Store};

use self::table::{CALLERS, LIMITS, Share};
use crate::Outcome;

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Requests for each figure, at least.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
}

/// How a request finds its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// At random, by the sizes of the shares; so many tries at different shards.
    Random(usize),
    /// In turn, and nowhere else.
    TurnsOnce,
    /// As a store with shards does: in turn, and to a second.
    Ours,
}

/// Measures and prints; says whether what was to be beaten is beaten, for any number of callers.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    table::write_head();
    let mut is_met = true;
    for (limit, shards, at_random) in LIMITS {
        let policy = Policy::new("hot", FixedWindow::new(limit, table::WINDOW))?;
        let policy = policy.sharded(Shards::any(shards))?;
        let measure = |way, callers| refused(&policy, way, callers, options.requests);
        let chance = [measure(Way::Random(1), 1)?, measure(Way::Random(2), 1)?];
        let mut ours = vec![];
        for callers in CALLERS {
            ours.push((measure(Way::TurnsOnce, callers)?, measure(Way::Ours, callers)?));
        }
        is_met &= ours.iter().all(|(_, twice)| twice.is_below(at_random));
        table::write_row((limit, shards), at_random, &chance, &ours);
    }
    let word = if is_met { "met" } else { "NOT MET" };
    println!("\n- {word}: in turn and twice, fewer than what was to be beaten");
    Ok(is_met)
}

/// The share of requests that are refused, of windows in which just the limit arrives.
fn refused(policy: &Policy, way: Way, callers: u64, requests: u64) -> Outcome<Share> {
    let clock = ManualClock::default();
    let store = Arc::new(MemoryStore::builder().clock(clock.clone()).build());
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let (mut asked, mut refused) = (0, 0);
    while asked < requests {
        clock.advance(table::WINDOW);
        // Callers that were not there before: else they would go on from the window before.
        let mut known = BTreeMap::new();
        for _ in 0..policy.limit() {
            let (who, turn) = (chance.below(callers), chance.below(1 << 32));
            let caller = known
                .entry(who)
                .or_insert_with(|| Caller { store: ShardedStore::new(Arc::clone(&store)), turn });
            refused += u64::from(!caller.passes(policy, way, &mut chance)?);
            asked += 1;
        }
    }
    Ok(Share { part: refused, of: asked })
}

type Clocked = Arc<MemoryStore<ManualClock>>;

/// A process among several that ask one store.
struct Caller {
    store: ShardedStore<Clocked>,
    turn: u64,
}

impl Caller {
    fn passes(&mut self, policy: &Policy, way: Way, chance: &mut Chance) -> Outcome<bool> {
        let shares = policy.shares();
        match way {
            Way::Ours => admits(&self.store, policy),
            Way::TurnsOnce => {
                let among = ShardWeights::new(shares.len(), policy.limit());
                self.turn += 1;
                let turn = u32::try_from(self.turn % (1 << 32))?;
                admits(self.store.inner(), &shares[ShardPick::new(turn, among).first])
            }
            Way::Random(tries) => {
                let count = u64::try_from(shares.len())?;
                let mut place = chance.below(policy.limit()) % count;
                for _ in 0..tries {
                    if admits(self.store.inner(), &shares[usize::try_from(place)?])? {
                        return Ok(true);
                    }
                    place = (place + 1 + chance.below(count - 1)) % count;
                }
                Ok(false)
            }
        }
    }
}

fn admits(store: &impl Store, policy: &Policy) -> Outcome<bool> {
    let charges = [Charge::new(policy, "everybody")];
    let decision = at_once(store.decide(Call::acquire(&charges)));
    Ok(decision.ok_or("a store in memory does not wait")??.is_allowed())
}

/// The answer of a store that never waits, though its future may have a box.
fn at_once<T>(answer: Answer<'_, T>) -> Option<T> {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    match std::pin::pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// Numbers that look random, the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }
}
