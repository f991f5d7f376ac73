//! HTTP fields that announce limits. This module writes these fields from a decision, and reads the
//! fields that other servers send. It does no I/O.
//!
//! | task | type |
//! |---|---|
//! | announce the limits of a decision to clients | [`FieldWriter`], in a [`FieldFormat`], on the policies of a [`FieldScope`] |
//! | describe the reason for a refusal | [`Problem`], as a body of `application/problem+json` |
//! | read the limits that a server announced, in any of these formats and many others | [`ServerLimits`] |
//!
//! The `RateLimit` fields are an Internet-Draft of the HTTPAPI working group and not a standard.
//! This module writes fields in the syntax of a draft, and does not claim to comply with the draft.

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
