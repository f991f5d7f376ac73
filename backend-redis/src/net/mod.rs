//! How servers are reached and what their errors mean: what this store shares with one that reaches
//! many, as over Redis Cluster. Not for applications: it changes as the stores need it.

pub mod error;
mod link;
mod links;
mod script_times;
mod settings;
mod source;

pub use link::{Link, Live, is_unknown_script};
pub use links::Links;
pub use script_times::ScriptTimes;
pub use settings::{Settings, is_encrypted, unusable};
pub use source::{Source, Target};
