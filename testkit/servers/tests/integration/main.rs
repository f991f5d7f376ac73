//! The tests of the servers. All tests are in one program, because linking one program takes much
//! less time than linking a program for each module.

mod cluster;
mod lifecycle;
mod proxy;
mod redis;
mod sentinel;
