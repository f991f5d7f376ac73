//! Serves calls as plain JSON over HTTP. A request contains the policy, the subject and the cost.
//! The answer contains the verdict.
//!
//! ```sh
//! curl http://127.0.0.1:8080/v1/acquire -H 'content-type: application/json' \
//!     -d '{"policy": "sliding-log 5/15m block 15m", "subject": "alice"}'
//! ```
//!
//! ```json
//! {"allowed": true, "policy": "sliding-log 5/15m block 15m", "outcome": "allowed", "limit": 5, "remaining": 4,
//!  "retry_after_ms": 0, "reset_after_ms": 900000, "amount": 1}
//! ```
//!
//! `docs/guide/json.md` in the repository and `GET /openapi.json` describe all routes and fields.

mod answer;
mod fields;
mod read;
mod routes;

pub use routes::{OPENAPI, routes};
