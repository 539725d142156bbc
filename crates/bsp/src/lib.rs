//! BSPlib, for programs in C (`include/bsp.h`), Fortran (`include/bsp.f90`) and Rust
//! ([`run`]), as a thin translation: all that a superstep puts, gets and sends is gathered
//! until its end, one [log](log) for each destination, and leaves as [messages](wire)
//! whose arrival is the barrier. `docs/bsp.md` describes the interface.

// What tests of other crates see is private to all else.
#![cfg_attr(any(test, feature = "properties"), allow(missing_docs))]

mod areas;
mod c;
mod check;
mod copy;
mod direct;
mod ending;
mod exchange;
mod failure;
mod head;
mod heads;
mod log;
mod measured;
#[cfg(any(test, feature = "properties"))]
#[doc(hidden)]
pub mod model;
mod numbers;
mod process;
mod profile;
mod program;
#[cfg(any(test, feature = "properties"))]
#[doc(hidden)]
pub mod properties;
mod queue;
mod sole;
mod source;
mod spare;
mod tcp;
mod wire;

pub use program::{Area, Bsp, Plain, nprocs, run};
