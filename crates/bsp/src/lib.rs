//! BSPlib, for programs in C (`include/bsp.h`), Fortran (`include/bsp.f90`) and Rust
//! ([`run`]), as a thin translation: all that a superstep puts, gets and sends is gathered
//! until its end, one [log](log) for each destination, and leaves as [messages](wire)
//! whose arrival is the barrier. `docs/bsp.md` describes the interface.

mod areas;
mod c;
mod check;
mod direct;
mod exchange;
mod failure;
mod head;
mod heads;
mod log;
mod measured;
#[cfg(test)]
mod model;
mod numbers;
mod process;
mod profile;
mod program;
mod queue;
mod sole;
mod source;
mod spare;
mod tcp;
mod wire;

pub use program::{Area, Bsp, Plain, nprocs, run};
