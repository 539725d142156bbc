//! A stranger on a third host of a lab, who sends packets to a rank that look
//! like those of its peer. He has heard the ranks connect: he knows port,
//! connection number, ids and lives, as whoever sits on the wire does.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;
use portolan_wire::{
    CONNECT_BYTES, CONNECT_CLEAR_BYTES, Flags, HEADER_BYTES, Header, PacketType, TAG_BYTES,
};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};

use crate::loss::{Column, Loss};

/// The host that he sits on; the ranks are on the two before it.
pub const STRANGER: u32 = 2;
/// Hosts of the sender and of the receiver, who is flooded.
const SENDER: u32 = 0;
const RECEIVER: u32 = 1;
/// Kinds of packets.
const KINDS: u64 = 4;
/// Bytes that nobody has sealed.
const NOISE_BYTES: usize = 1 << 16;
/// Time between two looks at what is due.
const PAUSE: Duration = Duration::from_micros(500);
/// What he was too slow for is made up for this long, and not at all after it.
const BEHIND_NS: u64 = 10_000_000;

/// What he has heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    /// The receiver's UDP port.
    port: u16,
    /// The connection number that the receiver gave the sender.
    number: Option<u32>,
    /// What is in clear of a connect packet.
    hello: Vec<u8>,
}

/// How much he sent, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flood {
    /// Packets sent.
    pub packets: u64,
    active_ns: u64,
    /// Bytes that left his interface and that came to it.
    sent_bytes: u64,
    heard_bytes: u64,
}

impl Flood {
    /// Another one beside it.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.active_ns += other.active_ns;
        self.sent_bytes += other.sent_bytes;
        self.heard_bytes += other.heard_bytes;
    }

    /// Packets per second, while he sent.
    pub fn per_second(&self) -> f64 {
        self.packets as f64 * 1e9 / self.active_ns.max(1) as f64
    }

    /// Bytes that came for each that left.
    pub fn answered(&self) -> f64 {
        self.heard_bytes as f64 / self.sent_bytes.max(1) as f64
    }
}

/// What he and his thread share.
#[derive(Default)]
struct ForgerState {
    active: AtomicBool,
    ended: AtomicBool,
    packets: AtomicU64,
    active_ns: AtomicU64,
}

/// Floods in those columns that are to be flooded.
pub struct Forger {
    lab: Lab,
    per_second: u64,
    size: usize,
    ear: Option<OwnedFd>,
    shared: Arc<ForgerState>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Bytes that his interface had sent and received before.
    before: [u64; 2],
}

impl Forger {
    /// Listens at the switch from now on. Later sends so many packets per
    /// second, of `size` bytes.
    pub fn listen(lab: &Lab, per_second: u64, size: usize) -> Result<Self> {
        let ear = lab.in_switch(|| {
            socket_with(
                AddressFamily::PACKET,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                Some(eth::ALL),
            )
            .context("listening at the switch")
        })?;
        Ok(Self {
            lab: lab.clone(),
            per_second,
            size,
            ear: Some(ear),
            shared: Arc::default(),
            thread: None,
            before: counted(lab)?,
        })
    }

    /// Takes in what was said, and stops listening.
    pub fn learn(&mut self) -> Result<()> {
        let Some(ear) = self.ear.take() else {
            return fail("the stranger has learnt already");
        };
        let from_to = [SENDER, RECEIVER].map(|host| self.lab.ipv4(host));
        let mut heard = Heard::default();
        let mut packet = vec![0; 1 << 16];
        while let Ok((count, _)) = recv(&ear, &mut packet, RecvFlags::DONTWAIT) {
            heard.take(&packet[..count], from_to);
        }
        let (Some(number), false) = (heard.number, heard.hello.is_empty()) else {
            return fail("the stranger has not heard the ranks connect");
        };
        let socket = self.lab.in_host(STRANGER, || {
            UdpSocket::bind((self.lab.ipv4(STRANGER), 0)).context("the stranger's socket")
        })?;
        let to = SocketAddr::from((self.lab.ipv4(RECEIVER), heard.port));
        let forge = Forge::new(number, heard.hello, self.size)?;
        let (shared, per_second) = (Arc::clone(&self.shared), self.per_second);
        self.thread = Some(std::thread::spawn(move || {
            flood(&socket, to, forge, per_second, &shared)
        }));
        Ok(())
    }

