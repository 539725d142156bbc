//! BSPlib for programs in C (`include/bsp.h`), Fortran (`include/bsp.f90`) and Rust ([`run`]), as
//! a thin translation. Puts, gets and sends of a superstep are gathered until its end, in one
//! [log](log) for each destination. They leave as [messages](wire), whose arrival is the barrier.
//! `docs/bsp.md` describes the interface.

// Items that only tests of other crates see need no documentation.
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
