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
//! asked for in parts by the schedule of pulls. What is under way towards a region keeps it
//! from going, and is bounded for each initiator.
//!
//! # Who calls what, and when
//!
//! - **What the program asks for.** [`Exchange::post_send`], [`Exchange::post_receive`],
//!   [`Exchange::put`], [`Exchange::get`] and their like begin an operation and give its
//!   number; [`Exchange::register`] lends memory to others; [`Exchange::post_inline`] is the
//!   short way of a receive that its caller waits for.
//! - **What arrives.** [`Exchange::arrive`] takes the first part of a message. Where it says
//!   [`Took::Part`], the other bytes go where [`Exchange::room`] says, or by
//!   [`Exchange::write_part`], and [`Exchange::arrived`] ends it. What was [`Took::NotNow`] is
//!   offered again once [`Exchange::take_freed`] says so.
//! - **What others tell.** [`Exchange::peer_died`] and [`Exchange::peer_back`] say what has
//!   become of a rank, [`Exchange::set_lane`] how it is reached, [`Exchange::set_port`] which
//!   ports signals may name.
//! - **What is to be done.** After each of these calls [`Exchange::poll_task`] is asked until
//!   it gives nothing, and [`Exchange::did`] is told after each [`Task`] what came of it.
//!   What found no room is tried again after [`Exchange::resume`], as long as
//!   [`Exchange::has_backlog`] says that something waits. Of memory that was read later than
//!   its message left, [`Exchange::released`] tells.
//! - **What comes out.** [`Exchange::is_done`], [`Exchange::take`] and
//!   [`Exchange::finish`] tell how an operation has ended, [`Exchange::next_of`] of a queue,
//!   [`Exchange::count`] of a counter. [`Exchange::poll_awaited`] names ranks that are to be
//!   asked for a sign of life should they fall silent. [`Exchange::next_unready`] names
//!   memory to be made ready once the requests about it have left.
//! - **The end.** [`Exchange::close`] ends what it can, and others hear of it by
//!   [`Exchange::peer_left`]; [`Exchange::is_left`] says when all has ended. Where the
//!   endpoint ends, [`Exchange::end_all`] ends every operation.
//!
//! Several exchanges of an endpoint share one schedule of pulls: before a call that may ask
//! for something, [`Exchange::swap_pulls`] gives it to the one that is called, and
//! [`Exchange::next_turn`] says whose turn is next.
//!
//! # Where things are
//!
//! | folder | holds |
//! | --- | --- |
//! | `values` | kinds of messages; memory as a trait; names, errors and ends of operations; tasks |
//! | `state` | what is kept: operations, messages, what is to be done, credit, regions, the schedule of pulls |
//! | `exchange` | [`Exchange`] over all of it, a file for each part of the work |
//!
//! In `exchange`: `send`, `receive` and `inline` are the program's calls on messages;
//! `arrive` takes what comes from others; `pull` asks for more; `share` is what both sides
//! copy; `onesided` and `answers` are accesses to others' memory, `serve` others' accesses,
//! `regions` what they may reach; `task` is what the caller does; `completions` how
//! operations ended, `end` deaths and cancels.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod exchange;
mod state;
mod values;

pub use exchange::{
    BYTES_MAX, Config, Exchange, InlineReceive, SHARE_MIN, SendOptions, SendRefused, Statistics,
};
pub use portolan_matching::Selector;
pub use values::{
    ATOMIC_BYTES, Action, Admission, Atomic, AtomicOp, AtomicType, Completion, Count, CounterId,
    DeregisterRefused, Did, Incoming, KINDS, Kind, Lane, LaneTerms, Located, Memory, MessageId,
    Notify, OpError, OpId, Opened, Outgoing, PUSHED_MIN, Payload, Place, Probed, Push, PutEnd,
    PutOptions, QueueId, Range, RegionId, RegisterRefused, RemoteKey, Rights, Salt, Signal, Sink,
    Source, Stream, Task, Took, Where,
};
