//! Tests the formats of reports: the table, the JSON document and the page.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what the tests call fails by panicking, too"
)]

mod arbitrary;
mod fixtures;
mod html;
mod json;
mod markup;
mod table;
mod text;
