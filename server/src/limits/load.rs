use tidegate_core::Error;

use super::config::ConfigError;

/// The reason why a configuration was not loaded. The previous limits then stay in force.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// A file or a resource is not valid.
    Config(ConfigError),
    /// The store cannot keep the states of a policy.
    Store(Error),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Store(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for LoadError {}
