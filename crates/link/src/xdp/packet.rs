//! Ethernet, IP and UDP headers around a frame (IEEE 802.3, RFC 791, RFC 8200,
//! RFC 768).

use std::net::{IpAddr, Ipv6Addr};

use crate::LinkAddress;

/// Bytes of the headers of Ethernet, IPv4 and UDP.
const HEADERS_V4: usize = 42;
/// Bytes of the headers of Ethernet, IPv6 and UDP.
pub(super) const HEADERS_V6: usize = 62;

/// Bytes of Ethernet's header.
pub(super) const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const UDP: u8 = 17;
const HOPS: u8 = 64;
/// Don't fragment.
const DF: u8 = 0x40;
const ECT0: u8 = 0b10;
const CE: u8 = 0b11;

/// The headers of all packets from one port to another, but for what differs
/// packet by packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    bytes: [u8; 64],
    len: u8,
    /// Sum of what the checksum covers and no packet changes: of IPv4 its
    /// header, of IPv6 the pseudo-header and UDP's.
    sum: u32,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub from_mac: [u8; 6],
    pub to_mac: [u8; 6],
    pub from: IpAddr,
    pub to: IpAddr,
    pub from_port: u16,
    pub to_port: u16,
}

impl Template {
    /// `None` where one address is of IPv4 and the other of IPv6.
    pub fn new(ends: &Ends) -> Option<Self> {
        let mut bytes = [0; 64];
        bytes[..6].copy_from_slice(&ends.to_mac);
        bytes[6..12].copy_from_slice(&ends.from_mac);
        let (len, covered) = match (ends.from, ends.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes[12..14].copy_from_slice(&IPV4);
                bytes[14] = 0x45;
                bytes[20] = DF;
                bytes[22] = HOPS;
                bytes[23] = UDP;
                bytes[26..30].copy_from_slice(&from.octets());
                bytes[30..34].copy_from_slice(&to.octets());
                (HEADERS_V4, ETHERNET..34)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                bytes[12..14].copy_from_slice(&IPV6);
                bytes[14] = 0x60;
                bytes[20] = UDP;
                bytes[21] = HOPS;
                bytes[22..38].copy_from_slice(&from.octets());
                bytes[38..54].copy_from_slice(&to.octets());
                (HEADERS_V6, 22..HEADERS_V6)
            }
            _ => return None,
        };
        let udp = len - 8;
        bytes[udp..udp + 2].copy_from_slice(&ends.from_port.to_be_bytes());
        bytes[udp + 2..udp + 4].copy_from_slice(&ends.to_port.to_be_bytes());
        let mut sum = add(0, &bytes[covered]);
        if len == HEADERS_V6 {
            sum += u64::from(UDP);
        }
        Some(Self {
            bytes,
            len: len as u8,
            sum: fold(sum).into(),
        })
    }

    /// Bytes of the headers.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Writes headers and `payload` to the start of `packet`; gives how many
    /// bytes, or `None` if there is too little room.
    #[inline]
    pub fn write(&self, packet: &mut [u8], payload: &[u8], ecn: bool) -> Option<usize> {
        self.write_beginning(packet, payload, payload.len(), ecn)?;
        Some(self.len() + payload.len())
    }

    /// Writes headers and `here` bytes of `payload` to the start of `packet`:
    /// the rest of it lies elsewhere. `None` if there is too little room.
    #[inline]
    pub fn write_beginning(
        &self,
        packet: &mut [u8],
        payload: &[u8],
        here: usize,
        ecn: bool,
    ) -> Option<()> {
        let (head, body) = packet.split_at_mut_checked(self.len())?;
        body.get_mut(..here)?.copy_from_slice(payload.get(..here)?);
        let udp_len = u16::try_from(payload.len() + 8).ok()?;
        let class = if ecn { ECT0 } else { 0 };
        if self.len() == HEADERS_V4 {
            let head: &mut [u8; HEADERS_V4] = head.try_into().ok()?;
            head.copy_from_slice(&self.bytes[..HEADERS_V4]);
            let len = udp_len.checked_add(20)?;
            head[15] = class;
            head[16..18].copy_from_slice(&len.to_be_bytes());
            // The words that were zero in the sum.
            let sum = u64::from(self.sum) + u64::from(class) + u64::from(len);
            head[24..26].copy_from_slice(&(!fold(sum)).to_be_bytes());
            // No UDP checksum: the tag is what is verified.
            head[38..40].copy_from_slice(&udp_len.to_be_bytes());
        } else {
            let head: &mut [u8; HEADERS_V6] = head.try_into().ok()?;
            head.copy_from_slice(&self.bytes[..HEADERS_V6]);
            head[15] = class << 4;
            head[18..20].copy_from_slice(&udp_len.to_be_bytes());
            head[58..60].copy_from_slice(&udp_len.to_be_bytes());
            // The length counts in the pseudo-header and in the header.
            let sum = add(u64::from(self.sum) + 2 * u64::from(udp_len), payload);
            // IPv6 has no packets without a checksum: 0 stands for none.
            let sum = match !fold(sum) {
                0 => 0xffff,
                sum => sum,
            };
            head[60..62].copy_from_slice(&sum.to_be_bytes());
        }
        Some(())
    }
}

