//! Reliable messages between the processes of a parallel job, on one host or
//! many.
//!
//! # Opening
//!
//! [`Endpoint::open`] joins the job in which `portolan run` started this process,
//! or another launcher that offers PMI or PMIx (mpiexec.hydra, mpirun, srun). A
//! process that no launcher started is a job of one rank. A *rank* is a process's
//! number in its job. [`Endpoint::open_standalone`] needs no job: peers are added by
//! their addresses. [`Config::set`] sets a setting; [`SETTINGS`] lists all of them.
//!
//! # Messages to ports
//!
//! A message goes to a numbered port of a rank. A [`Binding`] defines what happens
//! there: a handler that runs on the message in place, a buffer that the message
//! is written to, or both.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
//!
//! use portolan::{Binding, Config, Endpoint};
//!
//! let ep = Endpoint::open(Config::default())?;
//! let heard = Arc::new(AtomicBool::new(false));
//! let seen = Arc::clone(&heard);
//! ep.bind(1, Binding::to(move |ctx, m| {
//!     println!("{} heard {:?} from {}", ctx.rank(), m.payload, m.from);
//!     seen.store(true, Relaxed);
//! }))?;
//! ep.barrier()?;
//! ep.send((ep.rank() + 1) % ep.size(), 1, b"ahoy")?;
//! // A message that was not handled by then is dropped when the endpoint closes.
//! ep.wait_until(|| heard.load(Relaxed))?;
//! ep.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Matched messages
//!
//! Tag-matched send and receive, as in MPI: a receive with a [`Selector`] takes
//! the first message whose sender and tag fit. `docs/matched.md` describes them.
//!
//! ```no_run
//! use portolan::{Config, Endpoint, Selector};
//!
//! let ep = Endpoint::open(Config::default())?;
//! let last = ep.size() - 1;
//! if ep.rank() == 0 {
//!     ep.send_tagged(last, 7, b"ahoy")?;
//! }
//! if ep.rank() == last {
//!     let mut memory = [0; 16];
//!     let done = ep.receive_tagged(&Selector::any(7), &mut memory)?;
//!     println!("{:?} from {}", &memory[..done.bytes as usize], done.peer);
//! }
//! ep.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # One-sided memory
//!
//! Put, get and atomic operations on memory that another rank has registered. The
//! target's program makes no call for them. `docs/onesided.md` describes them.
//!
//! # Where to find what
//!
//! [`Endpoint`] dereferences to [`portolan_runtime::Space`], which has most
//! methods:
//!
//! | to do | methods |
//! | --- | --- |
//! | bind ports | [`bind`](portolan_runtime::Space::bind), [`close_port`](portolan_runtime::Space::close_port), [`set_buffer`](portolan_runtime::Space::set_buffer) |
//! | send | [`send`](portolan_runtime::Space::send), [`try_send`](portolan_runtime::Space::try_send), [`post_message`](portolan_runtime::Space::post_message), [`broadcast`](portolan_runtime::Space::broadcast) |
//! | make progress and wait | [`progress`](portolan_runtime::Space::progress), [`wait_until`](portolan_runtime::Space::wait_until), [`barrier`](portolan_runtime::Space::barrier) |
//! | use an event loop | [`fd`](portolan_runtime::Space::fd), [`arm`](portolan_runtime::Space::arm), [`arrival`](portolan_runtime::Space::arrival), [`ended`](portolan_runtime::Space::ended) |
//! | send and receive by tag | [`send_tagged`](portolan_runtime::Space::send_tagged), [`receive_tagged`](portolan_runtime::Space::receive_tagged), [`post_send`](portolan_runtime::Space::post_send), [`post_receive`](portolan_runtime::Space::post_receive) |
//! | access memory of other ranks | [`register`](portolan_runtime::Space::register), [`post_put`](portolan_runtime::Space::post_put), [`post_get`](portolan_runtime::Space::post_get) |
//! | close | [`close`](portolan_runtime::Space::close) |
//! | do without a launcher | [`Endpoint::open_standalone`], [`Endpoint::address`], [`Endpoint::add_peer`], [`remove_peer`](portolan_runtime::Space::remove_peer) |
//!
//! Handlers use a [`Context`] instead of the endpoint. [`OpenError`] says why nothing was
//! opened. The errors of all other calls are one family, which [`WaitError`] describes.
//!
//! Errors, events and structures that are only read ([`Completion`], [`Counters`],
//! ...) may grow: a `match` on them has an arm `_`. Options may grow too: end them
//! with `..SendOptions::default()`.
//!
//! `docs/native.md` describes the rest: edge cases, the helper thread, and the
//! interface in C.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/native.md")]
mod native_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/matched.md")]
mod matched_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/onesided.md")]
mod onesided_page {}

mod c;
mod configure;
mod environment;
mod guest;
mod host_port;
mod interfaces;
mod logging;
mod open;
mod settings;
mod shared;
mod standalone;
pub mod tuned;
mod user_path;

/// For C interfaces that are built on this one. They follow the rules of
/// `portolan.h` for panics and errors.
#[doc(hidden)]
pub mod c_edge {
    pub use crate::c::error::*;
    pub use crate::c::pieces::{Piece, gather, scatter};
    pub use crate::c::{edge, failure, slice, store, store_text};
    pub use portolan_sys::environment::var_os;
    pub use portolan_sys::tell::tell;
}

#[doc(hidden)]
pub use environment::{check_environment, check_variable};
pub use guest::SecretFileError;
#[doc(hidden)]
pub use interfaces::{
    Chosen as Network, Told, check as check_networks, chosen as networks, told as own_address,
};
pub use logging::begin_log;
pub use open::{Config, Endpoint, OpenError};
#[doc(hidden)]
pub use portolan_runtime::copy_beyond;
pub use portolan_runtime::{
    ADDRESS_BYTES, ARGS_MAX, ATOMIC_BYTES, Action, AddPeerError, Admission, Arrival, Atomic,
    AtomicOp, AtomicType, Binding, Buffer, CALLS, Completion, Context, Count, CounterId, Counters,
    Death, DeregisterError, Doorbell, Ended, ErrorHandler, Event, FLOWS_MAX, Failure, Gather,
    Group, Handler, MESSAGE_BYTES_MAX, Memory, Message, MessageId, MessageNo, Misuse, Notify,
    OpError, OpId, Operation, PORTS_RESERVED, PUSHED_MIN, Payload, Place, Placement, Placing,
    Priority, Probed, Push, PutEnd, PutOptions, QueueId, RegionId, RegisterError, RemoteKey,
    Rights, Salt, Scatter, Selector, SendError, SendOptions, Signal, SpaceId, Statistics,
    TaggedOptions, Threads, WaitError,
};
pub use settings::{Origin, SETTINGS, Setting, SettingError, Settings};
#[doc(hidden)]
pub use standalone::{address_at, place_of, standalone_addresses};
pub use user_path::user_path;
