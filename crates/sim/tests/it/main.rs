//! Tests of `portolan-sim`: a program for all of them, which is linked once.

mod arrival;
mod duplex;
mod goldens;
mod kills;
mod paths;
mod search;
mod seeds;
