//! Messages between the processes of a parallel job, on one host or many.
//!
//! [`Endpoint::open`] joins the job that `portolan run` started this process
//! in, or another launcher that offers PMI (mpiexec.hydra, srun). Messages go to a rank's numbered ports; what happens there is said by a
//! [`Binding`]: a handler that runs on the message in place, a buffer that it
//! lands in, or both. `docs/native.md` tells the rest.
//!
//! ```no_run
//! use portolan::{Binding, Config, Endpoint};
//!
//! let ep = Endpoint::open(Config::default())?;
//! ep.bind(1, Binding::to(|ctx, m| {
//!     println!("{} heard {:?} from {}", ctx.rank(), m.payload, m.from);
//! }))?;
//! ep.barrier()?;
//! ep.send((ep.rank() + 1) % ep.size(), 1, b"ahoy")?;
//! ep.barrier()?;
//! ep.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
mod interfaces;
mod logging;
mod open;
mod settings;
pub mod tuned;

/// For interfaces in C that are built on this one: they keep the rules of
/// `portolan.h` on panics and errors.
#[doc(hidden)]
pub mod c_edge {
    pub use crate::c::error::*;
    pub use crate::c::{edge, slice, store, store_text};
}

#[doc(hidden)]
pub use environment::{check_environment, check_variable};
pub use guest::SecretFileError;
#[doc(hidden)]
pub use interfaces::{Chosen as Network, check as check_networks, chosen as networks};
pub use logging::begin_log;
pub use open::{Config, Endpoint, OpenError};
pub use portolan_engine::{
    ARGS_MAX, Action, Arrival, Binding, Buffer, CALLS, Completion, Context, Count, CounterId,
    Counters, Death, DeregisterError, Ended, ErrorHandler, Event, FLOWS_MAX, Failure, Gather,
    Group, Handler, MatchError, Memory, Message, MessageId, MessageNo, Misuse, Notify, Op, OpError,
    OpId, PORTS_RESERVED, PUSHED_MIN, Payload, Place, Priority, Probed, Push, PutEnd, PutOptions,
    QueueId, RegionId, RegisterError, RemoteKey, Rights, Scatter, Selector, SendError, SendOptions,
    Signal, Statistics, TaggedOptions, Threads, WaitError,
};
pub use settings::{Origin, SETTINGS, Setting, SettingError, Settings};
