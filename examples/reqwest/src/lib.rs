//! A client of reqwest that keeps within the limits of a service, and a service to try it on.
//!
//! [`client`] is what an application contains, and [`work`] uses it. [`service`] stands for somebody else's API.

pub mod client;
pub mod service;
pub mod work;
