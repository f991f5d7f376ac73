//! A client of reqwest that stays within the limits of a service, and a service to try the client.
//!
//! The module [`client`] contains the code for an application. The module [`work`] sends requests
//! with a client from this module. The module [`service`] is a stub of another company's API.

pub mod client;
pub mod service;
pub mod work;
