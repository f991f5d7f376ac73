//! The conformance suite, the oracle and the test tools of the Tidegate rate limiter.
//!
//! One line holds any [`Store`](tidegate_core::Store) to all that Tidegate promises:
//!
//! ```
//! # use tidegate_testkit::ModelStore as MyStore;
//! tidegate_testkit::conformance!(my_store, |clock| MyStore::new(clock));
//! # fn main() {}
//! ```
//!
//! It makes a test of each property, named by what the store has to do, such as
//! `my_store::b01_a_denial_writes_nothing`. Time is moved by hand; no test sleeps.
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
//! | know what is checked, by id | [`suite`] |
//! | check a store that lives on a server | [`Fixture`], [`StoreWith`] |
//! | check without a macro | [`suite::check_all`] |
//! | predict the answer to any call | [`Oracle`] |
//! | make up policies, subjects, traces | [`generate`] |
//! | hold a store to the core, decision by decision | [`differential!`] |
//! | lose answers, deliver them late, fail | [`faults`] |
//! | look at metrics (feature `metrics`) | `Recorder` |
//! | see the smallest store there is | [`ModelStore`] |
//!
//! `TIDEGATE_CASES` sets how many random cases each property tries (64), and `TIDEGATE_STEPS` how
//! many calls the longest makes (1,000,000).
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod differential;
mod env;
pub mod faults;
mod follow;
pub mod generate;
mod model;
pub mod oracle;
#[cfg(feature = "metrics")]
mod recorder;
#[cfg(all(unix, feature = "servers"))]
pub mod servers;
mod show;
mod store_with;
pub mod suite;

pub use follow::{follow, follow_in_batches};
pub use model::ModelStore;
pub use oracle::Oracle;
#[cfg(feature = "metrics")]
pub use recorder::Recorder;
pub use store_with::StoreWith;
pub use suite::{Fixture, fixture};
