//! What a queue can do without a protocol: packets made once, sent and counted
//! as they are. For measuring.

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
        let headers = *link.routes.find(to, link.now)?;
        link.kick();
        let len = link.fast.as_mut()?.fill_all(&headers, payload, link.now)?;
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
        let Some(fast) = &mut link.fast else {
            return false;
        };
        let put = match fast.chunk_to_send(link.now) {
            Ok(Some(number)) => fast.put_again(number, self.len),
            _ => false,
        };
        if put {
            fast.submit();
        }
        if !put || fast.pending() >= BATCH {
            link.kick();
        }
        put
    }

    /// Lets leave what was sent, and shows the payload of each packet that has
    /// come.
    #[inline]
    pub fn receive(&mut self, mut sink: impl FnMut(&[u8])) {
        self.link.kick();
        self.link
            .receive_fast(usize::MAX, &mut |frame: RxFrame<'_>| sink(frame.bytes));
    }
}
