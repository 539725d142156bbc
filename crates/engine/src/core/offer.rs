//! Copies long messages out of their sender's memory.

use super::{Arrival, ArrivalOutcome, Core};
use crate::matched::Onward;
use crate::outbound::Outbound;
use crate::outbound::frame::{DONE, control};
use crate::values::Death;
use crate::waiting::Offer;

/// Bytes copied at once out of a sender's memory.
const PIECE: u64 = 1 << 20;

impl Offer {
    /// Tells the sender that the message is refused.
    pub fn refuse(&self, out: &mut Outbound<'_>) {
        (out.near()).send_control(self.from, control(DONE, 1, self.id));
    }

    /// Acts on the core's answer: copies the message if it was taken, and tells the sender.
    pub fn answer(
        &self,
        core: &mut Core,
        on: &mut Onward<'_>,
        a: &Arrival<'_>,
        took: ArrivalOutcome,
    ) {
        let Self { from, remote, id } = *self;
        let cookie = match took {
            ArrivalOutcome::NotNow => return,
            ArrivalOutcome::Refused => return self.refuse(&mut on.out),
            ArrivalOutcome::Whole => return on.out.near().send_control(from, control(DONE, 0, id)),
            ArrivalOutcome::Part(cookie) => cookie,
        };
        // In pieces: bytes that go to several places, or nowhere, are assembled in a buffer
        // first.
        let wanted = core.wanted(cookie, a.total);
        let mut at = 0;
        while at < wanted {
            let bytes = (wanted - at).min(PIECE);
            let copied = (remote.checked_add(at)).and_then(|remote| {
                core.place(on.matched, cookie, at, bytes as usize, |into| {
                    on.out.near().copy_from(from, remote, into)
                })
            });
            if !matches!(copied, Some(Ok(()))) {
                break;
            }
            at += bytes;
        }
        if at == wanted {
            on.out.near().send_control(from, control(DONE, 0, id));
            core.finish(on, cookie);
        } else {
            // The sender closed or died, or lent us memory that it does not have.
            core.suspect(a.meta.from, Death::Ended);
        }
    }
}
