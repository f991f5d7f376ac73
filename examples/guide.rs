//! The pages of the guide as modules, so that the tests compile and run their code.

#[doc = include_str!("../docs/guide/beyond-the-limit.md")]
pub mod beyond_the_limit {}

#[doc = include_str!("../docs/guide/charges-known-afterwards.md")]
pub mod charges_known_afterwards {}

#[doc = include_str!("../docs/guide/concurrency.md")]
pub mod concurrency {}

#[doc = include_str!("../docs/guide/http-clients.md")]
pub mod http_clients {}

#[doc = include_str!("../docs/guide/http-servers.md")]
pub mod http_servers {}

#[doc = include_str!("../docs/guide/layers.md")]
pub mod layers {}

#[doc = include_str!("../docs/guide/limit-tokens.md")]
pub mod limit_tokens {}

#[doc = include_str!("../docs/guide/limits-per-user.md")]
pub mod limits_per_user {}

#[doc = include_str!("../docs/guide/quotas.md")]
pub mod quotas {}

#[doc = include_str!("../docs/guide/lists.md")]
pub mod lists {}

#[doc = include_str!("../docs/guide/logins.md")]
pub mod logins {}

#[doc = include_str!("../docs/guide/throughput.md")]
pub mod throughput {}

#[doc = include_str!("../docs/guide/changing-limits.md")]
pub mod changing_limits {}

#[doc = include_str!("../docs/guide/sharing.md")]
pub mod sharing {}

#[doc = include_str!("../docs/guide/warnings.md")]
pub mod warnings {}

/// The README, included only in the tests, because its links do not work in the generated
/// documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub mod readme {}
