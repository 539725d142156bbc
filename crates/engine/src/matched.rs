//! The program's calls on matched messages and on others' memory.

mod calls;
mod completion;
mod queues;
mod remote;

pub use self::completion::{Ended, MatchError};
