//! HTTP/1 with bounds on the number of connections, on their times and on the sizes of requests.
//!
//! | bound | effect if it is exceeded |
//! |---|---|
//! | connections | 503, and the connection ends |
//! | time between requests; time of a head; time to accept a response | the connection ends |
//! | size of a head, number of its fields | 431, and the connection ends |
//! | time of a body | 408 |
//! | size of a body | 413 |

mod body;
mod calls;
mod phase;
mod server;
mod settings;
mod timed;

pub(crate) use body::{BodyError, Payload, with_json};
pub(crate) use calls::{failed, guarded, not_done, read_json};
pub use server::{serve, serve_stream};
pub use settings::HttpSettings;
