//! The server program that tests run, and the version of this program.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::Error;

/// The environment variable with the path of a server program that replaces `redis-server`.
const VARIABLE: &str = "TIDEGATE_REDIS_SERVER";

#[derive(Debug, Clone)]
pub(super) struct Binary {
    pub(super) path: PathBuf,
    pub(super) version: Version,
}

impl Binary {
    /// Finds the server program. If `path` is set, it is the program. Otherwise, the program is the
    /// value of the environment variable `TIDEGATE_REDIS_SERVER`, or `redis-server` if the variable
    /// is not set.
    pub(super) fn find(path: Option<&Path>) -> Result<Self, Error> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => std::env::var_os(VARIABLE)
                .filter(|path| !path.is_empty())
                .map_or_else(|| PathBuf::from("redis-server"), |path: OsString| path.into()),
        };
        let output = Command::new(&path).arg("--version").output().map_err(|error| {
            let attempt = format!(
                "cannot run the server program {path:?} that this test needs \
                 (install it with .ci/install-redis, `apt-get install redis-server` or \
                 `brew install redis`, or set {VARIABLE} to the path of a redis-server or valkey-server)"
            );
            Error::io(attempt, error)
        })?;
        let version = Version::parse(&String::from_utf8_lossy(&output.stdout), path.as_os_str())?;
        Ok(Self { path, version })
    }
}

/// The name and the version of a server program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    name: String,
    numbers: [u32; 3],
}

impl Version {
    /// Parses the output of `redis-server --version`, such as `Redis server v=7.0.15 sha=…`.
    fn parse(printed: &str, program: &OsStr) -> Result<Self, Error> {
        let read = || {
            let (name, rest) = printed.trim().split_once(" server v=")?;
            let mut parts = rest.split_whitespace().next()?.split('.');
            let mut next = || parts.next()?.parse().ok();
            Some(Self { name: name.to_owned(), numbers: [next()?, next()?, next()?] })
        };
        read().ok_or_else(|| {
            Error::new(format!(
                "{program:?} is not a Redis or Valkey server; it printed {printed:?}"
            ))
        })
    }

    /// Returns the name of the program: `Redis` or `Valkey`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the major, minor and patch number of the version.
    pub fn numbers(&self) -> [u32; 3] {
        self.numbers
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{} {major}.{minor}.{patch}", self.name)
    }
}
