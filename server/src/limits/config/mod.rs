//! The limits of Envoy's service. They are read from a directory of YAML files in the format of
//! envoyproxy/ratelimit, to which Tidegate adds six keys.
//!
//! ```yaml
//! domain: shop
//! descriptors:
//!   # As in envoyproxy/ratelimit. A hit that is refused counts too.
//!   - key: remote_address
//!     rate_limit: { unit: minute, requests_per_unit: 100 }
//!
//!   # A `rate_limit` with a window of any length.
//!   - key: api_key
//!     rate_limit: { period: 15m, requests_per_unit: 1000 }
//!
//!   # Any policy of Tidegate. All policies of a request are charged, or none.
//!   - key: path
//!     value: /login
//!     policy: sliding-log 5/15m block 15m
//!
//!   # The usage is known only after the response. Requests with 0 hits check whether anything remains.
//!   - key: user
//!     policy: token-bucket 10000/1h
//!     charge_afterwards: true
//!
//!   # The rate of a customer pays first. If it is used up, the shared pool pays.
//!   - key: account
//!     policy: token-bucket 100/1s
//!     one_of: capacity
//!   - key: pool
//!     policy: token-bucket 1000/1s
//!     one_of: capacity
//!
//!   # At most 10 requests of a customer at a time.
//!   - key: customer
//!     descriptors:
//!       - key: request_id
//!         policy: concurrent 10 lease 5m
//!         hold_id: true
//! ```
//!
//! | key | place | meaning |
//! |---|---|---|
//! | `policy` | in a descriptor, instead of `rate_limit` | a policy in [the grammar](tidegate_core::Policy) of Tidegate; the keys `name` and `replaces` are then also in the descriptor |
//! | `charge_afterwards` | next to `policy` | hits have already happened, so they are charged even beyond the limit and never refused; a request with a `hits_addend` of 0 is refused if nothing remains |
//! | `refunds` | next to `policy` | allows `is_negative_hits`; refused hits are recorded, so that a refund refunds only hits that were charged |
//! | `hold_id` | next to a `policy` of slots (`concurrent`) | `true` makes the value of this descriptor the id of the hold that has the slots; the entries before it are the subject |
//! | `one_of` | next to `policy` | the name of a list of alternatives: of the descriptors of a request whose limits have this name, the first one that its policy admits pays, and the others are not charged |
//! | `lease` | in a descriptor with a `rate_limit` or a `policy` | `true` leases the limit; `false` excludes it from `limits.lease_all` |
//! | `period` | in `rate_limit`, instead of `unit` | a window of any length, such as `15m` |
//! | `calendar` | in `rate_limit`, next to a `unit` of a day or longer | the windows are the days, weeks, months or years of a [calendar](tidegate_core::Quota), such as `in Europe/Amsterdam` or `from monday in UTC` |
//!
//! The [resources](crate::limits::xds) of a management server are read by the same rules, but do
//! not have Tidegate's additional keys.
//!
//! The numbers of files, values and aliases are bounded. An error contains the file, the line and
//! the column.

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
pub(crate) use directory::{read_file, read_files};
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

/// A limit as the server lists it for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedLimit {
    /// The domain and the path to the limit, `domain.key_value.key`.
    pub key: String,
    /// The limit as a text.
    pub limit: String,
    /// The file, line and column of the limit, or the name of the resource.
    pub place: String,
}

/// The handling of a second file or resource with the same domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SameDomain {
    /// A second file or resource for the same domain is an error.
    #[default]
    Refuse,
    /// The descriptors of a second file or resource are added to the domain.
    Merge,
}

impl Config {
    /// Reads limits from the files of a directory that [`read_directory`] selects.
    ///
    /// # Errors
    ///
    /// Returns the first error in any file. In this case, no file has an effect.
    pub fn from_directory(directory: &Path, same: SameDomain) -> Result<Self, ConfigError> {
        Self::from_files(&read_directory(directory)?, same)
    }

    /// Reads limits from the contents of files.
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
    /// Returns the first error in any file.
    pub fn from_files(files: &[ConfigFile], same: SameDomain) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for file in files {
            config.add(file, same)?;
        }
        Ok(config)
    }

    /// Reads limits from the resources of a management server, by the rules that apply to files.
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
    /// Returns the first error in any resource.
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

    /// Leases all limits that can be leased, except for limits with `lease: false`.
    #[must_use]
    pub fn lease_all(mut self) -> Self {
        for level in self.domains.values_mut() {
            level.change_each_limit(&mut Limit::lease_if_possible);
        }
        self
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

    /// Returns warnings about keys that are allowed but have no effect.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }

    /// Returns the names of the domains in alphabetical order.
    #[must_use]
    pub fn domains(&self) -> Vec<&str> {
        let mut domains: Vec<&str> = self.domains.keys().map(|domain| &**domain).collect();
        domains.sort_unstable();
        domains
    }

    /// Returns the number of limits.
    #[must_use]
    pub fn limits(&self) -> usize {
        let mut count = 0;
        self.for_each_limit(&mut |_| count += 1);
        count
    }

    /// Returns all limits, sorted by key.
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

    /// Returns a line per limit, sorted by key. The line of a `rate_limit:` is the same as in
    /// envoyproxy/ratelimit. The line of a `policy:` contains the text of the policy instead of a
    /// unit and a number.
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
        // Every configured domain is UTF-8, so a name that is not UTF-8 is not a configured domain.
        self.domains.get(str::from_utf8(name).ok()?)
    }
}