/// A packet for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub from: LinkAddress,
    pub ce: bool,
    /// Where the payload begins and ends.
    pub start: usize,
    pub end: usize,
}

/// Reads the headers of a packet; `None` if it is no whole UDP packet to
/// `port`. Checksums are not looked at: the tag is what is verified.
#[inline]
pub(super) fn parse(packet: &[u8], port: u16) -> Option<Parsed> {
    let (class, ip, start, udp_len) = match *packet.get(12..14)? {
        [0x08, 0x00] => {
            let head: &[u8; HEADERS_V4] = packet.first_chunk()?;
            let fragmented = (head[20] & !DF) | head[21] != 0;
            if head[14] != 0x45 || head[23] != UDP || fragmented {
                return None;
            }
            let len = u16::from_be_bytes([head[16], head[17]]);
            let ip = [head[26], head[27], head[28], head[29]];
            let mut mapped = [0; 16];
            mapped[10..12].fill(0xff);
            mapped[12..].copy_from_slice(&ip);
            (head[15], mapped, HEADERS_V4, len.checked_sub(20)?)
        }
        [0x86, 0xdd] => {
            let head: &[u8; HEADERS_V6] = packet.first_chunk()?;
            if head[14] >> 4 != 6 || head[20] != UDP {
                return None;
            }
            let len = u16::from_be_bytes([head[18], head[19]]);
            let class = (head[14] << 4) | (head[15] >> 4);
            let ip = *head[22..].first_chunk()?;
            (class, ip, HEADERS_V6, len)
        }
        _ => return None,
    };
    let udp: &[u8; 8] = packet[start - 8..].first_chunk()?;
    let len = u16::from_be_bytes([udp[4], udp[5]]);
    // The link layer may have padded a short packet.
    let end = start + usize::from(len.checked_sub(8)?);
    if u16::from_be_bytes([udp[2], udp[3]]) != port || len > udp_len || end > packet.len() {
        return None;
    }
    Some(Parsed {
        from: LinkAddress {
            ip,
            port: u16::from_be_bytes([udp[0], udp[1]]),
            scope: 0,
        },
        ce: class & CE == CE,
        start,
        end,
    })
}

/// An IP address as links name it.
pub(super) fn ip_of(address: &LinkAddress) -> IpAddr {
    let ip = Ipv6Addr::from(address.ip);
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
}

/// Adds 16-bit words in network order (RFC 1071); an odd last byte is padded.
/// `bytes` start on an even byte of what the sum covers.
#[inline]
fn add(sum: u64, bytes: &[u8]) -> u64 {
    // Four words at a time; carries collect in the upper half.
    let mut sum = sum;
    let mut wide = bytes.chunks_exact(4);
    for four in &mut wide {
        sum += u64::from(u32::from_be_bytes([four[0], four[1], four[2], four[3]]));
    }
    let mut rest = wide.remainder().chunks(2);
    for two in &mut rest {
        let low = two.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([two[0], low]));
    }
    sum
}