    /// Ends, and says what came of it.
    pub fn end(mut self) -> Result<Flood> {
        self.shared.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let after = counted(&self.lab)?;
        Ok(Flood {
            packets: self.shared.packets.load(Relaxed),
            active_ns: self.shared.active_ns.load(Relaxed),
            sent_bytes: after[0] - self.before[0],
            heard_bytes: after[1] - self.before[1],
        })
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
    }
}

impl Loss for Forger {
    fn set(&mut self, column: &Column) -> Result<()> {
        self.shared.active.store(column.forged, Relaxed);
        Ok(())
    }
}

impl Heard {
    /// A packet, from its IP header on.
    fn take(&mut self, packet: &[u8], [from, to]: [Ipv4Addr; 2]) {
        let Some((head, datagram)) = packet
            .first()
            .map(|first| usize::from(first & 15) * 4)
            .and_then(|len| packet.split_at_checked(len))
        else {
            return;
        };
        // Version 4, UDP.
        let is_udp = head.len() >= 20 && head[0] >> 4 == 4 && head[9] == 17;
        if !is_udp || head[12..16] != from.octets() || head[16..20] != to.octets() {
            return;
        }
        let Some((udp, payload)) = datagram.split_at_checked(8) else {
            return;
        };
        let Ok(header) = Header::parse(payload) else {
            return;
        };
        self.port = u16::from_be_bytes([udp[2], udp[3]]);
        match header.kind {
            PacketType::Data => self.number = Some(header.connection),
            PacketType::Connect => {
                self.hello = payload[..CONNECT_CLEAR_BYTES.min(payload.len())].to_vec();
            }
            // Those of endpoints outside of a job.
            PacketType::Introduction | PacketType::Challenge => {}
        }
    }
}

/// Makes packets.
struct Forge {
    noise: Vec<u8>,
    number: u32,
    hello: Vec<u8>,
    size: usize,
}

impl Forge {
    fn new(number: u32, hello: Vec<u8>, size: usize) -> Result<Self> {
        let mut noise = vec![0; NOISE_BYTES];
        let mut source = fs::File::open("/dev/urandom").context("opening /dev/urandom")?;
        std::io::Read::read_exact(&mut source, &mut noise).context("reading /dev/urandom")?;
        if hello.len() < CONNECT_CLEAR_BYTES {
            return fail("a connect packet was heard in part");
        }
        Ok(Self {
            noise,
            number,
            hello,
            size,
        })
    }

    /// The n-th packet.
    fn make(&self, n: u64, packet: &mut Vec<u8>) {
        // Coprime with the number of places, so that all come before one comes
        // again; the longest packet fits behind the last.
        let places = (NOISE_BYTES - self.size.max(CONNECT_BYTES + TAG_BYTES)) as u64;
        let at = (n.wrapping_mul(7_919) % places) as usize;
        let kind = n % KINDS;
        let len = if kind < 2 {
            self.size
        } else {
            CONNECT_BYTES + TAG_BYTES
        };
        packet.clear();
        packet.extend_from_slice(&self.noise[at..at + len]);
        let word = |at: usize| {
            let bytes = self.noise[at..].first_chunk().copied().unwrap_or_default();
            u32::from_le_bytes(bytes)
        };
        let data = |connection| Header {
            kind: PacketType::Data,
            flags: Flags::NONE,
            path: 0,
            connection,
            number: word(at + 8),
        };
        match kind {
            0 => packet[..HEADER_BYTES].copy_from_slice(&data(word(at)).to_bytes()),
            1 => packet[..HEADER_BYTES].copy_from_slice(&data(self.number).to_bytes()),
            // The peer as it is known, but for its life.
            2 => {
                packet[..20].copy_from_slice(&self.hello[..20]);
                packet[28..CONNECT_CLEAR_BYTES].copy_from_slice(&self.hello[28..][..24]);
            }
            _ => packet[..HEADER_BYTES].copy_from_slice(&self.hello[..HEADER_BYTES]),
        }
    }
}

/// Sends what is due, while that is wanted.
fn flood(
    socket: &UdpSocket,
    to: SocketAddr,
    forge: Forge,
    per_second: u64,
    shared: &ForgerState,
) -> Result<()> {
    let gap_ns = 1_000_000_000 / per_second;
    let mut packet = Vec::new();
    let mut looked_ns = now_ns();
    let mut due_ns = looked_ns;
    let mut sent = 0;
    while !shared.ended.load(Relaxed) {
        let now = now_ns();
        if shared.active.load(Relaxed) {
            shared.active_ns.fetch_add(now - looked_ns, Relaxed);
            due_ns = due_ns.max(now.saturating_sub(BEHIND_NS));
            while due_ns <= now {
                forge.make(sent, &mut packet);
                socket
                    .send_to(&packet, to)
                    .context("sending a forged packet")?;
                sent += 1;
                due_ns += gap_ns;
            }
            shared.packets.store(sent, Relaxed);
        } else {
            due_ns = now;
        }
        looked_ns = now;
        sleep(PAUSE);
    }
    Ok(())
}

