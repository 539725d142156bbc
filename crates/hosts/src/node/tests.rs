//! Host ports between two hosts of a lab. Needs root.

mod jumbo;

use std::any::Any;
use std::fs::File;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use portolan_link::conformance::{self, Pair};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::xdp::{HostPort, Sharing, Sizes, Xdp, sizes};
use portolan_link::{Capabilities, Link, LinkAddress, LinkError, RxFrame, TxFrame};
use portolan_sys::clock::now_ns;
use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use portolan_sys::xdp::{self, Modes};

use super::ports::HostPorts;
use crate::lab::{Built, Lab};

/// What gives a host port back.
type Lease = Box<dyn Any + Send>;

/// Opens a host port on a host of the lab.
fn open(lab: &Lab, host: u32) -> (Xdp, Lease) {
    let ports = HostPorts::default();
    let mut all = open_all(lab, host, &ports, 1, &Disabled::default());
    all.remove(0)
}

/// Opens all of so many host ports of a queue, in the order that the kernel
/// wants.
fn open_all(
    lab: &Lab,
    host: u32,
    ports: &HostPorts,
    ranks: u32,
    disabled: &Disabled,
) -> Vec<(Xdp, Lease)> {
    // On a busy host the kernel frees a queue later than a job would wait.
    let until = now_ns() + PATIENCE_NS;
    let open = || loop {
        match open_one(lab, host, ports, ranks, disabled) {
            Err(_) if now_ns() < until => sleep(Duration::from_millis(10)),
            opened => break opened.unwrap(),
        }
    };
    let opened: Vec<Opened> = (0..ranks).map(|_| open()).collect();
    let map = |it: Opened| (adopt(lab, host, it.port), it.bind, it.lease);
    let mapped: Vec<_> = opened.into_iter().map(map).collect();
    let bind = |(mut link, bind, lease): (Xdp, Option<Bind>, Lease)| {
        if let Some(bind) = bind {
            link.set_bound(bind() == Ok(()));
        }
        (link, lease)
    };
    mapped.into_iter().map(bind).collect()
}

type Bind = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// A host port as it is passed on.
struct Opened {
    port: HostPort,
    bind: Option<Bind>,
    lease: Lease,
}

/// Opens one of `ranks` host ports, without what is disabled.
fn open_one(
    lab: &Lab,
    host: u32,
    ports: &HostPorts,
    ranks: u32,
    disabled: &Disabled,
) -> Result<Opened, String> {
    let opened = lab
        .in_host(host, || Ok(ports.open(None, ranks, disabled)))
        .unwrap()?;
    let portolan_boot::HostPort {
        info,
        lease,
        descriptors,
        unbound,
    } = opened;
    assert_eq!(info.unbound, unbound.is_some());
    let (first, bind) = unbound.map(|it| (it.first, it.bind)).unzip();
    let [area, socket, udp, gate] = descriptors;
    let [index, count] = info.sharing;
    let port = HostPort {
        area,
        socket,
        first,
        udp,
        gate,
        sizes: Sizes::from_words(info.sizes),
        sharing: Sharing { index, count },
        multi_buffer: info.multi_buffer,
        interface: info.interface,
        mac: info.mac,
        mtu: info.mtu,
    };
    Ok(Opened { port, bind, lease })
}

fn adopt(lab: &Lab, host: u32, port: HostPort) -> Xdp {
    // Routes and neighbours are those of the thread's network.
    let adopt = || Ok(Xdp::adopt(port, &UdpConfig::default()).unwrap());
    lab.in_host(host, adopt).unwrap()
}

/// One end, either link, that makes its calls in its own network and always
/// knows the time.
enum End {
    Fast(Box<Xdp>),
    Plain(Box<Udp>),
}

/// The beginning of every frame: only what looks like a packet of ours, with
/// header and tag, is steered.
const HEAD: [u8; 28] = {
    let mut head = [0; 28];
    head[0] = 0x12;
    head
};

