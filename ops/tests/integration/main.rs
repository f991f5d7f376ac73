//! The tests of the dashboard, the alert rules and the documents, in one program. Only the tests of
//! the alerts install a metrics recorder, because a process can have only one.

mod alerts;
mod documents;
mod random_tests;
mod rules;
mod totals;
