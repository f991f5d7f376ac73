//! The tests of the testkit, in one program, because linking one program takes much less time than
//! linking a program for each module.

mod broken;
mod generators;
mod model;
mod mutants;
mod partial;
mod printed;
mod seeds;
