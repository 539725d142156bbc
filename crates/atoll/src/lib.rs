//! ATOLL's interface in C (`include/atoll.h`), as a thin translation: host
//! ports are ranks, messages are matched messages, put and get are one-sided
//! accesses. `docs/atoll.md` tells what stands for the hardware.

mod c;
mod errors;
mod lookup;
mod memory;
mod messages;
mod port;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a panic has left is whole: each lock's data is changed in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
