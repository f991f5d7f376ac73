//! A page that shows what the server does now, for operators: read-only, on a port of its own.
//!
//! | route | answers |
//! |---|---|
//! | `GET /` | the page, with `/page.css`, `/page.js` and `/icon.svg`; it loads nothing from elsewhere |
//! | `GET /activity` | what it shows, in JSON |
//!
//! `docs/guide/page.md` in the repository has the fields and the settings.

mod access;
mod routes;

pub use routes::routes;
