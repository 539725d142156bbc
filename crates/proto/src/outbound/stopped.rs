//! Flows that the peer has stopped.

use portolan_wire::Priority;

use super::Outbound;

/// Flows that the peer has stopped: sets of bits, by priority. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stopped {
    pub flows: [u16; 2],
    /// Serial number of the chunk that named them.
    serial: u16,
    /// Frames that wait in these flows.
    pub frames: [u32; 2],
}

impl Stopped {
    /// Whether any flow is stopped.
    pub const fn any(&self) -> bool {
        self.flows[0] | self.flows[1] != 0
    }

    /// Whether a flow is stopped.
    #[inline]
    pub const fn has(&self, priority: Priority, flow: u16) -> bool {
        self.flows[priority.index()] >> flow & 1 != 0
    }
}

impl Outbound {
    /// Takes over the flows that the peer has stopped; returns false if `serial` is not new
    /// (P7.10).
    pub fn stop(&mut self, serial: u16, flows: [u16; 2]) -> bool {
        if (serial.wrapping_sub(self.stopped.serial) as i16) <= 0 {
            return false;
        }
        let waiting = |p: usize| {
            let all = self.tx[p].iter().enumerate();
            let stopped = all.filter(|(f, _)| flows[p] >> f & 1 != 0);
            stopped.map(|(_, tx)| tx.frames).sum()
        };
        self.stopped = Stopped {
            flows,
            serial,
            frames: [waiting(0), waiting(1)],
        };
        true
    }
}
