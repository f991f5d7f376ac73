//! The limits: envoyproxy/ratelimit's directory of YAML files, with four more keys.
//!
//! ```yaml
//! domain: shop
//! descriptors:
//!   # As envoyproxy/ratelimit reads it, and as it counts: a hit that is refused counts too.
//!   - key: remote_address
//!     rate_limit: { unit: minute, requests_per_unit: 100 }
//!
//!   # The same in windows of any length.
//!   - key: api_key
//!     rate_limit: { period: 15m, requests_per_unit: 1000 }
//!
//!   # Any policy of Tidegate. All policies of a request are charged, or none.
//!   - key: path
//!     value: /login
//!     policy: sliding-log 5/15m block 15m
//!
//!   # What was used is known when the response has been sent: requests of no hits ask whether anything is left.
//!   - key: user
//!     policy: token-bucket 10000/1h
//!     charge_afterwards: true
//! ```
//!
//! | key | where | means |
//! |---|---|---|
//! | `policy` | in a descriptor, in place of `rate_limit` | a policy, in [the grammar](tidegate_core::Policy) of Tidegate; `name` and `replaces` stand beside it |
//! | `charge_afterwards` | beside `policy` | hits have happened already: they are charged beyond the limit if need be, and never refused. A request with a `hits_addend` of 0 is refused while nothing is left |
//! | `refunds` | beside `policy` | takes `is_negative_hits`: what was refused is remembered, so that only what was taken is given back |
//! | `period` | in `rate_limit`, in place of `unit` | a window of any length, such as `15m` |
//!
//! The [resources](crate::limits::xds) of a management server are read by the same rules; they have none of our keys.
//!
//! Files, values and aliases are bounded, and an error names the file, the line and the column.

mod directory;
mod error;
mod keys;
mod limit;
mod pattern;
mod read;
mod resource;
mod rules;
mod scalar;
mod yaml;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

pub use directory::{ConfigFile, MAX_FILE_BYTES, MAX_FILES, left_out, read_directory};
pub use error::ConfigError;
use error::Source;
pub use limit::Unit;
pub(crate) use limit::{Counted, Kind, Limit, PolicyLimit};
use read::Reader;
pub(crate) use rules::{By, Level};
use yaml::Value;

use crate::limits::StatKey;
use crate::limits::xds::messages::RateLimitConfig;
use crate::net::text::shown;

/// The limits of all domains.
#[derive(Debug, Default)]
pub struct Config {
    domains: HashMap<Box<str>, Level>,
    warnings: Vec<ConfigError>,
}

/// A limit for those that look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedLimit {
    /// The domain and the path to the limit, `domain.key_value.key`.
    pub key: String,
    /// The limit as a text.
    pub limit: String,
    /// File, line and column; or the name of a resource.
    pub place: String,
}

/// What to do with a second file or resource for a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SameDomain {
    /// It is an error.
    #[default]
    Refuse,
    /// Its descriptors are added to those of the first file.
    Merge,
}

impl Config {
    /// Reads a directory: see [`read_directory`] for which files.
    ///
    /// # Errors
    ///
    /// The first mistake in any file: nothing of the directory is used then.
    pub fn from_directory(directory: &Path, same: SameDomain) -> Result<Self, ConfigError> {
        Self::from_files(&read_directory(directory)?, same)
    }

