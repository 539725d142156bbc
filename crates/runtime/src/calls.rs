//! The program's calls. Here: ports, messages to them, and queries.

mod collect;
mod future;
mod matched;
mod peers;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use portolan_engine::{
    Binding, Buffer, Counters, Death, ErrorHandler, Event, FLOWS_MAX, Gather, Misuse, NetLane,
    PortId, SendError, SendOptions, SpaceId, WaitError,
};
use portolan_exchange::{OpError, OpId};
use portolan_link::xdp::Xdp;
use portolan_proto::Release;
use portolan_sys::doorbell::Doorbell;
use portolan_wire::MessageNo;

pub use self::future::{Arrival, Operation};
pub use self::matched::Ended;
pub use self::peers::AddPeerError;
use crate::network::First;
use crate::sleep::{Call, Waiting};
use crate::space::{Guard, Space};

impl Space {
    /// Returns the id of a port of this space.
    const fn port(&self, number: u16) -> PortId {
        PortId {
            space: self.id,
            number,
        }
    }

    /// Binds a port, also one that is bound or closed. Messages that wait for it are delivered in
    /// the next call that makes progress.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn bind(&self, port: u16, binding: Binding) -> Result<(), Misuse> {
        self.enter()?.core.bind(self.port(port), binding)
    }

    /// Resumes a port that has paused ([`crate::Placement::Later`]): the next call that makes
    /// progress offers its waiting messages again. Any other port is left unchanged.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn resume_port(&self, port: u16) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        s.core.resume_port(self.port(port));
        s.end();
        Ok(())
    }

    /// Closes a port: messages that wait there, and further ones, are refused, and their senders
    /// are notified.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn close_port(&self, port: u16) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        let (core, mut out) = s.split();
        let closed = core.close_port(&mut out, self.port(port));
        s.flush();
        s.end();
        closed
    }

    /// Replaces or removes a port's buffer. Returns the old one, unless a message is in it:
    /// [`Space::take_buffer`] returns that one later.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_buffer(&self, port: u16, buffer: Option<Buffer>) -> Result<Option<Buffer>, Misuse> {
        Ok(self.enter()?.core.set_buffer(self.port(port), buffer))
    }

    /// Returns a buffer of the port that was replaced while a message was in it, with that
    /// message's length; the oldest first.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn take_buffer(&self, port: u16) -> Result<Option<(Buffer, usize)>, Misuse> {
        Ok(self.enter()?.core.take_buffer(self.port(port)))
    }

    /// Returns the number of messages that have arrived at a port since it was bound.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn arrived(&self, port: u16) -> Result<u64, Misuse> {
        Ok(self
            .enter()?
            .core
            .ports
            .get(self.port(port))
            .map_or(0, |slot| slot.arrived))
    }

    /// Sets the error callback, which is called for refused messages and dead peers.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn on_error(
        &self,
        handler: impl FnMut(&mut crate::Context<'_>, &Event) + Send + 'static,
    ) -> Result<(), Misuse> {
        let handler: ErrorHandler = Box::new(handler);
        let mut s = self.enter()?;
        if let Some(space) = s.core.space(self.id) {
            space.error_handler = Some(handler);
        }
        Ok(())
    }

    /// Sends a request in flow 0, if there is credit. The bytes are copied: the slice is yours
    /// again on return. Runs no handler.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn try_send(&self, rank: u32, port: u16, payload: &[u8]) -> Result<MessageNo, SendError> {
        self.try_send_with(rank, port, &SendOptions::PLAIN, payload)
    }

    /// Whether the options' flow is used as it is: a valid one, in the program's own space.
    #[inline(always)]
    fn is_own(&self, options: &SendOptions<'_>) -> bool {
        self.id == SpaceId::PROGRAM && options.flow < FLOWS_MAX
    }

    /// As [`Space::try_send`], with options.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn try_send_with(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        self.send_by::<false>(rank, port, options, payload)
    }

    /// Sends a request in flow 0. Waits for credit and, if the message is long, until its last byte
    /// is on its way; meanwhile it makes progress and runs handlers.
    ///
    /// # Errors
    /// [`SendError`], never [`SendError::NoCredit`].
    #[inline]
    pub fn send(&self, rank: u32, port: u16, payload: &[u8]) -> Result<MessageNo, SendError> {
        self.send_with(rank, port, &SendOptions::PLAIN, payload)
    }

    /// As [`Space::send`], with options.
    ///
    /// # Errors
    /// As [`Space::send`].
    #[inline]
    pub fn send_with(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        self.send_by::<true>(rank, port, options, payload)
    }

    /// `WAITS`: for credit, and until a long message is on its way.
    #[inline(always)]
    fn send_by<const WAITS: bool>(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        if self.is_own(options) {
            return self.send_in::<true, WAITS>(rank, port, options, payload);
        }
        self.send_in_other::<WAITS>(rank, port, options, payload)
    }

    /// Sends in other spaces, out of line: the program's own messages stay fast.
    #[inline(never)]
    fn send_in_other<const WAITS: bool>(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        self.send_in::<false, WAITS>(rank, port, &options.within(self.id)?, payload)
    }

    /// `OWN`: see [`Space::is_own`].
    #[inline(always)]
    fn send_in<const OWN: bool, const WAITS: bool>(
        &self,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        let mut s = self.enter()?;
        if OWN && let Some(number) = s.send_short(rank, port, o, payload) {
            return Ok(number);
        }
        match s.send_now::<OWN>(rank, port, o, payload) {
            Some(sent) if !WAITS || sent.is_ok() => {
                if s.io.net.is_some() {
                    s.end();
                }
                return sent;
            }
            _ => {}
        }
        let (core, mut out) = s.split();
        if !WAITS || core.is_inline(&mut out, rank, o.args.len(), payload.len()) {
            let sent = s.try_send(rank, port, o, payload);
            if !WAITS || sent != Err(SendError::NoCredit) {
                s.end();
                return sent;
            }
        }
        self.send_waiting(s, rank, port, o, payload)
    }

    #[cold]
    fn send_waiting(
        &self,
        s: Guard<'_>,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        let mut op = None;
        let wait = self.wait_loop(s, None, false, Waiting::of(Call::Send, rank), |s| {
            if let Some((op, number)) = op {
                let ended = s.exchange(self.id).finish(op)?;
                return Some(Ok((number, ended.result)));
            }
            let (core, mut out) = s.split();
            if core.is_inline(&mut out, rank, options.args.len(), payload.len()) {
                return match s.try_send(rank, port, options, payload) {
                    Err(SendError::NoCredit) => None,
                    sent => Some(sent.map(|number| (number, Ok(())))),
                };
            }
            // SAFETY: the operation has ended, and with it every use of this memory, before
            // this function returns or unwinds: the wait ends with its end only, and a
            // handler's panic waits for that as well.
            let lent = unsafe { Gather::lent(payload.as_ptr(), payload.len()) };
            let posted = s.post_message((rank, self.port(port)), options, lent, Release::Copied);
            match posted {
                Ok(begun) => op = Some(begun),
                Err((SendError::NoCredit, _)) => {}
                Err((e, _)) => return Some(Err(e)),
            }
            None
        });
        let (number, result) = match wait {
            Ok(ended) => ended?,
            // Without a deadline only misuse is left.
            Err(WaitError::Misuse(m)) => return Err(m.into()),
            Err(_) => return Err(Misuse::Closed.into()),
        };
        match result {
            Ok(()) => Ok(number),
            Err(OpError::Refused) => {
                let SendOptions { priority, flow, .. } = *options;
                (self.enter()?.core).tell_refused(rank, priority, flow, number);
                Ok(number)
            }
            Err(OpError::PeerDead) => {
                let why = self.enter()?.death(rank, self.id);
                let why = why.unwrap_or(Death::Silent);
                Err(SendError::PeerDead { rank, why })
            }
            Err(_) => Err(Misuse::Closed.into()),
        }
    }

    /// Starts to send a message without a copy, if there is credit. Its memory belongs to the
    /// operation until that ends, when the receiver has all of it. A message that fits one packet
    /// is copied, and its operation has ended on return. If the message is refused, the operation
    /// ends with [`OpError::Refused`].
    ///
    /// # Errors
    /// [`SendError`] with the memory; nothing was queued.
    pub fn post_message(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        from: impl Into<Gather>,
    ) -> Result<OpId, (SendError, Gather)> {
        let from = from.into();
        let options = match options.within(self.id) {
            Ok(options) => options,
            Err(m) => return Err((m.into(), from)),
        };
        let mut s = match self.enter() {
            Ok(s) => s,
            Err(m) => return Err((m.into(), from)),
        };
        let to = (rank, self.port(port));
        let posted = s.post_message(to, &options, from, Release::Acknowledged);
        s.end();
        Ok(posted?.0)
    }

    /// Descriptor for other event loops, readable when there is progress to make. Call
    /// [`Space::arm`] before waiting on it. The first call creates it, with two descriptors behind
    /// it.
    ///
    /// # Errors
    /// No descriptor is left (`EMFILE`, `ENFILE`), or no memory for one.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.inner.wait_set.fd()
    }

    /// Declares that the program will wait on [`Space::fd`]. Returns false if there is something to
    /// do first: call [`Space::progress`] instead of waiting.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn arm(&self) -> Result<bool, Misuse> {
        let Some(bell) = self.inner.wait_set.outer_bell() else {
            return Ok(false);
        };
        bell.clear();
        self.arm_with(bell)
    }

    /// As [`Space::arm`], for one of several waiters on [`Space::fd`], each with a bell of its own.
    /// `bell` rings when any thread has moved something. It stays readable until its owner clears
    /// it, which must happen before this call.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn arm_with(&self, bell: &Arc<Doorbell>) -> Result<bool, Misuse> {
        Ok(self.enter()?.arm(bell))
    }

    /// Returns counters: of messages for this space, of all else for the whole endpoint.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn counters(&self) -> Result<Counters, Misuse> {
        let mut s = self.enter()?;
        let mut counters = s.core.counters_of(self.id);
        counters.protocol = s.io.net.as_mut().map(NetLane::counters).unwrap_or_default();
        Ok(counters)
    }

    /// Returns the name of the link that carries messages to a rank (`self`, `shm`, `udp`, `xdp` or
    /// `dead`), and why it was chosen.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn lane(&self, rank: u32) -> Result<(&'static str, String), Misuse> {
        let s = self.enter()?;
        let (name, why) = s.core.lanes.describe(rank).ok_or(Misuse::BadRank)?;
        Ok((name, why.to_owned()))
    }

    /// Returns why a rank is dead, or done with this space ([`Death::Closed`]); `None` while it is
    /// neither.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn death(&self, rank: u32) -> Result<Option<Death>, Misuse> {
        let s = self.enter()?;
        s.core.lanes.get(rank).ok_or(Misuse::BadRank)?;
        Ok(s.death(rank, self.id))
    }

    /// Passes the host port, if there is one, to `act`, to measure it without the protocol. Packets
    /// that arrive meanwhile are lost to the endpoint.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn with_host_port<R>(&self, act: impl FnOnce(&mut Xdp) -> R) -> Result<Option<R>, Misuse> {
        let mut s = self.enter()?;
        Ok(s.io.net.as_mut().and_then(|net| match &mut net.link.first {
            First::Xdp(link) => Some(act(link)),
            First::Udp(_) => None,
        }))
    }

    /// Returns how often a rank was restarted (`portolan run --respawn`), as far as is known here;
    /// for this rank itself, how often it was before this life.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn restarts(&self, rank: u32) -> Result<u32, Misuse> {
        self.enter()?.core.restarts(rank)
    }

    /// Returns why the launcher is ending the job, if it is.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn ending(&self) -> Result<Option<String>, Misuse> {
        Ok(self.enter()?.ending.clone())
    }

    /// Reports to the endpoint that a rank's process has ended, if the program knows first.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn peer_died(&self, rank: u32) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        if rank == self.rank() || s.core.lanes.get(rank).is_none() {
            return Err(Misuse::BadRank);
        }
        s.ended(rank, Death::Ended);
        Ok(())
    }
}
