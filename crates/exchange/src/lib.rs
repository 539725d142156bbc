//! Matched messages and one-sided memory over reliable messages, as a pure
//! state machine: matching, pushes, pulls, credit, completion; regions, puts,
//! gets, atomic operations. It reads no clock and no socket and calls nobody: what it
//! wants to be done its caller gets by [`Exchange::poll_task`], does, and says what came
//! of it by [`Exchange::did`].
//!
//! A sender pushes a message whole where it is short and the receiver has
//! granted room for it. Of a longer one it pushes the first bytes with an
//! offer, and the receiver, once a receive has matched, pulls the rest straight
//! into its destination, at its own pace (Push-Pull Messaging, sections 2.1 to
//! 2.4). Between processes of one host the receiver copies the rest at once out
//! of the sender's memory (cross-space zero buffer, section 2.2); where the
//! sender waits each side copies one half.
//!
//! What comes before its receive is kept, within a budget: each sender may have
//! so many pushed bytes here that nobody has asked for; it is told by absolute
//! counts. Beyond it offers carry no bytes. So nothing is lost, and memory is
//! bounded by that budget and by the number of offers.
//!
//! Of one-sided memory every access is checked before anything is touched: key,
//! rights, bounds; by its target, or by a caller that reaches there itself. Gets are
//! asked for in parts by the schedule of pulls. What is under way towards a region keeps it from going, and is
//! bounded for each initiator.
//!
//! Where things are: `kind` the messages; `task` what the caller does; `outbox` what
//! waits for that; `lanes`, `memory` what the caller says and gives; `ops` what the
//! program has asked for, `completions` how it ended; `send`, `receive` its calls,
//! `inline` a receive that is waited for; `arrive` what comes from others; `pull` who is
//! asked next; `share` what both sides copy; `credit` who may push; `end` deaths and
//! cancels; `regions` what others may access; `remote`, `onesided`, `answers` accesses to
//! others' memory, `serve` others' accesses.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod exchange;
mod state;
mod values;

pub use exchange::{
    Config, Exchange, InlineReceive, SHARE_MIN, SendOptions, SendRefused, Statistics,
};
pub use portolan_matching::Selector;
pub use values::{
    Action, Completion, Count, CounterId, DeregisterError, Did, Incoming, KINDS, Kind, Lane,
    LaneTerms, Located, Memory, MessageId, Notify, OpError, OpId, Opened, Outgoing, PUSHED_MIN,
    Payload, Place, Probed, Push, PutEnd, PutOptions, QueueId, Range, RegionId, RegisterError,
    RemoteKey, Rights, Signal, Sink, Source, Task, Took, Where,
};
