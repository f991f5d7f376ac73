//! A read-only page for operators that shows the present state of the server. It has its own port.
//!
//! | route | answers |
//! |---|---|
//! | `GET /` | the page, with `/page.css`, `/page.js` and `/icon.svg`; it loads nothing from other servers |
//! | `GET /activity` | the content of the page as JSON |
//!
//! `docs/guide/page.md` in the repository describes the settings, and the query of `GET /activity`.

mod access;
mod routes;

pub use routes::routes;
