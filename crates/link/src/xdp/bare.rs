//! What a queue can do without a protocol: packets made once, sent and counted
//! as they are. For measuring.

use portolan_ring::Descriptor;

use super::Xdp;
use crate::{LinkAddress, RxFrame};

/// Packets that leave with one call.
const BATCH: u32 = 32;

/// A link, used barely. What else arrives meanwhile is lost.
#[derive(Debug)]
pub struct Bare<'a> {
    link: &'a mut Xdp,
    /// Bytes of a packet.
    len: u32,
}

impl<'a> Bare<'a> {
    /// Fills all free chunks with a packet to `to` that carries `payload`;
    /// `None` if it has to go through the kernel, or is too long.
    pub fn fill(link: &'a mut Xdp, to: &LinkAddress, payload: &[u8]) -> Option<Self> {
        link.reap();
        let headers = *link.ways.find(to, link.now)?;
        let chunk = link.chunk;
        let mut len = 0;
        for at in link.free.clone() {
            let packet = link.bytes(at, chunk)?;
            len = headers.write(packet, payload, false)?;
        }
        let len = u32::try_from(len).ok().filter(|len| *len > 0)?;
        Some(Self { link, len })
    }

    /// Goes on with packets of the length that [`Self::fill`] has made.
    pub fn resume(link: &'a mut Xdp, len: u32) -> Self {
        Self { link, len }
    }

    /// Bytes of a packet, with all headers.
    #[must_use]
    pub fn packet_len(&self) -> u32 {
        self.len
    }

    /// Puts a packet into the ring; false if there is no room. It leaves with
    /// others, or with the next [`Self::receive`].
    #[inline]
    pub fn send(&mut self) -> bool {
        let link = &mut *self.link;
        let Some(address) = link.chunk_to_send() else {
            self.flush();
            return false;
        };
        let len = self.len;
        let descriptor = Descriptor {
            address,
            len,
            options: 0,
        };
        if !link.tx.put(descriptor) {
            link.free.push(address);
            self.flush();
            return false;
        }
        link.tx.submit();
        link.owed = true;
        if link.tx.pending() >= BATCH {
            self.flush();
        }
        true
    }

    fn flush(&mut self) {
        if self.link.owed {
            self.link.kick();
        }
    }

    /// Lets leave what was sent, and shows the payload of each packet that has
    /// come.
    #[inline]
    pub fn receive(&mut self, mut sink: impl FnMut(&[u8])) {
        self.flush();
        // A broken ring shows nothing.
        let _ = self
            .link
            .receive_fast(usize::MAX, &mut |frame: RxFrame<'_>| sink(frame.bytes));
    }
}