impl Link for End {
    fn capabilities(&self) -> Capabilities {
        let link = match self {
            Self::Fast(link) => link.capabilities(),
            Self::Plain(link) => link.capabilities(),
        };
        Capabilities {
            frame_max: link.frame_max - HEAD.len(),
            ..link
        }
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let whole: Vec<_> = frames.iter().map(|f| [&HEAD, f.bytes].concat()).collect();
        let frames: Vec<_> = frames
            .iter()
            .zip(&whole)
            .map(|(frame, bytes)| TxFrame { bytes, ..*frame })
            .collect();
        let sent = match self {
            Self::Fast(link) => {
                link.set_now(now_ns());
                link.tx_burst(&frames)
            }
            Self::Plain(link) => link.tx_burst(&frames),
        };
        sent.map_err(|error| match error {
            LinkError::TooBig(most) => LinkError::TooBig(most.saturating_sub(HEAD.len())),
            error => error,
        })
    }

    fn rx_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let sink = |frame: RxFrame<'_>| {
            sink(RxFrame {
                bytes: &mut frame.bytes[HEAD.len()..],
                ..frame
            });
        };
        match self {
            Self::Fast(link) => {
                link.set_now(now_ns());
                link.rx_burst(max, sink)
            }
            Self::Plain(link) => link.rx_burst(max, sink),
        }
    }
}

impl End {
    fn local(&self) -> LinkAddress {
        match self {
            Self::Fast(link) => link.local_address().unwrap(),
            Self::Plain(link) => link.local_address().unwrap(),
        }
    }

    fn fast(&self) -> &Xdp {
        match self {
            Self::Fast(link) => link,
            Self::Plain(_) => panic!("it has no host port"),
        }
    }
}

/// Which IP two ends use.
#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

struct Two {
    ends: [End; 2],
    addresses: [LinkAddress; 2],
    stranger: UdpSocket,
    _leases: Vec<Lease>,
}

impl Two {
    /// h0 has a host port, h1 has one if `both`.
    fn open(lab: &Lab, family: Family, both: bool) -> Self {
        let mut leases = Vec::new();
        let mut fast = |host| {
            let (link, lease) = open(lab, host);
            leases.push(lease);
            End::Fast(Box::new(link))
        };
        let plain = || lab.in_host(1, || Ok(Udp::open(&UdpConfig::default()).unwrap()));
        let ends = [
            fast(0),
            if both {
                fast(1)
            } else {
                End::Plain(Box::new(plain().unwrap()))
            },
        ];
        let ip = |host| match family {
            Family::V4 => lab.ipv4(host).to_ipv6_mapped(),
            Family::V6 => lab.ipv6(host),
        };
        let addresses = [0, 1].map(|end| LinkAddress {
            ip: ip(end as u32).octets(),
            ..ends[end].local()
        });
        let stranger = lab.in_host(0, || Ok(UdpSocket::bind("[::]:0").unwrap()));
        Self {
            ends,
            addresses,
            stranger: stranger.unwrap(),
            _leases: leases,
        }
    }

    fn fast(&self, end: usize) -> &Xdp {
        self.ends[end].fast()
    }
}

impl Pair for Two {
    type Link = End;

    fn link(&mut self, end: usize) -> &mut End {
        &mut self.ends[end]
    }

    fn address(&self, end: usize) -> LinkAddress {
        self.addresses[end]
    }

    fn disturb(&mut self, end: usize) {
        let LinkAddress { ip, port, .. } = self.addresses[end];
        let to = (IpAddr::from(ip), port);
        self.stranger.send_to(&[0x5a; 100], to).unwrap();
    }
}

#[test]
fn a_host_port_passes_the_conformance_suite() {
    let built = Built::up("t-unit-xdp");
    for family in [Family::V4, Family::V6] {
        for both in [true, false] {
            conformance::all(|| Two::open(&built.0, family, both));
        }
    }
}

