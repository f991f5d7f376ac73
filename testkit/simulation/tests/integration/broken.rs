//! Tests of the simulation on a layer with defects. The simulation must find each defect. It must
//! find nothing in the same layer without a defect.
//!
//! The layer is a simple lease of fixed windows in 60 lines, without the optimizations of the real
//! leases. It charges a chunk of 20 in one call, and then admits up to 20 requests without a
//! further call.

use std::sync::Mutex;

use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Call, Clock, Decision, Error, Outcome, Share, Store, StoreExt, Verdict,
};
use tidegate_simulation::{Link, Load, SimulatedClock, Simulation};
use tidegate_testkit::decide_one_by_one;

use super::{micros, millis, policy, server};

const CHUNK: u64 = 20;
const LIMIT: u64 = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// The layer uses a chunk after the chunk's window has ended.
    NoDeadline,
    /// The layer starts to measure the rest of the window when the answer arrives, instead of when
    /// it sends the call.
    CountedFromTheAnswer,
    /// The layer ignores that its clock possibly runs slow.
    TrustsTheClock,
    /// The layer treats a call without an answer as admitted.
    AdmitsWithoutAnswer,
    /// The layer uses a chunk although the server refused the call for this chunk.
    AdmitsWhatWasRefused,
    /// The layer admits 21 requests from a chunk of 20.
    OffByOne,
}

const DEFECTS: [Defect; 6] = [
    Defect::NoDeadline,
    Defect::CountedFromTheAnswer,
    Defect::TrustsTheClock,
    Defect::AdmitsWithoutAnswer,
    Defect::AdmitsWhatWasRefused,
    Defect::OffByOne,
];

#[derive(Debug)]
struct ChunkLayer {
    clock: SimulatedClock,
    defect: Defect,
    chunk: Mutex<Chunk>,
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Chunk {
    remaining: u64,
    ends_at: u64,
}

fn admitted() -> Decision {
    Decision::one(Verdict::new(Outcome::Allowed, LIMIT))
}

impl ChunkLayer {
    fn admit(&self) -> Option<Decision> {
        let mut chunk = self.chunk.lock().unwrap();
        let is_over = self.clock.now().as_micros() >= chunk.ends_at;
        if chunk.remaining == 0 || is_over && self.defect != Defect::NoDeadline {
            return None;
        }
        chunk.remaining -= 1;
        Some(admitted())
    }

    async fn fetch(&self, inner: &impl Store, call: Call<'_>) -> Result<Decision, Error> {
        let _only = self.fetching.lock().await;
        let chunk: Vec<_> = call.charges.iter().take(1).map(|charge| charge.cost(CHUNK)).collect();
        loop {
            if let Some(decision) = self.admit() {
                return Ok(decision);
            }
            let sent = self.clock.now().as_micros();
            let answer = inner.decide(Call::acquire(&chunk)).await;
            let answered = self.clock.now().as_micros();
            let decision = match answer {
                Err(_) if self.defect == Defect::AdmitsWithoutAnswer => return Ok(admitted()),
                answer => answer?,
            };
            if decision.is_denied() && self.defect != Defect::AdmitsWhatWasRefused {
                return Ok(decision);
            }
            let life = u64::try_from(decision.verdicts()[0].reset_after().as_micros()).unwrap();
            let ends_at = match self.defect {
                Defect::CountedFromTheAnswer => answered + life - life.div_ceil(100),
                Defect::TrustsTheClock => sent + life,
                _ => sent + life - life.div_ceil(100),
            };
            let remaining = CHUNK + u64::from(self.defect == Defect::OffByOne);
            *self.chunk.lock().unwrap() = Chunk { remaining, ends_at };
        }
    }
}

impl<S: Store> Layer<S> for ChunkLayer {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        match self.admit() {
            Some(decision) => Answer::ready(Ok(decision)),
            None => Answer::later(self.fetch(inner, call)),
        }
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

/// Runs a simulation of a layer with this defect. Returns the largest amount by which the admitted
/// cost of a window exceeds the limit.
fn overshoot(defect: Defect, seed: u64) -> u64 {
    let link = Link::new().delay(micros(500)..=millis(8)).lost(Share::new(1, 100).unwrap());
    let ledger =
        Simulation::new(seed).nodes(8).link(link.timeout(millis(100))).clock_error(9_999).run(
            server,
            |host| {
                host.link().layer(ChunkLayer {
                    clock: host.clock(),
                    defect,
                    chunk: Mutex::default(),
                    fetching: tokio::sync::Mutex::default(),
                })
            },
            async |world| {
                let policy = policy(&format!("p: fixed-window {LIMIT}/500ms"));
                // Windows with few and with many requests alternate. At the end of a window with
                // few requests, a node has unused parts of chunks. The requests of the next window
                // use up the limit, so that a node that still uses its old chunk exceeds the limit.
                for rate in [400, 3_000].into_iter().cycle().take(6) {
                    let load = Load::new(&policy).per_second(rate).lasting(millis(500));
                    let load = world.start(load);
                    world.sleep(millis(500)).await;
                    drop(load);
                }
            },
        );
    let windows = ledger.admissions().in_windows(millis(500));
    windows.into_iter().map(|admitted| admitted.saturating_sub(LIMIT)).max().unwrap()
}

#[test]
fn a_layer_without_a_defect_keeps_the_limit() {
    for seed in 0..5 {
        assert_eq!(overshoot(Defect::None, seed), 0, "seed {seed}");
    }
}

#[test]
fn each_defect_is_found() {
    for defect in DEFECTS {
        let found = (0..20).find(|seed| overshoot(defect, *seed) > 0);
        assert!(found.is_some(), "{defect:?} is not found by 20 seeds");
        println!("{defect:?} is found by the seed {found:?}");
    }
}