/// Bytes that the stranger's interface has sent and received.
fn counted(lab: &Lab) -> Result<[u64; 2]> {
    let text = lab.in_host(STRANGER, || {
        // That of the thread: the process is in another network.
        fs::read_to_string("/proc/thread-self/net/dev").context("reading /proc/net/dev")
    })?;
    bytes_of(&text).ok_or_else(|| Failure::new("/proc/net/dev names no eth0"))
}

fn bytes_of(text: &str) -> Option<[u64; 2]> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(name, _)| name.trim() == "eth0")?;
    let mut counts = counts.split_whitespace().map(str::parse);
    let received = counts.next()?.ok()?;
    // Seven more of what came, then of what left.
    let sent = counts.nth(7)?.ok()?;
    Some([sent, received])
}

#[cfg(test)]
mod tests {
    use portolan_wire::ConnectIds;

    use super::*;

    const FROM_TO: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

    /// A UDP packet to port 0x1234, from the IP header on.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(FROM_TO.iter().flat_map(|ip| ip.octets()));
        packet.extend([0x99, 0x99, 0x12, 0x34, 0, 0, 0, 0]);
        packet.extend(payload);
        packet
    }

    fn heard() -> Heard {
        let mut heard = Heard::default();
        let header = |kind, connection| Header {
            kind,
            flags: Flags::NONE,
            path: 0,
            connection,
            number: 5,
        };
        let mut hello = header(PacketType::Connect, 0).to_bytes().to_vec();
        hello.extend((1..=40).chain(0..64));
        hello[44..52].copy_from_slice(&5_u64.to_le_bytes());
        let mut data = header(PacketType::Data, 77).to_bytes().to_vec();
        data.extend([0; 30]);
        heard.take(&packet(&hello), FROM_TO);
        heard.take(&packet(&data), FROM_TO);
        // The other way, cut short, and not ours at all.
        data[4] = 78;
        heard.take(&packet(&data), [FROM_TO[1], FROM_TO[0]]);
        for bytes in [&packet(&data)[..23], &packet(&[0x52; 40]), &[]] {
            heard.take(bytes, FROM_TO);
        }
        heard
    }

    #[test]
    fn what_is_in_clear_is_heard() {
        let heard = heard();
        assert_eq!((heard.port, heard.number), (0x1234, Some(77)));
        assert_eq!(heard.hello.len(), CONNECT_CLEAR_BYTES);
    }

    #[test]
    fn forged_packets_pass_for_real_ones_until_their_tag_is_looked_at() {
        let hello = heard().hello;
        let real = ConnectIds::parse(&hello).unwrap();
        let forge = Forge::new(77, hello, 100).unwrap();
        let mut packet = Vec::new();
        let mut made = Vec::new();
        for n in 0..4_000 {
            forge.make(n, &mut packet);
            let header = Header::parse(&packet).unwrap();
            match n % KINDS {
                kind @ 0..=1 => {
                    assert_eq!((header.kind, packet.len()), (PacketType::Data, 100));
                    assert_eq!(header.connection == 77, kind == 1);
                }
                2 => {
                    let ids = ConnectIds::parse(&packet).unwrap();
                    assert_eq!((ids.from, ids.to), (real.from, real.to));
                    assert_eq!(ids.to_life, real.to_life);
                    assert_ne!(ids.from_life, real.from_life);
                    assert_eq!(packet.len(), CONNECT_BYTES + TAG_BYTES);
                }
                _ => assert_eq!(header.kind, PacketType::Connect),
            }
            made.push(packet.clone());
        }
        made.sort();
        made.dedup();
        assert_eq!(made.len(), 4_000);
    }

    #[test]
    fn bytes_are_those_of_the_first_interface() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
                    eth0: 21 2 3 4 5 6 7 8 29 10 11 12 13 14 15 16\n";
        assert_eq!(bytes_of(text), Some([29, 21]));
        assert_eq!(bytes_of("nothing"), None);
    }
}
