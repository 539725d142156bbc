//! BSPlib, for programs in C (`include/bsp.h`), Fortran (`include/bsp.f90`) and Rust
//! ([`run`]), as a thin translation: all that a superstep puts, gets and sends is gathered
//! until its end, one [log](log) for each destination, and leaves as
//! [matched messages](wire) whose arrival is the barrier. `docs/bsp.md` describes the
//! interface.

mod areas;
mod c;
mod exchange;
mod failure;
mod log;
#[cfg(test)]
mod model;
mod process;
mod program;
mod queue;
mod wire;

pub use program::{Area, Bsp, Plain, nprocs, run};