#[test]
fn packets_go_past_the_kernel_in_both_directions() {
    let built = Built::up("t-unit-past");
    for family in [Family::V4, Family::V6] {
        let mut two = Two::open(&built.0, family, true);
        for from in [0, 1] {
            let to = two.addresses[1 - from];
            for n in 0..200_u32 {
                let bytes = &n.to_le_bytes();
                let ecn = n % 2 == 0;
                let frame = TxFrame { to, bytes, ecn };
                assert_eq!(two.ends[from].tx_burst(&[frame]), Ok(1));
                let mut got = Vec::new();
                let mut looks = 0;
                while got.is_empty() && looks < 10_000 {
                    looks += 1;
                    let take = |frame: RxFrame<'_>| got.push(frame.bytes.to_vec());
                    two.ends[1 - from].rx_burst(8, take).unwrap();
                }
                assert_eq!(got, [bytes]);
            }
        }
        for end in [0, 1] {
            let counters = two.fast(end).counters();
            assert_eq!((counters.tx_frames, counters.rx_frames), (200, 200));
            assert_eq!((counters.tx_kernel, counters.lost), (0, 0));
            assert_eq!(two.fast(end).kernel_counters().rx_frames, 0);
        }
    }
}

/// An end of a pair of host ports, with a clock of its own.
struct MisSteered<'a> {
    from: &'a mut Xdp,
    at: &'a mut Xdp,
    to: LinkAddress,
    now: u64,
}