    /// Reads the contents of files.
    ///
    /// ```
    /// use tidegate_server::limits::config::{Config, ConfigFile, SameDomain};
    ///
    /// let file = |text: &str| ConfigFile { name: "shop.yaml".into(), text: text.into() };
    /// let text = "domain: shop\ndescriptors:\n  - key: user\n    policy: gcra 10/s burst 100 block 5m\n";
    /// assert_eq!(Config::from_files(&[file(text)], SameDomain::Refuse)?.limits(), 1);
    ///
    /// let error = Config::from_files(&[file(&text.replace("policy", "polcy"))], SameDomain::Refuse);
    /// assert_eq!(
    ///     error.unwrap_err().to_string(),
    ///     "shop.yaml:4:5: config error, unknown key 'polcy'"
    /// );
    /// # Ok::<(), tidegate_server::limits::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first mistake in any file.
    pub fn from_files(files: &[ConfigFile], same: SameDomain) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for file in files {
            config.add(file, same)?;
        }
        Ok(config)
    }

    /// Reads the resources of a management server, by the rules of files.
    ///
    /// ```
    /// use tidegate_server::limits::config::{Config, SameDomain};
    /// use tidegate_server::limits::xds::messages::RateLimitConfig;
    ///
    /// let resource = |domain: &str| RateLimitConfig {
    ///     name: "shop-1".into(),
    ///     domain: domain.into(),
    ///     descriptors: Vec::new(),
    /// };
    /// let config = Config::from_resources(&[resource("shop")], SameDomain::Refuse)?;
    /// assert_eq!(config.domains(), ["shop"]);
    ///
    /// let error = Config::from_resources(&[resource("")], SameDomain::Refuse).unwrap_err();
    /// assert_eq!(error.to_string(), "shop-1: config file cannot have empty domain");
    /// # Ok::<(), tidegate_server::limits::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first mistake in any resource.
    pub fn from_resources(
        resources: &[RateLimitConfig],
        same: SameDomain,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for resource in resources {
            let name = shown(&resource.name);
            let source = Source::resource(&name);
            let root = resource::tree(resource).map_err(|problem| problem.in_source(source))?;
            config.add_tree(source, Some(&root), same)?;
        }
        Ok(config)
    }

    fn add(&mut self, file: &ConfigFile, same: SameDomain) -> Result<(), ConfigError> {
        let source = Source::file(&file.name);
        let root = yaml::parse(&file.text).map_err(|problem| problem.in_source(source))?;
        self.add_tree(source, root.as_deref(), same)
    }

    fn add_tree(
        &mut self,
        source: Source<'_>,
        root: Option<&yaml::Node>,
        same: SameDomain,
    ) -> Result<(), ConfigError> {
        let in_file = |problem: error::Problem| problem.in_source(source);
        let empty = yaml::Map::default();
        let map = match root {
            None => &empty,
            Some(node) if node.is_null() => &empty,
            Some(node) => match &*node.value {
                Value::Map(map) => map,
                _ => return Err(in_file(yaml::loading(node.at, "the file is not a map"))),
            },
        };
        keys::check(map).map_err(in_file)?;
        let mut reader = Reader::new(source);
        let (domain, at) = reader.domain(map).map_err(in_file)?;
        if same == SameDomain::Refuse && self.domains.contains_key(&*domain) {
            let message = format!("duplicate domain '{}' in config file", shown(&domain));
            return Err(in_file(error::Problem::new(at, message)));
        }
        let level = self.domains.entry(domain.clone().into()).or_default();
        reader.descriptors(map, &StatKey::new(&domain), level).map_err(in_file)?;
        self.warnings.extend(reader.warnings.into_iter().map(in_file));
        Ok(())
    }

    /// What is possible in the files, and has no effect there.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }

    /// The names of the domains, sorted.
    #[must_use]
    pub fn domains(&self) -> Vec<&str> {
        let mut domains: Vec<&str> = self.domains.keys().map(|domain| &**domain).collect();
        domains.sort_unstable();
        domains
    }

    /// The number of limits.
    #[must_use]
    pub fn limits(&self) -> usize {
        let mut count = 0;
        self.for_each_limit(&mut |_| count += 1);
        count
    }

    /// All limits, in the order of their keys.
    #[must_use]
    pub fn list(&self) -> Vec<ListedLimit> {
        let mut list = Vec::new();
        self.for_each_limit(&mut |limit| {
            list.push(ListedLimit {
                key: limit.stat_key.to_string(),
                limit: limit.to_string(),
                place: limit.place.to_string(),
            });
        });
        list.sort_by(|a, b| a.key.cmp(&b.key));
        list
    }

    /// Returns a line per limit, in the order of their keys. A `rate_limit:` has the line that
    /// envoyproxy/ratelimit prints; another limit has its text instead of the unit and the number.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut lines = Vec::new();
        self.for_each_limit(&mut |limit| lines.push(limit.dump()));
        lines.sort_unstable();
        lines.concat()
    }

    pub(crate) fn for_each_limit(&self, see: &mut impl FnMut(&Arc<Limit>)) {
        self.domains.values().for_each(|level| level.for_each_limit(see));
    }

    pub(crate) fn domain(&self, name: &[u8]) -> Option<&Level> {
        // The name of a configured domain is UTF-8.
        self.domains.get(str::from_utf8(name).ok()?)
    }
}