/// Folds the carries of such a sum.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// Reads bytes as a packet that has arrived, in parts of so many bytes: what is
/// one lies within it, and is the same when it is written back. Returns whether
/// there was one.
#[cfg(feature = "properties")]
pub fn headers_travel(bytes: &[u8], part: usize) -> bool {
    let mut understood = false;
    let mut multi_buffer = super::multi_buffer::MultiBuffer::new(9_000);
    let mut parts = bytes.to_vec();
    let mut parts = parts.chunks_mut(part.max(1)).peekable();
    while let Some(part) = parts.next() {
        let Some(packet) = multi_buffer.add(part, parts.peek().is_none()) else {
            continue;
        };
        assert!(packet == bytes || packet.is_empty());
        let port = packet
            .first_chunk()
            .map_or(0, |two| u16::from_be_bytes(*two));
        let Some(found) = parse(packet, port) else {
            continue;
        };
        understood = true;
        let payload = &packet[found.start..found.end];
        let ends = Ends {
            from_mac: [2; 6],
            to_mac: [2; 6],
            from: ip_of(&found.from),
            to: ip_of(&found.from),
            from_port: found.from.port,
            to_port: port,
        };
        let headers = Template::new(&ends).expect("of one family");
        let mut written = vec![0; HEADERS_V6 + payload.len()];
        let length = headers.write(&mut written, payload, false);
        let Some(length) = length else {
            continue;
        };
        let again = parse(&written[..length], port).expect("what was written");
        assert_eq!((again.from, again.ce), (found.from, false));
        assert_eq!(&written[again.start..again.end], payload);
    }
    understood
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ends(from: IpAddr, to: IpAddr) -> Ends {
        Ends {
            from_mac: [2, 0, 0, 0, 0, 1],
            to_mac: [2, 0, 0, 0, 0, 2],
            from,
            to,
            from_port: 1_000,
            to_port: 0xfffe,
        }
    }

    fn all() -> [Template; 2] {
        let v4 = |last| IpAddr::from(Ipv4Addr::new(10, 255, 3, last));
        let v6 = |last| IpAddr::from(Ipv6Addr::new(0xfd00, 0xffff, 0, 0, 0, 0, 0xfe, last));
        let of = |from, to| Template::new(&ends(from, to)).unwrap();
        [of(v4(1), v4(2)), of(v6(1), v6(2))]
    }

    /// Word by word, as the RFCs have it.
    fn plain_sum(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|two| {
            let low = two.get(1).copied().unwrap_or(0);
            u32::from(u16::from_be_bytes([two[0], low]))
        });
        words.fold(0, |sum, word| {
            let sum = sum + word;
            (sum >> 16) + (sum & 0xffff)
        }) as u16
    }

    #[test]
    fn what_is_written_is_read_back_with_right_checksums() {
        let payload: Vec<u8> = (0..1_500u32).map(|i| (i * 31 + 255) as u8).collect();
        for template in all() {
            for len in [0, 1, 2, 3, 7, 40, 1_399, 1_400, 1_500] {
                for ecn in [false, true] {
                    let mut packet = [0xee; 1_600];
                    let written = template.write(&mut packet, &payload[..len], ecn).unwrap();
                    assert_eq!(written, template.len() + len);
                    let parsed = parse(&packet[..written], 0xfffe).unwrap();
                    assert_eq!(parsed.from.port, 1_000);
                    assert_eq!(&packet[parsed.start..parsed.end], &payload[..len]);
                    assert!(!parsed.ce);
                    if template.len() == HEADERS_V4 {
                        assert_eq!(plain_sum(&packet[14..34]), 0xffff);
                        assert_eq!(packet[40..42], [0, 0]);
                        assert_eq!(packet[15], if ecn { 2 } else { 0 });
                    } else {
                        let mut covered = packet[22..written].to_vec();
                        let udp_len = (len + 8) as u16;
                        covered.splice(0..0, [0, UDP]);
                        covered.splice(0..0, udp_len.to_be_bytes());
                        assert_eq!(plain_sum(&covered), 0xffff);
                    }
                    // Padding behind it is no part of it.
                    let padded = parse(&packet[..written + 20], 0xfffe).unwrap();
                    assert_eq!(padded, parsed);
                }
            }
            assert_eq!(template.write(&mut [0; 64], &payload[..40], false), None);
        }
    }

    #[test]
    fn what_is_not_for_us_is_left() {
        for template in all() {
            let mut packet = [0; 200];
            let written = template.write(&mut packet, &[7; 100], false).unwrap();
            let packet = &packet[..written];
            assert!(parse(packet, 0xfffe).is_some());
            assert_eq!(parse(packet, 0xfffd), None);
            // A cut one.
            for cut in 0..written {
                assert_eq!(parse(&packet[..cut], 0xfffe), None, "{cut}");
            }
            let broken = |at: usize, value: u8| {
                let mut packet = packet.to_vec();
                packet[at] = value;
                parse(&packet, 0xfffe)
            };
            // Another ether type, IP version or header length.
            assert_eq!(broken(12, 0x81), None);
            assert_eq!(broken(14, 0x46), None);
            if template.len() == HEADERS_V4 {
                // TCP; a fragment; lengths beyond the packet or each other.
                assert_eq!(broken(23, 6), None);
                assert_eq!(broken(20, 0x20), None);
                assert_eq!(broken(21, 1), None);
                assert_eq!(broken(17, 19), None);
                assert_eq!(broken(38, 1), None);
                assert_eq!(broken(39, 7), None);
                assert!(broken(15, 3).unwrap().ce);
            } else {
                assert_eq!(broken(20, 44), None);
                assert_eq!(broken(58, 1), None);
                assert!(broken(15, 0x30).unwrap().ce);
                assert!(!broken(15, 0x20).unwrap().ce);
            }
        }
    }

    #[test]
    fn families_do_not_mix() {
        let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
        assert!(Template::new(&ends(v4, v6)).is_none());
    }
}
