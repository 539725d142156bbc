//! What the program calls. Here: ports, messages to them, and what it may look at.

mod collect;
mod future;
mod matched;
mod peers;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use portolan_core::{
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
    /// A port of it.
    const fn port(&self, number: u16) -> PortId {
        PortId {
            space: self.id,
            number,
        }
    }

    /// Binds a port; if it is bound or closed, anew. Messages that wait for it
    /// are handed over in the next call that makes progress.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn bind(&self, port: u16, binding: Binding) -> Result<(), Misuse> {
        self.enter()?.core.bind(self.port(port), binding)
    }

    /// A port that has paused ([`crate::Placement::Later`]) goes on: what waits for it is
    /// offered again by the next call that makes progress. Any other is left as it is.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn resume_port(&self, port: u16) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        s.core.resume_port(self.port(port));
        s.end();
        Ok(())
    }

    /// Closes a port: messages that wait there, and further ones, are refused;
    /// their senders are told.
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

    /// Gives a port another buffer, or none; gives the old one back, unless a
    /// message is in it: that one comes by [`Space::take_buffer`] later.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_buffer(&self, port: u16, buffer: Option<Buffer>) -> Result<Option<Buffer>, Misuse> {
        Ok(self.enter()?.core.set_buffer(self.port(port), buffer))
    }

    /// A buffer of the port that was replaced while a message was in it, with
    /// that message's length; the oldest first.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn take_buffer(&self, port: u16) -> Result<Option<(Buffer, usize)>, Misuse> {
        Ok(self.enter()?.core.take_buffer(self.port(port)))
    }

    /// Messages that came to a port since it was bound.
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

    /// Sets what is told of refused messages and dead peers.
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

    /// Sends a request in flow 0, if there is credit. The bytes are copied:
    /// they are yours again on return. Runs no handler.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn try_send(&self, rank: u32, port: u16, payload: &[u8]) -> Result<MessageNo, SendError> {
        self.try_send_with(rank, port, &SendOptions::PLAIN, payload)
    }

    /// Whether options say the flow that a message travels in as they are.
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

    /// Sends a request in flow 0. Waits for credit where there is none, and of
    /// a long message until the last byte is on its way; meanwhile it makes
    /// progress and runs handlers.
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

    /// Out of the way of the program's own messages.
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
        match s.send_now::<OWN>(rank, port, o, payload) {
            Some(sent) if !WAITS || sent.is_ok() => return sent,
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

    /// Begins to send a message without a copy, if there is credit: its memory is the
    /// operation's until that ends, when the receiver has all of it (a message that fits one
    /// packet is copied, and has ended at once). A message that is refused ends it with
    /// [`OpError::Refused`].
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

    /// Readable when progress is to be made, for event loops of other kinds.
    /// Before waiting on it call [`Space::arm`]. It is made for the first who asks, with two
    /// descriptors behind it.
    ///
    /// # Errors
    /// No descriptor is left (`EMFILE`, `ENFILE`), or no memory for one.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.inner.wait_set.fd()
    }

    /// Declares that the program will wait on [`Space::fd`]. False if there
    /// is something to do first: call [`Space::progress`] instead of waiting.
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

    /// As [`Space::arm`], for one of several that wait on [`Space::fd`]: each has a bell of its
    /// own besides. It rings when something has been moved, by whichever thread, and stays so
    /// until its owner silences it, which is to be done before this call.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn arm_with(&self, bell: &Arc<Doorbell>) -> Result<bool, Misuse> {
        Ok(self.enter()?.arm(bell))
    }

    /// What has been done so far: messages of this space, and all else of the whole
    /// endpoint.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn counters(&self) -> Result<Counters, Misuse> {
        let mut s = self.enter()?;
        let mut counters = s.core.counters_of(self.id);
        counters.protocol = s.net.as_mut().map(NetLane::counters).unwrap_or_default();
        Ok(counters)
    }

    /// Name of the link that carries messages to a rank (`self`, `shm`, `udp`,
    /// `xdp` or `dead`), and why that one.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn lane(&self, rank: u32) -> Result<(&'static str, String), Misuse> {
        let s = self.enter()?;
        let (name, why) = s.core.lanes.describe(rank).ok_or(Misuse::BadRank)?;
        Ok((name, why.to_owned()))
    }

    /// Why a rank is dead, or done with this space ([`Death::Closed`]); `None` while it is
    /// neither.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn death(&self, rank: u32) -> Result<Option<Death>, Misuse> {
        let s = self.enter()?;
        s.core.lanes.get(rank).ok_or(Misuse::BadRank)?;
        Ok(s.death(rank, self.id))
    }

    /// Hands the host port, if there is one, to `act`, to measure what it can do
    /// without the protocol. What arrives meanwhile is lost to the endpoint, as
    /// on the network.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn with_host_port<R>(&self, act: impl FnOnce(&mut Xdp) -> R) -> Result<Option<R>, Misuse> {
        let mut s = self.enter()?;
        Ok(s.net.as_mut().and_then(|net| match &mut net.link.first {
            First::Xdp(link) => Some(act(link)),
            First::Udp(_) => None,
        }))
    }

    /// How often a rank was started again (`portolan run --respawn`), as far as
    /// this one has heard; of this rank itself, how often it was before.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn restarts(&self, rank: u32) -> Result<u32, Misuse> {
        self.enter()?.core.restarts(rank)
    }

    /// Why the launcher is ending the job, if it is.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn ending(&self) -> Result<Option<String>, Misuse> {
        Ok(self.enter()?.ending.clone())
    }

    /// Tells the endpoint that a rank's process has ended, where the program
    /// knows before the endpoint does.
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
