//! Interface to the recorder of a timeline.

use portolan_wire::MessageNo;

use crate::values::{Meta, SendOptions};

/// Records when messages leave and when their handlers run.
pub trait Tracer: Send {
    /// Records that a message is about to be sent: its handler cannot run before.
    fn sends(&mut self);

    /// Records that the message was accepted; `helper`: in the helper thread.
    fn sent(
        &mut self,
        to: u32,
        port: u16,
        o: &SendOptions<'_>,
        number: MessageNo,
        bytes: usize,
        helper: bool,
    );

    /// Returns the time, to be passed to [`Tracer::handled`].
    fn time(&self) -> u64;

    /// Records that a message's handler has run since `began`, or that it was put in a buffer.
    fn handled(&mut self, meta: &Meta, bytes: usize, began: u64, helper: bool);

    /// Records that a wait has found nothing to do.
    fn waits(&mut self);

    /// Records the end of a wait: the number of its call, and the rank it waited for.
    fn waited(&mut self, call: u32, rank: u32);

    /// Records that the program goes to sleep.
    fn note_sleep(&mut self);
}
