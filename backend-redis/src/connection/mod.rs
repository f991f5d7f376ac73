//! Connections to servers, and the meaning of connection errors.
//!
//! The store for Redis Cluster also uses this module, which is not for applications and can change
//! at any time.
//!
//! | file | content |
//! |---|---|
//! | `pool` | the connections to one server, used in turn |
//! | `multiplexed` | one connection, and the tasks that make, watch and replace the connection |
//! | `live` | a connection that is open |
//! | `given` | a connection that the application has made |
//! | `credentials` | the user and the password of a login, from a provider |
//! | `source` | the target of connections, and the time limits for connections |
//! | `access` | the steps of connecting to one server |
//! | `sentinel` | the search for the primary of a Sentinel group |
//! | `url` | functions that parse the URLs of servers, and show URLs without passwords |
//! | `ready` | the check, at the start of a program, that a server supports everything that a store needs |
//! | `stream` | the bytes of one connection, and the state of the connection that the bytes show |
//! | `wake_ups` | the connection that wakes calls that wait for slots |
//! | `answers` | the ends of replies within these bytes |

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
mod wake_ups;

pub use credentials::{Credentials, CredentialsProvider, ProvidedCredentials};
pub use given::GivenConnection;
pub use live::LiveConnection;
pub use multiplexed::Connection;
pub use pool::ConnectionPool;
pub use race::first_success;
pub use ready::{PROBE_OPERATIONS, check_runtime, check_server, probes};
pub use script_times::ScriptTimes;
pub use settings::Settings;
pub use source::Target;
pub use tls::Tls;
pub(crate) use url::with_login;
pub use url::{has_password, is_encrypted, parse_url, unusable_url, without_password};
