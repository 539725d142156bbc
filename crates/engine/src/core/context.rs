//! What a handler may do.

use portolan_exchange::{Notify, OpId};
use portolan_proto::Release;
use portolan_wire::{MessageNo, Priority};

use super::CoreState;
use super::ports::Binding;
use crate::matched::{Gather, Lend};
use crate::values::{Buffer, Misuse, PortId, SendError, SendOptions, SpaceId};

/// The endpoint as its handlers see it. Nothing here blocks.
pub struct Context<'a> {
    core: &'a mut CoreState,
    on: &'a mut (dyn Lend + 'a),
    from: u32,
    port: u16,
    flow: u16,
}

impl<'a> Context<'a> {
    #[inline(always)]
    pub(super) fn new(
        core: &'a mut CoreState,
        on: &'a mut (impl Lend + 'a),
        from: u32,
        (port, flow): (u16, u16),
    ) -> Self {
        Self {
            core,
            on,
            from,
            port,
            flow,
        }
    }

    /// Makes one for a handler that runs without a message.
    pub(super) fn of_port(
        core: &'a mut CoreState,
        on: &'a mut (impl Lend + 'a),
        port: PortId,
    ) -> Self {
        let (rank, flow) = (core.rank, port.space.first_flow());
        Self::new(core, on, rank, (port.number, flow))
    }

    /// This process's rank.
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.core.rank
    }

    /// Returns the number of ranks in the job.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        // Outside of a job there is only this process.
        if self.core.standalone() {
            1
        } else {
            self.core.size
        }
    }

    /// Returns how often a rank was restarted, as `restarts` of the endpoint.
    ///
    /// # Errors
    /// [`Misuse::BadRank`].
    pub fn restarts(&self, rank: u32) -> Result<u32, Misuse> {
        self.core.restarts(rank)
    }

    /// Answers the sender at the port that its message came to, with reply priority and in its
    /// flow. Without credit the answer is kept and sent later.
    ///
    /// # Errors
    /// [`SendError::PeerDead`]; [`SendError::NoCredit`] when a single handler has sent more
    /// than the memory for such answers holds.
    #[inline]
    pub fn reply(&mut self, args: &[u64], payload: &[u8]) -> Result<(), SendError> {
        let port = self.port;
        self.reply_to(port, args, payload)
    }

    /// As [`Context::reply`], to another port of the sender.
    ///
    /// # Errors
    /// As [`Context::reply`].
    #[inline]
    pub fn reply_to(&mut self, port: u16, args: &[u64], payload: &[u8]) -> Result<(), SendError> {
        let options = SendOptions {
            flow: self.flow,
            priority: Priority::Reply,
            args,
            notify: Notify::NONE,
        };
        self.core
            .send_or_keep(&mut self.on.lend().out, self.from, port, &options, payload)
    }

    /// Returns the space that the handler is in.
    #[inline(always)]
    const fn space(&self) -> SpaceId {
        SpaceId::of_flow(self.flow)
    }

    const fn port(&self, number: u16) -> PortId {
        let space = self.space();
        PortId { space, number }
    }

    /// Sends a request in flow 0 if there is credit.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn send(&mut self, rank: u32, port: u16, payload: &[u8]) -> Result<MessageNo, SendError> {
        self.send_with(rank, port, &SendOptions::PLAIN, payload)
    }

    /// Sends if there is credit.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn send_with(
        &mut self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        let options = options.within(self.space())?;
        (self.core).send(&mut self.on.lend().out, rank, port, &options, payload)
    }

    /// Sends without a copy if there is credit; the memory comes back with the
    /// operation, as from `post_message` of the endpoint.
    ///
    /// # Errors
    /// [`SendError`], with the memory; nothing was queued.
    pub fn post_message(
        &mut self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: impl Into<Gather>,
    ) -> Result<OpId, (SendError, Gather)> {
        let (payload, to) = (payload.into(), (rank, self.port(port)));
        let Ok(options) = options.within(self.space()) else {
            return Err((Misuse::BadFlow.into(), payload));
        };
        let (on, release) = (&mut self.on.lend(), Release::Acknowledged);
        let posted = (self.core).post_message(on, to, &options, payload, release)?;
        Ok(posted.0)
    }

    /// Binds a port, as `bind` of the endpoint.
    ///
    /// # Errors
    /// [`Misuse::ReservedPort`].
    pub fn bind(&mut self, port: u16, binding: Binding) -> Result<(), Misuse> {
        self.core.bind(self.port(port), binding)
    }

    /// Replaces a port's buffer, or removes it, from the next message on. Returns the old one.
    /// If that holds the present message, `take_buffer` of the endpoint returns it after the
    /// handler.
    pub fn set_buffer(&mut self, port: u16, buffer: Option<Buffer>) -> Option<Buffer> {
        self.core.set_buffer(self.port(port), buffer)
    }

    /// Resumes a paused port, as `resume_port` of the endpoint.
    pub fn resume_port(&mut self, port: u16) {
        self.core.resume_port(self.port(port));
    }

    /// Closes a port: messages that wait there, and further ones, are refused.
    ///
    /// # Errors
    /// [`Misuse::ReservedPort`].
    pub fn close_port(&mut self, port: u16) -> Result<(), Misuse> {
        let port = self.port(port);
        self.core.close_port(&mut self.on.lend().out, port)
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("rank", &self.core.rank)
            .finish_non_exhaustive()
    }
}
