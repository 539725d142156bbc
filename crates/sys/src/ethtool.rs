//! Rules of a network card that bring packets to one of its receive queues
//! (`ethtool -N`; kernel: uapi header `ethtool.h`).

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::raw::{Errno, number, syscall};

const SIOCETHTOOL: usize = 0x8946;

const GET_RINGS: u32 = 0x2d;
const GET_RULE_COUNT: u32 = 0x2e;
const GET_RULE: u32 = 0x2f;
const GET_RULES: u32 = 0x30;
const DELETE_RULE: u32 = 0x31;
const INSERT_RULE: u32 = 0x32;

const UDP_V4: u32 = 2;
const UDP_V6: u32 = 6;
/// Where the destination port is in a flow of each.
const PORT_V4: usize = 10;
const PORT_V6: usize = 34;

/// The card picks a place for a rule; and that it can.
const ANYWHERE: u32 = 0xffff_ffff;
const CAN_PICK: u64 = 0x8000_0000;

/// `struct ethtool_rx_flow_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flow {
    kind: u32,
    value: [u8; 52],
    value_more: [u8; 20],
    mask: [u8; 52],
    mask_more: [u8; 20],
    queue: u64,
    place: u32,
}

impl Flow {
    fn is_for(&self, port: u16) -> bool {
        let at = match self.kind {
            UDP_V4 => PORT_V4,
            UDP_V6 => PORT_V6,
            _ => return false,
        };
        self.value[at..at + 2] == port.to_be_bytes() && self.mask[at..at + 2] == [0xff; 2]
    }
}

/// `struct ethtool_rxnfc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    command: u32,
    kind: u32,
    data: u64,
    flow: Flow,
    count: u32,
}

/// `struct ifreq`, with a pointer.
#[repr(C)]
struct Named {
    name: [u8; 16],
    request: *mut Request,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<Flow>() == 168 && offset_of!(Flow, queue) == 152);
const _: () = assert!(offset_of!(Flow, mask) == 76 && offset_of!(Flow, place) == 160);
const _: () = assert!(size_of::<Request>() == 192 && offset_of!(Request, data) == 8);
const _: () = assert!(offset_of!(Request, flow) == 16 && offset_of!(Request, count) == 184);
const _: () = assert!(size_of::<Named>() == 40 && offset_of!(Named, request) == 16);
/// Where the places of all rules begin, which follow a request.
const PLACES: usize = 188;

impl Request {
    const fn new(command: u32) -> Self {
        let flow = Flow {
            kind: 0,
            value: [0; 52],
            value_more: [0; 20],
            mask: [0; 52],
            mask_more: [0; 20],
            queue: 0,
            place: 0,
        };
        Self {
            command,
            kind: 0,
            data: 0,
            flow,
            count: 0,
        }
    }

    /// What comes for UDP port `port`, over IPv6 or IPv4, goes to `queue`.
    fn rule(v6: bool, port: u16, queue: u32, place: u32) -> Self {
        let mut request = Self::new(INSERT_RULE);
        let (kind, at) = if v6 {
            (UDP_V6, PORT_V6)
        } else {
            (UDP_V4, PORT_V4)
        };
        let flow = &mut request.flow;
        flow.kind = kind;
        flow.value[at..at + 2].copy_from_slice(&port.to_be_bytes());
        flow.mask[at..at + 2].fill(0xff);
        flow.queue = queue.into();
        flow.place = place;
        request
    }
}

/// The rules of one interface, and the privilege to change them.
#[derive(Debug)]
pub struct FlowRules {
    socket: OwnedFd,
    name: [u8; 16],
    /// The card picks places itself.
    picks: bool,
    /// Places that it has.
    places: u32,
}

