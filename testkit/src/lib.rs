//! The conformance suite, the oracle and the test tools of the Tidegate rate limiter.
//!
//! One line tests any [`Store`](tidegate_core::Store) for all guarantees of Tidegate:
//!
//! ```
//! # use tidegate_testkit::ModelStore as MyStore;
//! tidegate_testkit::conformance!(my_store, |clock| MyStore::new(clock));
//! # fn main() {}
//! ```
//!
//! It generates a test for each property, such as `my_store::b01_a_denial_writes_nothing`. Time is virtual; no
//! test sleeps.
//!
//! A failure names the guarantee of [`Store`](tidegate_core::Store) that is broken, what was expected and
//! what was answered, and the last calls before. A store that [supports](tidegate_core::Store::supports)
//! some policies only is asked for these only; a property of which nothing is left passes, and prints
//! `not run: …`.
//!
//! A store of your own keeps records and leaves decisions to
//! [`tidegate_core::engine`]: [`ModelStore`] keeps them in a map, and `examples/sqlite` in the repository
//! in a database.
//!
//! | to | look at |
//! |---|---|
//! | see what is checked, by id | [`suite`] |
//! | check a store that lives on a server | [`Fixture`], [`StoreWithContext`] |
//! | check without a macro | [`suite::check_all`] |
//! | predict the answer to any call | [`Oracle`] |
//! | generate policies, subjects, traces | [`generate`] |
//! | compare a store with the core, decision by decision | [`differential!`] |
//! | lose answers, deliver them late, fail | [`faults`] |
//! | read metrics (feature `metrics`) | `Recorder` |
//! | try a layer on up to 1,000 nodes in virtual time (feature `simulation`) | `simulation` |
//! | see the smallest store | [`ModelStore`] |
//!
//! `TIDEGATE_CASES` sets how many random cases each property tries (64), and `TIDEGATE_STEPS` how
//! many calls the longest makes (1,000,000).
//!
//! The random cases are the same in each run, so that a test that passes keeps passing. They follow
//! from the variable `PROPTEST_RNG_SEED` (1). Set it to other numbers to try other cases:
//!
//! ```sh
//! PROPTEST_RNG_SEED=$RANDOM cargo test
//! ```
//!
//! The order in which threads run does not follow from it, nor do the seeds of hash maps.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod compare;
mod env;
pub mod generate;
pub mod oracle;
#[cfg(feature = "metrics")]
mod recorder;
#[cfg(all(unix, feature = "servers"))]
pub mod servers;
mod show;
#[cfg(feature = "simulation")]
pub mod simulation;
mod stores;
pub mod suite;

pub use compare::against_oracle::{
    run_against_oracle, run_batches_against_oracle, run_holds_against_oracle,
};
pub use compare::differential;
pub use oracle::Oracle;
#[cfg(feature = "metrics")]
pub use recorder::Recorder;
pub use stores::{ModelStore, StoreWithContext, faults};
pub use suite::{Fixture, fixture};
