//! BSPlib (`include/bsp.h`), as a thin translation: all that a superstep puts, gets
//! and sends is gathered until its end, one [log](log) for each destination, and leaves
//! as [messages](wire) whose arrival is the barrier. `docs/bsp.md` describes
//! the interface.

mod areas;
mod c;
mod exchange;
mod failure;
mod head;
mod heads;
mod log;
#[cfg(test)]
mod model;
mod numbers;
mod process;
mod queue;
mod sole;
mod spare;
mod tcp;
mod wire;
