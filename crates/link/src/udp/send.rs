//! Sending bursts: which frames share a unit, which units share a call, and
//! what the kernel's refusals mean.

use std::cell::Cell;
use std::io::IoSlice;

use portolan_sys::net::{RawAddress, SEGMENTS_MAX, SendUnit, UNITS_MAX};
use portolan_sys::raw::Errno;

use super::Udp;
use super::direct::Direct;
use super::receive::Port;
use super::unreachable::may_be_earlier;
use crate::{LinkAddress, LinkError, TxFrame};

/// Most bytes in one segmented unit; IP's length field ends at 65,535.
const UNIT_BYTES_MAX: usize = 65_000;
/// Frames in one call with several units.
const PARTS_MAX: usize = 64;
/// A unit of this many frames is worth a call of its own, so that the next
/// one is not cut short by [`PARTS_MAX`].
const LONG_UNIT: usize = 16;

/// How many frames at the head of `frames` (which is not empty) can leave as
/// one unit: same destination and mark, equal size, the last may be shorter.
fn unit_len(frames: &[TxFrame<'_>], gso: bool) -> usize {
    let first = &frames[0];
    let segment = first.bytes.len();
    if !gso || segment == 0 {
        return 1;
    }
    let mut total = segment;
    let mut count = 1;
    for frame in &frames[1..frames.len().min(SEGMENTS_MAX)] {
        let len = frame.bytes.len();
        total += len;
        let fits = len != 0 && len <= segment && total <= UNIT_BYTES_MAX;
        if !fits || frame.to != first.to || frame.ecn != first.ecn {
            break;
        }
        count += 1;
        if len < segment {
            break;
        }
    }
    count
}

/// What a refusal of the first frame means.
fn refusal(errno: Errno) -> LinkError {
    match errno {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => LinkError::Full,
        // Within our own limit, so the path's is lower; by how much the
        // kernel does not say here.
        Errno::MSGSIZE => LinkError::TooBig(0),
        Errno::BADF | Errno::NOTSOCK | Errno::FAULT => LinkError::Broken(errno.raw_os_error()),
        errno => LinkError::Unreachable(errno.raw_os_error()),
    }
}

/// Makes the call again once if it reported an earlier packet's ICMP error,
/// which says nothing of this packet and is cleared by being read.
fn past_queued_error<T>(
    failed: &Cell<bool>,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match call() {
        Err(errno) if may_be_earlier(errno) => {
            failed.set(true);
            call()
        }
        result => result,
    }
}

impl Udp {
    pub(super) fn send_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        if let [frame] = frames {
            return self.send_first(frame).map(|()| 1);
        }
        let mut taken = 0;
        while taken < frames.len() {
            match self.send_some(&frames[taken..]) {
                Ok(count) => taken += count,
                // It will be met again as the first frame of the next burst.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// One system call's worth from the head of `frames`, which is not empty.
    fn send_some(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let count = unit_len(frames, self.gso);
        if count == frames.len() || count >= LONG_UNIT || !self.mmsg {
            return self.send_unit(&frames[..count]);
        }
        self.send_units(frames)
    }

    /// The first frame alone, by the shortest way.
    #[inline]
    fn send_first(&mut self, frame: &TxFrame<'_>) -> Result<(), LinkError> {
        let bytes = frame.bytes;
        let mark = self.mark(frame);
        if let Some(Direct { port, to, .. }) = &self.direct
            && *to == frame.to
            && mark == port.socket.marks_ecn()
            && bytes.len() <= self.frame_max
        {
            self.counters.tx_calls += 1;
            self.counters.tx_direct += 1;
            self.choice.note_direct();
            let Port { socket, failed, .. } = port;
            let sent = past_queued_error(failed, || socket.send_connected(bytes));
            sent.map_err(refusal)?;
            self.count_sent(std::slice::from_ref(frame));
            return Ok(());
        }
        self.send_alone(frame)
    }

    #[inline(never)]
    fn send_alone(&mut self, frame: &TxFrame<'_>) -> Result<(), LinkError> {
        let to = self.check(frame)?;
        let bytes = frame.bytes;
        self.counters.tx_calls += 1;
        self.note_way(&frame.to);
        let Port { socket, failed, .. } = self.way(&frame.to);
        let result = if self.mark(frame) == socket.marks_ecn() {
            past_queued_error(failed, || socket.send_to(&to, bytes))
        } else {
            let parts = &[IoSlice::new(bytes)];
            let unit = SendUnit {
                to,
                parts,
                segment: 0,
                ecn: self.mark(frame),
            };
            past_queued_error(failed, || socket.send_unit(&unit))
        };
        result.map_err(refusal)?;
        self.count_sent(std::slice::from_ref(frame));
        Ok(())
    }

    /// All of `frames` (which [`unit_len`] has put together) as one unit.
    fn send_unit(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let [first, _, ..] = frames else {
            return self.send_first(&frames[0]).map(|()| 1);
        };
        let to = self.check(first)?;
        let mut parts = [IoSlice::new(&[]); SEGMENTS_MAX];
        for (part, frame) in parts.iter_mut().zip(frames) {
            *part = IoSlice::new(frame.bytes);
        }
        let unit = SendUnit {
            to,
            parts: &parts[..frames.len()],
            segment: first.bytes.len() as u16,
            ecn: self.mark(first),
        };
        self.counters.tx_calls += 1;
        self.note_way(&first.to);
        let Port { socket, failed, .. } = self.way(&first.to);
        match past_queued_error(failed, || socket.send_unit(&unit)) {
            Ok(()) => {
                self.count_sent(frames);
                Ok(frames.len())
            }
            Err(errno) => self.recover(first, errno),
        }
    }

    /// As many units as one call takes.
    fn send_units(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let first = &frames[0];
        let to = self.check(first)?;
        let mut parts = [IoSlice::new(&[]); PARTS_MAX];
        for (part, frame) in parts.iter_mut().zip(frames) {
            *part = IoSlice::new(frame.bytes);
        }
        let parts = &parts[..frames.len().min(PARTS_MAX)];

        let mut units = [SendUnit {
            to,
            parts: &[],
            segment: 0,
            ecn: false,
        }; UNITS_MAX];
        let mut lens = [0; UNITS_MAX];
        let (mut unit_count, mut start) = (0, 0);
        while unit_count < UNITS_MAX && start < parts.len() {
            let frame = &frames[start];
            let len = unit_len(&frames[start..], self.gso);
            // A frame that cannot go ends the batch: it has to be the first
            // of its call to be reported.
            let Ok(to) = self.check(frame) else { break };
            if start + len > parts.len() || (len >= LONG_UNIT && start > 0) {
                break;
            }
            units[unit_count] = SendUnit {
                to,
                parts: &parts[start..start + len],
                segment: if len > 1 { frame.bytes.len() as u16 } else { 0 },
                ecn: self.mark(frame),
            };
            lens[unit_count] = len;
            unit_count += 1;
            start += len;
        }
        self.counters.tx_calls += 1;
        let units = &units[..unit_count];
        let Port { socket, failed, .. } = &self.main;
        match past_queued_error(failed, || socket.send_many(units)) {
            Ok(sent) => {
                let mut taken = 0;
                for len in &lens[..sent.min(unit_count)] {
                    self.count_sent(&frames[taken..taken + len]);
                    taken += len;
                }
                Ok(taken)
            }
            Err(errno) if units[0].segment != 0 => self.recover(first, errno),
            Err(errno) => Err(refusal(errno)),
        }
    }

    /// After the kernel refused a segmented unit that begins with `first`:
    /// the device may not cut units, or `first` cannot go at all.
    fn recover(&mut self, first: &TxFrame<'_>, errno: Errno) -> Result<usize, LinkError> {
        match errno {
            Errno::IO | Errno::INVAL => {
                // Older kernels answer EINVAL also to segments too long for
                // the path; then the frame alone is refused as too big.
                self.send_first(first)?;
                self.gso = false;
                Ok(1)
            }
            errno => Err(refusal(errno)),
        }
    }

    fn check(&self, frame: &TxFrame<'_>) -> Result<RawAddress, LinkError> {
        if frame.bytes.len() > self.frame_max {
            return Err(LinkError::TooBig(self.frame_max));
        }
        let to = &frame.to;
        self.main
            .socket
            .destination(&to.ip, to.port, to.scope)
            .ok_or(LinkError::Unreachable(Errno::AFNOSUPPORT.raw_os_error()))
    }

    /// The socket by which packets leave for `to`.
    #[inline]
    fn way(&self, to: &LinkAddress) -> &Port {
        match &self.direct {
            Some(direct) if direct.to == *to => &direct.port,
            _ => &self.main,
        }
    }

    #[inline]
    fn note_way(&mut self, to: &LinkAddress) {
        if self.direct.as_ref().is_some_and(|direct| direct.to == *to) {
            self.choice.note_direct();
            self.counters.tx_direct += 1;
        } else if self.now != 0 {
            // Without a clock nobody would look at two sockets.
            self.choice.note(to);
        }
    }

    fn mark(&self, frame: &TxFrame<'_>) -> bool {
        frame.ecn && self.main.socket.may_mark()
    }

    /// Counts frames that left as one unit.
    fn count_sent(&mut self, frames: &[TxFrame<'_>]) {
        self.counters.tx_frames += frames.len() as u64;
        self.counters.tx_bytes += frames
            .iter()
            .map(|frame| frame.bytes.len() as u64)
            .sum::<u64>();
        self.counters.tx_gso += u64::from(frames.len() > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames<'a>(bytes: &'a [u8], lens: &[usize]) -> Vec<TxFrame<'a>> {
        let to = LinkAddress {
            port: 1,
            ..LinkAddress::default()
        };
        lens.iter()
            .map(|len| TxFrame {
                to,
                bytes: &bytes[..*len],
                ecn: true,
            })
            .collect()
    }

    #[test]
    fn units_hold_equal_frames_and_a_shorter_last() {
        let bytes = [0; 1_500];
        let len = |lens: &[usize]| unit_len(&frames(&bytes, lens), true);
        assert_eq!(len(&[5]), 1);
        assert_eq!(len(&[5, 5, 5]), 3);
        assert_eq!(len(&[5, 5, 6]), 2);
        assert_eq!(len(&[5, 5, 4, 4]), 3);
        assert_eq!(len(&[5, 0, 5]), 1);
        assert_eq!(len(&[0, 0]), 1);
        assert_eq!(len(&[5; 100]), SEGMENTS_MAX);
        assert_eq!(len(&[1_452; 100]), 44);
        assert_eq!(unit_len(&frames(&bytes, &[5, 5]), false), 1);
    }

    #[test]
    fn units_have_one_destination_and_one_mark() {
        let bytes = [0; 8];
        let mut burst = frames(&bytes, &[8, 8, 8]);
        burst[2].to.port = 2;
        assert_eq!(unit_len(&burst, true), 2);
        burst[1].ecn = false;
        assert_eq!(unit_len(&burst, true), 1);
    }

    #[test]
    fn refusals_are_told_apart() {
        assert_eq!(refusal(Errno::AGAIN), LinkError::Full);
        assert_eq!(refusal(Errno::NOBUFS), LinkError::Full);
        assert_eq!(refusal(Errno::MSGSIZE), LinkError::TooBig(0));
        assert_eq!(refusal(Errno::NETUNREACH), LinkError::Unreachable(101));
        assert_eq!(refusal(Errno::BADF), LinkError::Broken(9));
        let mut answers = [Err(Errno::CONNREFUSED), Ok(3)].into_iter();
        let failed = Cell::new(false);
        let result = past_queued_error(&failed, || answers.next().unwrap());
        assert_eq!((result, failed.get()), (Ok(3), true));
        let mut answers = [Err(Errno::CONNREFUSED); 2].into_iter();
        let result: Result<(), Errno> = past_queued_error(&failed, || answers.next().unwrap());
        assert_eq!(result, Err(Errno::CONNREFUSED));
    }
}
