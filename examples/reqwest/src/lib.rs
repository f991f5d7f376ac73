//! A client of reqwest that stays within the limits of a service, and a service to try the client.
//!
//! An application contains [`client`], and [`work`] uses it. [`service`] represents the API of
//! another company.

pub mod client;
pub mod service;
pub mod work;
