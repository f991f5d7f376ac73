//! HTTP fields that announce limits. This module writes them from a decision, and reads the fields
//! that other servers send. It does no I/O.
//!
//! | task | type |
//! |---|---|
//! | announce the limits of a decision to clients | [`FieldWriter`], in a [`FieldFormat`], on the policies of a [`FieldScope`] |
//! | describe the reason for a refusal | [`Problem`], as a body of `application/problem+json` |
//! | read the limits that a server announced, in any of these formats and many others | [`ServerLimits`] |
//!
//! The `RateLimit` fields are an Internet-Draft of the HTTPAPI working group and not a standard.
//! The written fields have the syntax of a draft, and do not claim to comply with it.

mod error;
mod format;
pub mod names;
mod problem;
mod read;
mod text;
mod writer;

pub use error::FieldError;
pub use format::{FieldFormat, FieldScope};
pub use problem::{Problem, ProblemKind};
pub use read::{ServerLimit, ServerLimits};
pub use writer::{FieldWriter, FieldWriterBuilder};