impl<'a> MisSteered<'a> {
    /// The ends on the first two hosts, and the port that the first sends from.
    fn of(built: &Built, [from, at]: [&'a mut Xdp; 2]) -> (Self, u16) {
        let own = from.local_address().unwrap().port;
        let to = LinkAddress {
            ip: built.0.ipv4(1).to_ipv6_mapped().octets(),
            ..at.local_address().unwrap()
        };
        let now = now_ns();
        let mut it = Self { from, at, to, now };
        assert_eq!(it.send(1, 10), (own, 0));
        (it, own)
    }

    /// Sends `count` packets of `len` bytes, and gives the source port that they
    /// came from and how many took the kernel's way.
    fn send(&mut self, count: usize, len: usize) -> (u16, u64) {
        let to = self.to;
        let bytes = &[&HEAD[..], &vec![7; len]].concat();
        let frame = TxFrame {
            to,
            bytes,
            ecn: false,
        };
        self.from.set_now(self.now);
        let before = self.from.counters().tx_kernel;
        assert_eq!(self.from.tx_burst(&vec![frame; count]), Ok(count));
        let (start, mut got) = (now_ns(), Vec::new());
        while got.len() < count && now_ns() - start < LOOK_NS {
            self.at.set_now(now_ns());
            let take = |frame: RxFrame<'_>| got.push(frame.from.port);
            self.at.rx_burst(8, take).unwrap();
        }
        let from = got[0];
        assert_eq!(got, vec![from; count]);
        (from, self.from.counters().tx_kernel - before)
    }

    /// Hears it for 6 ms while it sends streams.
    fn hear_stream(&mut self, own: u16) {
        for _ in 0..4 {
            self.from.mis_steered(&self.to);
            assert_eq!(self.send(8, 1_400), (own, 8));
            self.now += 2_000_000;
        }
    }

    /// Hears that they came by a detour, for 8 ms while it sends.
    fn hear(&mut self) {
        for _ in 0..4 {
            self.from.mis_steered(&self.to);
            self.send(2, 10);
            self.now += 2_000_000;
            self.from.set_now(self.now);
        }
        self.from.mis_steered(&self.to);
    }
}

#[test]
fn what_arrives_by_a_detour_is_sent_from_other_ports() {
    let built = Built::up("t-unit-ports");
    let [(mut from, _a), (mut at, _b)] = [0, 1].map(|host| open(&built.0, host));
    let (mut it, own) = MisSteered::of(&built, [&mut from, &mut at]);
    let to = it.to;
    // Too few packets, or heard of too long ago.
    for _ in 0..100 {
        it.from.mis_steered(&to);
        it.now += 1_000_000;
        it.from.set_now(it.now);
    }
    it.send(20, 10);
    it.now += 20_000_000;
    it.from.set_now(it.now);
    it.from.mis_steered(&to);
    assert_eq!(it.send(20, 10), (own, 0));
    // Streams take the kernel's way on purpose.
    for _ in 0..4 {
        it.hear_stream(own);
    }
    let mut ports = vec![own];
    for _ in 0..64 {
        it.hear();
        let (port, by_kernel) = it.send(1, 10);
        assert!(
            port >= 49_152 && !ports.contains(&port),
            "{port}: {ports:?}"
        );
        assert_eq!(by_kernel, 0);
        ports.push(port);
    }
    // Enough; another time.
    for _ in 0..3 {
        it.hear();
        assert_eq!(it.send(1, 10), (own, 0));
    }
    assert_eq!(it.from.counters().tried, 65);
    it.now += 61_000_000_000;
    assert_eq!(it.send(1, 10), (own, 0));
    it.hear();
    assert_ne!(it.send(1, 10).0, own);
    // Who has yet to learn where we are may take it from the packet.
    it.from.introduce(&to);
    assert_eq!(it.send(1, 10), (own, 0));
}

/// How long what surely comes may take, ns: it only ends a test that would hang.
const PATIENCE_NS: u64 = 120_000_000_000;

/// How long is looked for what may be lost, ns.
const LOOK_NS: u64 = 5_000_000_000;

/// Sends from one end to the other until `count` frames of `len` bytes have
/// come, or the time is over; gives what has.
fn carry(
    from: &mut End,
    to: &mut End,
    at: LinkAddress,
    (count, len): (u32, usize),
    limit_ns: u64,
) -> Vec<u32> {
    let (mut sent, mut got) = (0_u32, Vec::new());
    let mut bytes = vec![7; len];
    let start = now_ns();
    while got.len() < count as usize && now_ns() - start < limit_ns {
        if sent < count {
            bytes[..4].copy_from_slice(&sent.to_le_bytes());
            let frame = TxFrame {
                to: at,
                bytes: &bytes,
                ecn: false,
            };
            sent += from.tx_burst(&[frame]).map_or(0, |taken| taken as u32);
        }
        let take = |frame: RxFrame<'_>| {
            assert_eq!(frame.bytes[4..], bytes[4..]);
            got.extend(frame.bytes.first_chunk().map(|n| u32::from_le_bytes(*n)));
        };
        to.rx_burst(8, take).unwrap();
    }
    got.sort_unstable();
    got
}

/// As [`carry`]; all must come, in as many frames as chunks go round often.
fn carries(from: &mut End, to: &mut End, at: LinkAddress, len: usize) {
    const FRAMES: u32 = 5_000;
    let got = carry(from, to, at, (FRAMES, len), PATIENCE_NS);
    assert!(got.iter().copied().eq(0..FRAMES), "{} came", got.len());
}

/// Three parts of the queue of h0 and one of h1's.
struct SharedQueue {
    ports: HostPorts,
    parts: Vec<End>,
    other: End,
    addresses: Vec<LinkAddress>,
    there: LinkAddress,
    leases: Vec<Lease>,
}

impl SharedQueue {
    fn open(lab: &Lab) -> Self {
        Self::without(lab, &Disabled::default())
    }

