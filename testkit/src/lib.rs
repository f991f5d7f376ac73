//! The conformance suite, the oracle and the test tools of the Tidegate rate limiter.
//!
//! # Test your store
//!
//! One line of code tests whether your own [`Store`](tidegate_core::Store) keeps all guarantees of
//! Tidegate. Add `tidegate-testkit` to the `dev-dependencies` of your crate, and create
//! `tests/conformance.rs`:
//!
//! ```
//! # mod my_crate { pub use tidegate_testkit::ModelStore as MyStore; }
//! use my_crate::MyStore;
//!
//! tidegate_testkit::conformance!(my_store, |clock| MyStore::new(clock));
//! # fn main() {}
//! ```
//!
//! The closure in `conformance!` creates an empty store. The store must take its time from the
//! given [`ManualClock`](tidegate_core::ManualClock). The suite moves this clock by hand, so that
//! no test sleeps. The command `cargo test --test conformance` runs one test per property, such as
//! `my_store::b01_a_denial_writes_nothing`.
//!
//! Your store does not need to compute decisions: it only keeps records, and the functions of
//! [`tidegate_core::engine`] decide. [`ModelStore`] is the smallest such store. The store of
//! `examples/sqlite` in the repository keeps its records in a database.
//!
//! * If your store runs on a server, implement [`Fixture`]. If the fixture needs data about a
//!   store, such as its key prefix, [`StoreWithContext`] keeps this data together with the store.
//! * If your store can list its contents, pass a function that lists them to
//!   [`with_snapshot`](FromFn::with_snapshot). Then the suite also checks, byte for byte, that a
//!   denial writes nothing.
//! * If your store [supports](tidegate_core::Store::supports) only some policies, the suite uses
//!   only the supported policies. If the store supports no policy that a property needs, the
//!   property passes and prints `not run: …`.
//!
//! # Read a failure
//!
//! If a property fails, the message names the broken guarantee of [`Store`](tidegate_core::Store),
//! the expected value and the actual value. It also shows the last calls before the failure. The
//! documentation of [`suite`] lists the properties and explains ids such as `b01`.
//!
//! If a random case fails, the suite searches for the smallest case that still fails. It stores the
//! seed of the failing case in the directory `proptest-regressions/conformance`. The next run tries
//! the stored seeds first. Commit the files of this directory.
//!
//! # Settings
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `TIDEGATE_CASES` | the number of random cases per property | 64 |
//! | `TIDEGATE_STEPS` | the number of calls in the longest case | 20,000 |
//! | `PROPTEST_RNG_SEED` | the seed of the random cases | 1 |
//!
//! With the same seed, each run has the same random cases, so that a test that passes continues to
//! pass. To try other cases, change the seed:
//!
//! ```sh
//! PROPTEST_RNG_SEED=$RANDOM cargo test
//! ```
//!
//! The variable `PROPTEST_RNG_SEED` does not determine the order in which threads run, or the seeds
//! of hash maps.
//!
//! # Other tools
//!
//! | to | use |
//! |---|---|
//! | check properties without a macro | [`suite::check`], [`suite::check_all`] |
//! | check the answer to any call | [`Oracle`], [`run_against_oracle`] |
//! | generate policies, subjects and traces | [`generate`] |
//! | compare a store with the core, decision by decision | [`differential!`] |
//! | fail calls, and lose or delay answers | [`faults`] |
//! | read metrics (feature `metrics`) | `Recorder` |
//! | start real Redis servers | the crate `tidegate-test-servers` |
//! | test a layer on up to 1,000 nodes in virtual time | the crate `tidegate-simulation` |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod call_log;
mod compare;
mod env;
pub mod generate;
mod oracle;
#[cfg(feature = "metrics")]
mod recorder;
mod show;
mod stores;
pub mod suite;

pub use compare::against_oracle::{
    run_against_oracle, run_batches_against_oracle, run_holds_against_oracle,
};
pub use compare::differential;
pub use oracle::Oracle;
#[cfg(feature = "metrics")]
pub use recorder::Recorder;
pub use stores::{Context, ModelStore, StoreWithContext, decide_one_by_one, faults};
pub use suite::fixture::{Fixture, FromFn, fixture};
