//! The tests of the testkit, in one program, because linking one program takes much less time than
//! linking a program for each module.

mod broken;
mod generators;
mod model;
mod mutants;
mod partial;
mod printed;
mod seeds;
mod servers_cluster;
mod servers_lifecycle;
mod servers_proxy;
mod servers_redis;
mod servers_sentinel;
mod simulation;