    fn without(lab: &Lab, disabled: &Disabled) -> Self {
        let ports = HostPorts::default();
        let mut leases = Vec::new();
        let mut fast = |(link, lease)| {
            leases.push(lease);
            End::Fast(Box::new(link))
        };
        let all = open_all(lab, 0, &ports, 3, disabled);
        let parts: Vec<End> = all.into_iter().map(&mut fast).collect();
        let why = open_one(lab, 0, &ports, 3, disabled).map(drop).unwrap_err();
        assert!(why.contains("all 3 parts of queue 0 of eth0"), "{why}");
        let other = fast(open(lab, 1));
        let at = |end: &End, host| LinkAddress {
            ip: lab.ipv4(host).to_ipv6_mapped().octets(),
            ..end.local()
        };
        Self {
            addresses: parts.iter().map(|end| at(end, 0)).collect(),
            there: at(&other, 1),
            parts,
            other,
            ports,
            leases,
        }
    }

    fn part(&self, n: usize) -> &Xdp {
        self.parts[n].fast()
    }

    /// Sends more frames of `len` bytes than a ring holds to one who reads none.
    fn send_unread(&mut self, to: LinkAddress, len: usize) {
        let bytes = &vec![7; len];
        for _ in 0..600 {
            let ecn = false;
            let _ = self.other.tx_burst(&[TxFrame { to, bytes, ecn }]);
        }
    }

    /// Makes it seem that a process holds the rings.
    fn hold(&self, process: u32) {
        let (memory, at) = self.ports.holder().unwrap();
        File::from(memory)
            .write_all_at(&u64::from(process).to_ne_bytes(), at)
            .unwrap();
    }
}

/// With frames of `len` bytes.
fn rob_the_dead(all: &mut SharedQueue, len: usize) {
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    all.hold(dead.id());
    let address = all.addresses[0];
    carries(&mut all.other, &mut all.parts[0], address, len);
    carries(&mut all.parts[0], &mut all.other, all.there, len);
    assert_eq!(all.part(0).counters().lost, 0);
}

