//! The hosts that ranks run on: this one, and those of labs; their host ports;
//! how ranks are started there; and what all commands have in common: how they
//! fail, print, read files and take options.
#![forbid(unsafe_code)]
// They panic when their reader is gone or the disk is full: `print` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod choices;
pub mod detached;
pub mod failure;
pub mod file;
pub mod lab;
pub mod mpi;
pub mod nameless;
pub mod node;
pub mod print;
pub mod ranks;
pub mod table;