impl FlowRules {
    /// Those of interface `name` in the calling thread's network; `None` where
    /// the card has none, or one queue alone.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn of(name: &str) -> io::Result<Option<Self>> {
        let mut bytes = [0; 16];
        let room = bytes[..15].get_mut(..name.len()).ok_or(Errno::NODEV)?;
        room.copy_from_slice(name.as_bytes());
        let flags = SocketFlags::CLOEXEC;
        let mut rules = Self {
            socket: socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?,
            name: bytes,
            picks: false,
            places: 0,
        };
        let mut about = Request::new(GET_RULE_COUNT);
        match rules.ask(&mut about) {
            Err(Errno::OPNOTSUPP | Errno::INVAL) => return Ok(None),
            answer => answer?,
        }
        rules.picks = about.data & CAN_PICK != 0;
        rules.places = (about.data & (CAN_PICK - 1)) as u32;
        let mut rings = Request::new(GET_RINGS);
        let one = rules.ask(&mut rings).is_ok() && rings.data <= 1;
        Ok((!one).then_some(rules))
    }

    /// Brings what comes for UDP port `port`, over IPv6 or IPv4, to `queue`.
    /// Gives the place of the rule, by which it is removed.
    ///
    /// # Errors
    /// What the kernel answers: `OPNOTSUPP` where the card does not know such
    /// rules or they are switched off (`ethtool -K NAME ntuple on`), `NOSPC`
    /// where it has no place for another.
    pub fn add(&self, v6: bool, port: u16, queue: u32) -> io::Result<u32> {
        let place = if self.picks {
            ANYWHERE
        } else {
            self.free_place()?
        };
        let mut request = Request::rule(v6, port, queue, place);
        self.ask(&mut request)?;
        Ok(request.flow.place)
    }

    /// Removes the rule at a place, if it is one for UDP port `port`.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn remove(&self, place: u32, port: u16) -> io::Result<()> {
        let mut found = Request::new(GET_RULE);
        found.flow.place = place;
        match self.ask(&mut found) {
            Ok(()) if found.flow.is_for(port) => {}
            Ok(()) | Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let mut request = Request::new(DELETE_RULE);
        request.flow.place = place;
        Ok(self.ask(&mut request)?)
    }

    /// A place without a rule: the last, as `ethtool` picks it.
    fn free_place(&self) -> io::Result<u32> {
        let mut buffer = vec![0_u64; (PLACES + 4 * self.places as usize).div_ceil(8).max(24)];
        let mut request = Request::new(GET_RULES);
        request.count = self.places;
        let start = buffer.as_mut_ptr().cast::<Request>();
        // SAFETY: the buffer is aligned for a request and holds one.
        unsafe { start.write(request) };
        // SAFETY: it has room for as many places as the request says.
        unsafe { self.call(start) }?;
        // SAFETY: the kernel has left a request there; any content is valid.
        let used = unsafe { start.read() }.count.min(self.places) as usize;
        let words: Vec<u32> = buffer
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .skip(PLACES)
            .collect::<Vec<u8>>()
            .chunks_exact(4)
            .take(used)
            .filter_map(|word| word.first_chunk().map(|word| u32::from_ne_bytes(*word)))
            .collect();
        let free = (0..self.places).rev().find(|place| !words.contains(place));
        Ok(free.ok_or(Errno::NOSPC)?)
    }

    /// Asks what needs no room for places.
    fn ask(&self, request: &mut Request) -> Result<(), Errno> {
        // SAFETY: it is no request for places, so nothing follows it.
        unsafe { self.call(request) }
    }

    /// # Safety
    /// `request` is valid for reads and writes, and where it asks for places,
    /// as many as it says may be written after it.
    unsafe fn call(&self, request: *mut Request) -> Result<(), Errno> {
        let mut named = Named {
            name: self.name,
            request,
            rest: [0; 2],
        };
        let args = [
            self.socket.as_raw_fd() as usize,
            SIOCETHTOOL,
            &raw mut named as usize,
            0,
            0,
            0,
        ];
        // SAFETY: `named` lives beyond the call, ends the name with a zero, and
        // the caller vouches for what it points to.
        unsafe { syscall(number::IOCTL, args) }.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as the kernel reads it.
    fn bytes(request: &Request) -> [u8; 188] {
        let mut bytes = [0; 188];
        let flow = &request.flow;
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(offset_of!(Request, command), &request.command.to_le_bytes());
        let at = offset_of!(Request, flow);
        put(at + offset_of!(Flow, kind), &flow.kind.to_le_bytes());
        put(at + offset_of!(Flow, value), &flow.value);
        put(at + offset_of!(Flow, mask), &flow.mask);
        put(at + offset_of!(Flow, queue), &flow.queue.to_le_bytes());
        put(at + offset_of!(Flow, place), &flow.place.to_le_bytes());
        bytes
    }

    #[test]
    fn a_rule_is_laid_out_as_the_header_says() {
        // Offsets from <linux/ethtool.h>, as a C compiler gives them: fs at 16,
        // in it h_u at 4, m_u at 76, ring_cookie at 152, location at 160; pdst at
        // 10 of ethtool_tcpip4_spec, at 34 of ethtool_tcpip6_spec.
        for (v6, kind, pdst) in [(false, 2, 10), (true, 6, 34)] {
            let mut expected = [0; 188];
            expected[0] = 0x32;
            expected[16] = kind;
            expected[20 + pdst..22 + pdst].copy_from_slice(&[0x12, 0x34]);
            expected[92 + pdst..94 + pdst].fill(0xff);
            expected[168] = 5;
            expected[176..180].fill(0xff);
            let rule = Request::rule(v6, 0x1234, 5, ANYWHERE);
            assert_eq!(bytes(&rule), expected);
            assert!(rule.flow.is_for(0x1234) && !rule.flow.is_for(0x3412));
            let other = Flow {
                kind: 1,
                ..rule.flow
            };
            assert!(!other.is_for(0x1234));
        }
    }

    #[test]
    fn who_has_no_rules_is_told_from_who_is_not_there() {
        // The loopback is a device without a card.
        assert!(FlowRules::of("lo").unwrap().is_none());
        for name in ["no-such-device", "a-name-that-is-too-long"] {
            let error = FlowRules::of(name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
        }
    }
}
