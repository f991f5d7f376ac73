//! Fields of HTTP that announce limits: written from a decision, and read from what servers send. No I/O.
//!
//! | to | use |
//! |---|---|
//! | tell clients of a decision | [`FieldWriter`], in one of the [`FieldFormat`]s, on the policies of a [`FieldScope`] |
//! | say why a request was refused | [`Problem`], as a body of `application/problem+json` |
//! | know what a server announced, in any of these forms and many others | [`ServerLimits`] |
//!
//! The `RateLimit` fields are an Internet-Draft of the HTTPAPI working group, and no standard. What is written
//! has the syntax of a draft; that is no claim to comply with it.

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