/// Two of three find the rings held, and their holder alive: they go by the
/// kernel. With frames of `len` bytes.
fn leave_the_stopped(all: &mut SharedQueue, len: usize) {
    let mut child = Command::new("sleep")
        .arg("1000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    all.hold(child.id());
    for part in [0, 1] {
        let address = all.addresses[part];
        let until = now_ns() + PATIENCE_NS;
        while all.part(part).counters().lost == 0 && now_ns() < until {
            // Few: what comes meanwhile takes chunks that the third needs later.
            let few = (10, len);
            carry(&mut all.other, &mut all.parts[part], address, few, LOOK_NS);
            sleep(Duration::from_millis(1));
        }
        assert_eq!(all.part(part).counters().lost, 1);
        let before = all.part(part).kernel_counters();
        carries(&mut all.other, &mut all.parts[part], address, len);
        carries(&mut all.parts[part], &mut all.other, all.there, len);
        let after = all.part(part).kernel_counters();
        assert_eq!(after.rx_frames - before.rx_frames, 5_000);
        assert_eq!(after.tx_frames - before.tx_frames, 5_000);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_dead_are_robbed_and_the_stopped_are_left() {
    let built = Built::up("t-unit-rob");
    let mut all = SharedQueue::open(&built.0);
    let len = 4;
    rob_the_dead(&mut all, len);
    leave_the_stopped(&mut all, len);
    // The third has not come to it yet, and need not.
    let address = all.addresses[2];
    carries(&mut all.other, &mut all.parts[2], address, len);
    assert_eq!(all.part(2).counters().lost, 0);
}

#[test]
fn ranks_of_a_host_share_a_queue() {
    share(&Built::up("t-unit-share").0, 4, "");
}

#[test]
fn ranks_of_a_host_share_a_queue_that_is_bound_when_all_have_mapped_its_rings() {
    share(&Built::up("t-unit-order").0, 4, "remap");
}

#[test]
fn what_cannot_be_bound_goes_through_the_kernel() {
    let built = Built::up("t-unit-unbound");
    let disabled = Disabled::parse("remap").unwrap();
    let ports = HostPorts::default();
    let [first, second] = [0, 1].map(|_| open_one(&built.0, 0, &ports, 2, &disabled).unwrap());
    let interface = first.port.interface;
    let mut link = adopt(&built.0, 0, first.port);
    // Somebody else takes the queue meanwhile.
    let sizes = sizes(2_048, 1);
    let area = SharedMemory::create("t-unbound", sizes.area_bytes().unwrap()).unwrap();
    let taken = built
        .0
        .in_host(0, || Ok(xdp::first(&area, &sizes).unwrap()));
    let taken = taken.unwrap();
    let modes = Modes::default();
    let mut tries = 0;
    while xdp::bind_first(taken.as_fd(), interface, 0, modes).is_err() {
        // The kernel has yet to free it of the socket that was tried first.
        tries += 1;
        assert!(tries < 1_000, "the queue is not free");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for bind in [first.bind, second.bind] {
        let why = bind.unwrap()().unwrap_err();
        assert!(why.contains("taken by another program"), "{why}");
    }
    link.set_bound(false);
    drop(taken);
    let (other, _lease) = open(&built.0, 1);
    let at = |link: &Xdp, host| LinkAddress {
        ip: built.0.ipv4(host).to_ipv6_mapped().octets(),
        ..link.local_address().unwrap()
    };
    let addresses = [at(&link, 0), at(&other, 1)];
    let (mut here, mut there) = (End::Fast(Box::new(link)), End::Fast(Box::new(other)));
    carries(&mut here, &mut there, addresses[1], 4);
    carries(&mut there, &mut here, addresses[0], 4);
}

#[test]
fn a_part_that_was_given_back_is_given_again() {
    let built = Built::up("t-unit-again");
    let lab = &built.0;
    let mut all = SharedQueue::open(lab);
    let len = 4;
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    // More often than chunks that each took along would last.
    for _ in 0..20 {
        let (dying, lease) = (all.parts.remove(0), all.leases.remove(0));
        let address = all.addresses.remove(0);
        all.send_unread(address, len);
        // Somebody else has died with the lock.
        all.hold(dead.id());
        drop(dying);
        drop(lease);
        let opened = open_one(lab, 0, &all.ports, 3, &Disabled::default()).unwrap();
        let mut next = End::Fast(Box::new(adopt(lab, 0, opened.port)));
        let address = LinkAddress {
            ip: lab.ipv4(0).to_ipv6_mapped().octets(),
            ..next.local()
        };
        carries(&mut all.other, &mut next, address, len);
        carries(&mut next, &mut all.other, all.there, len);
        assert_eq!(next.fast().kernel_counters().rx_frames, 0);
        assert_eq!(next.fast().counters().lost, 0);
        all.addresses.push(address);
        all.parts.push(next);
        all.leases.insert(2, opened.lease);
    }
}

/// With frames of `len` bytes.
fn share(lab: &Lab, len: usize, disabled: &str) {
    let mut all = SharedQueue::without(lab, &Disabled::parse(disabled).unwrap());
    for part in 0..3 {
        let address = all.addresses[part];
        carries(&mut all.other, &mut all.parts[part], address, len);
        carries(&mut all.parts[part], &mut all.other, all.there, len);
        let counters = all.part(part).counters();
        assert_eq!((counters.tx_frames, counters.rx_frames), (5_000, 5_000));
        assert_eq!(all.part(part).kernel_counters().rx_frames, 0);
    }
    // One that has ended takes nothing along that the others need: its chunks
    // that packets have come to are gone, with those in its ring.
    let address = all.addresses[0];
    let dying = all.parts.remove(0);
    all.send_unread(address, len);
    drop(dying);
    for part in 0..2 {
        let address = all.addresses[part + 1];
        carries(&mut all.other, &mut all.parts[part], address, len);
        carries(&mut all.parts[part], &mut all.other, all.there, len);
        assert_eq!(all.part(part).kernel_counters().rx_frames, 0);
    }
}
