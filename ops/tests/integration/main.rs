//! The tests of the dashboard, the alert rules and the documents, in one program. The alerts alone install
//! the metrics recorder of the process.

mod alerts;
mod documents;
mod random_tests;
mod rules;
mod totals;
