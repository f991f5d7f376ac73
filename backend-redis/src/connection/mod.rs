//! How servers are reached and what their errors mean: what this store shares with one that reaches
//! many, as over Redis Cluster. Not for applications: it changes as the stores need it.
//!
//! | file | what is in it |
//! |---|---|
//! | `pool` | the connections to one server, used in turn |
//! | `multiplexed` | one of them: made, watched and replaced by tasks of its own |
//! | `live` | one that has been made |
//! | `given` | a connection that the application has made |
//! | `credentials` | the user and the password of a login, from a provider |
//! | `source` | where connections are made to |
//! | `access` | how one server is connected to |
//! | `sentinel` | which server of a Sentinel group that is |
//! | `url` | the URLs of servers, read, and shown without passwords |
//! | `ready` | what a store needs of a server, tried when a program starts |
//! | `stream` | the bytes of one connection, watched as they pass |
//! | `answers` | where the answers end in these bytes |

mod access;
mod answers;
mod credentials;
pub mod error;
mod given;
mod live;
mod multiplexed;
mod pool;
mod race;
mod ready;
mod script_times;
mod sentinel;
mod settings;
mod source;
mod stream;
mod tls;
mod url;

pub use credentials::{Credentials, CredentialsProvider, ProvidedCredentials};
pub use given::GivenConnection;
pub use live::LiveConnection;
pub use multiplexed::Connection;
pub use pool::ConnectionPool;
pub use race::first_success;
pub use ready::{PROBE_OPERATIONS, check_runtime, check_server, probes};
pub use script_times::ScriptTimes;
pub(crate) use settings::with_login;
pub use settings::{Settings, is_encrypted};
pub use source::Target;
pub use tls::Tls;
pub use url::{has_password, parse_url, unusable_url, without_password};
