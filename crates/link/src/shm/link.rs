//! A port as a [`Link`]: all frames are requests.

use portolan_wire::Priority;

use super::port::ShmPort;
use super::send::ShmError;
use crate::{Capabilities, Link, LinkAddress, LinkError, RxFrame, TxFrame};

/// Errno of a broken mapping (`EIO`) and of a peer that is gone
/// (`ECONNRESET`) or never was (`EHOSTUNREACH`).
const EIO: i32 = 5;
const ECONNRESET: i32 = 104;
const EHOSTUNREACH: i32 = 113;

fn address(index: u16) -> LinkAddress {
    LinkAddress {
        port: index,
        ..LinkAddress::default()
    }
}

impl Link for ShmPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "shm",
            frame_max: self.frame_bytes_max(),
            headroom: 0,
            ordered: true,
            reliable: true,
            overhead_ns: 20,
            gap_ns: 50,
            latency_ns: 150,
        }
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        for (done, frame) in frames.iter().enumerate() {
            match self.reserve(frame.to.port, Priority::Request, frame.bytes.len()) {
                Ok(mut slot) => {
                    slot.bytes_mut().copy_from_slice(frame.bytes);
                    slot.commit();
                }
                Err(_) if done > 0 => return Ok(done),
                Err(ShmError::Full) => return Err(LinkError::Full),
                Err(ShmError::TooBig(most)) => return Err(LinkError::TooBig(most)),
                Err(ShmError::NoPeer) => return Err(LinkError::Unreachable(EHOSTUNREACH)),
                Err(ShmError::Gone(_) | ShmError::Corrupt) => {
                    return Err(LinkError::Unreachable(ECONNRESET));
                }
            }
        }
        Ok(frames.len())
    }

    fn rx_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let mut whole = std::mem::take(&mut self.whole);
        let polled = self.poll_frames(max, |from, _, frame| {
            let bytes = &mut whole[..frame.len()];
            frame.copy_to(0, bytes);
            sink(RxFrame {
                from: address(from),
                bytes,
                ce: false,
                detour: false,
            });
            true
        });
        self.whole = whole;
        polled.map_err(|_| LinkError::Broken(EIO))
    }
}
