//! What a timeline is told.

use portolan_wire::MessageNo;

use crate::values::{Meta, SendOptions};

/// Records when messages leave and when their handlers run.
pub trait Tracer: Send {
    /// A message is to be sent: nobody handles it before this.
    fn sends(&mut self);

    /// It was accepted; `helper`: in the helper thread.
    fn sent(
        &mut self,
        to: u32,
        port: u16,
        o: &SendOptions<'_>,
        number: MessageNo,
        bytes: usize,
        helper: bool,
    );

    /// Returns the time, to be given to [`Tracer::handled`].
    fn time(&self) -> u64;

    /// A message's handler has run since `began`, or the message was put in a buffer.
    fn handled(&mut self, meta: &Meta, bytes: usize, began: u64, helper: bool);

    /// A wait has found nothing to do.
    fn waits(&mut self);

    /// A wait is over: the number of its call, and for which rank it was.
    fn waited(&mut self, call: u32, rank: u32);

    /// The program goes to sleep.
    fn note_sleep(&mut self);
}
