//! The tests of the dashboard, the alert rules and the documents, in one program. Only the tests of
//! the alerts install the metrics recorder of the process.

mod alerts;
mod documents;
mod random_tests;
mod rules;
mod totals;
