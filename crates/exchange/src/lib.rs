//! Matched messages and one-sided memory over reliable messages, as a pure state machine:
//! matching, pushes, pulls, credit, completion; regions, puts, gets, atomic operations. It reads
//! no clock and no socket and calls nothing back: its caller gets tasks by
//! [`Exchange::poll_task`], executes them, and reports each outcome by [`Exchange::did`].
//!
//! A sender pushes a message whole if it is short and the receiver has granted room for it. Of a
//! longer one it pushes the first bytes with an offer. Once a receive has matched, the receiver
//! pulls the rest straight into its destination, at its own pace (Push-Pull Messaging, sections
//! 2.1 to 2.4). Between processes of one host the receiver copies the rest at once out of the
//! sender's memory (cross-space zero buffer, section 2.2); if the sender waits, each side copies
//! one half.
//!
//! Messages that arrive before their receive are kept, within a budget: each sender has credit for
//! a number of pushed bytes here that no receive has asked for, reported as absolute counts.
//! Beyond it offers carry no bytes. So nothing is lost, and memory is bounded by that budget and
//! by the number of offers.
//!
//! Every access to one-sided memory is checked before anything is touched: key, rights, bounds; by
//! its target, or by a caller that accesses the memory directly. Gets are requested in parts by
//! the schedule of pulls. Accesses in flight keep their region from being deregistered, and are
//! bounded for each initiator.
//!
//! # Who calls what, and when
//!
//! - **Calls of the program.** [`Exchange::post_send`], [`Exchange::post_receive`],
//!   [`Exchange::put`], [`Exchange::get`] and their like begin an operation and return its number;
//!   [`Exchange::register`] lends memory to others; [`Exchange::post_inline`] is the fast path of
//!   a receive that its caller waits for.
//! - **Arriving messages.** [`Exchange::arrive`] takes the first part of a message. If it returns
//!   [`IncomingOutcome::Part`], the other bytes go where [`Exchange::room`] says, or by
//!   [`Exchange::write_part`], and [`Exchange::arrived`] ends it. After
//!   [`IncomingOutcome::NotNow`] the message is offered again once [`Exchange::take_freed`] returns true.
//! - **Reports.** [`Exchange::peer_died`] and [`Exchange::peer_back`] report the fate of a rank,
//!   [`Exchange::set_lane`] how it is reached, [`Exchange::set_port`] which ports signals may
//!   name.
//! - **Tasks.** After each of these calls [`Exchange::poll_task`] is called until it returns
//!   `None`, and [`Exchange::did`] after each [`Task`]. Tasks that found no room are tried again
//!   after [`Exchange::resume`], as long as [`Exchange::has_backlog`] is true.
//!   [`Exchange::released`] reports that memory lent to a message is not read any more.
//! - **Completions.** [`Exchange::is_done`], [`Exchange::take`] and [`Exchange::finish`] report
//!   how an operation has ended, [`Exchange::next_of`] takes from a queue, [`Exchange::count`]
//!   reads a counter. [`Exchange::poll_awaited`] names ranks that are to be asked for a sign of
//!   life should they fall silent. [`Exchange::next_unready`] names memory to be prepared once the
//!   requests for it have left.
//! - **The end.** [`Exchange::close`] ends what it can, and peers are informed by
//!   [`Exchange::peer_left`]; [`Exchange::is_left`] reports when all has ended. When the endpoint
//!   ends, [`Exchange::end_all`] ends every operation.
//!
//! Several exchanges of an endpoint share one schedule of pulls: before a call that may request
//! bytes, [`Exchange::swap_pulls`] passes it to the exchange that is called, and
//! [`Exchange::next_turn`] returns whose turn is next.
//!
//! # Where things are
//!
//! | folder | holds |
//! | --- | --- |
//! | `values` | kinds of messages; memory as a trait; names, errors and ends of operations; tasks |
//! | `state` | operations, messages, pending tasks, credit, regions, the schedule of pulls |
//! | `exchange` | [`Exchange`] over all of it, a file for each part of the work |
//!
//! In `exchange`: `send`, `receive` and `inline` are the program's calls on messages; `arrive`
//! takes messages from other ranks; `pull` requests more of them, `handover` before a receive
//! asks; `share` is what both sides copy; `onesided` and `answers` are accesses to others' memory,
//! `serve` others' accesses, `regions` the memory that they may reach; `task` returns tasks to the
//! caller; `completions` reports how operations ended, `end` handles deaths and cancels.
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
    DeregisterRefused, Did, Incoming, IncomingOutcome, KINDS, Kind, Lane, LaneTerms, Located,
    Memory, MessageId, Notify, OpError, OpId, Opened, Outgoing, PUSHED_MIN, Payload, Place, Probed,
    Push, PutEnd, PutOptions, QueueId, Range, RegionId, RegisterRefused, RemoteKey, Rights, Salt,
    Signal, Sink, Source, Stream, Task, Where,
};
