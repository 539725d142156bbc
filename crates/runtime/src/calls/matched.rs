//! The program's calls on matched messages and on others' memory.

mod completion;
mod queues;
mod remote;
mod tagged;

pub use self::completion::Ended;
