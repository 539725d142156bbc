//! Where packets are longer than a chunk.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use portolan_link::xdp::Bare;
use portolan_sys::xdp::{Ring, Rings};

use super::*;

/// Bytes of a frame that lies in three chunks.
const LONG: usize = 8_900;
/// The longest frame with an MTU of 9,000, and in one chunk of 4 KiB: less IPv6
/// and UDP, and less Ethernet, those and the kernel's headroom.
const FRAME_MAX: usize = 9_000 - 48;
const IN_ONE_MAX: usize = 4_096 - 256 - 62;
/// Chunks for receiving of a host port that is alone at its queue, and how many
/// of them it may keep for its next turn.
const CHUNKS: u32 = 2_048;
const KEPT: u32 = 32;

fn jumbo(name: &str) -> Built {
    Built::with(name, &["--mtu", "9000"])
}

fn without(disabled: &str) -> Disabled {
    Disabled::parse(disabled).unwrap()
}

/// What was written into a ring and not read yet.
fn entries(ring: &Ring) -> u32 {
    let written = ring.producer().load(Ordering::Acquire);
    written.wrapping_sub(ring.consumer().load(Ordering::Acquire))
}

/// A host port with its rings, as anybody who has the socket may map them.
struct Watched {
    link: Xdp,
    rings: Rings,
    address: LinkAddress,
    _lease: Lease,
}

impl Watched {
    fn open(lab: &Lab, host: u32, disabled: &Disabled) -> Self {
        let ports = HostPorts::default();
        let Opened { port, bind, lease } = open_one(lab, host, &ports, 1, disabled).unwrap();
        let first = port.first.as_ref().map(AsFd::as_fd);
        let rings = Rings::map(port.socket.as_fd(), first, &port.sizes).unwrap();
        let mut link = adopt(lab, host, port);
        if let Some(bind) = bind {
            link.set_bound(bind() == Ok(()));
        }
        let address = LinkAddress {
            ip: lab.ipv4(host).to_ipv6_mapped().octets(),
            ..link.local_address().unwrap()
        };
        Self {
            link,
            rings,
            address,
            _lease: lease,
        }
    }

    fn send(&mut self, to: LinkAddress, len: usize) -> Result<usize, LinkError> {
        let mut bytes = vec![7; len];
        bytes[..HEAD.len()].copy_from_slice(&HEAD);
        let frame = TxFrame {
            to,
            bytes: &bytes,
            ecn: false,
        };
        self.link.set_now(now_ns());
        self.link.tx_burst(&[frame])
    }

    /// As [`Self::send`], however often it takes.
    fn send_surely(&mut self, to: LinkAddress, len: usize) {
        let start = now_ns();
        while self.send(to, len) != Ok(1) {
            assert!(now_ns() - start < 5_000_000_000, "full for good");
        }
    }

    /// Looks until a frame comes; gives the lengths of those that do.
    fn await_some(&mut self, max: usize) -> Vec<usize> {
        let start = now_ns();
        loop {
            let got = self.look(max);
            if !got.is_empty() || now_ns() - start > 100_000_000 {
                return got;
            }
        }
    }

    /// Looks once, for at most `max` frames; gives their lengths.
    fn look(&mut self, max: usize) -> Vec<usize> {
        let mut got = Vec::new();
        self.link.set_now(now_ns());
        let take = |frame: RxFrame<'_>| got.push(frame.bytes.len());
        self.link.rx_burst(max, take).unwrap();
        got
    }

    /// Fails unless all chunks are where they were at first.
    fn has_all(&mut self, to: &LinkAddress) {
        assert!(self.look(32).is_empty());
        let waiting = entries(&self.rings.fill);
        assert!(waiting > CHUNKS - KEPT, "{waiting} of {CHUNKS}");
        assert!(
            Bare::fill(&mut self.link, to, &HEAD).is_some(),
            "some are not back that were sent from"
        );
    }
}

#[test]
fn a_host_port_of_long_packets_passes_the_conformance_suite() {
    let built = jumbo("t-unit-jumbo");
    for family in [Family::V4, Family::V6] {
        for both in [true, false] {
            let open = || Two::open(&built.0, family, both);
            assert_eq!(open().fast(0).capabilities().frame_max, FRAME_MAX);
            conformance::all(open);
        }
    }
}

#[test]
fn long_packets_go_past_the_kernel_and_their_chunks_come_back() {
    let built = jumbo("t-unit-long");
    let [mut from, mut at] = [0, 1].map(|host| Watched::open(&built.0, host, &without("")));
    let [here, there] = [from.address, at.address];
    let room = IN_ONE_MAX + 256;
    // Around what one, two and three chunks hold on either side.
    let edges = [
        IN_ONE_MAX + 20,
        room,
        room + 4_096,
        2 * 3_840 - 42,
        FRAME_MAX,
    ];
    let around = |edge: usize| edge - 22..=(edge + 22).min(FRAME_MAX);
    let mut sent = 0;
    for len in edges.into_iter().flat_map(around) {
        from.send_surely(there, len);
        sent += 1;
        assert_eq!(at.await_some(8), [len]);
    }
    assert_eq!(
        from.send(there, FRAME_MAX + 1),
        Err(LinkError::TooBig(FRAME_MAX))
    );
    // As many as wait there, of which each look takes what it is asked for.
    let capacity = at.link.receive_capacity().full_packets;
    assert!(capacity > 100, "{capacity}");
    for _ in 0..capacity {
        from.send_surely(there, LONG);
    }
    let (start, parts) = (now_ns(), 3 * capacity as u32);
    while entries(&at.rings.rx) < parts && now_ns() - start < 5_000_000_000 {}
    assert_eq!(entries(&at.rings.rx), parts);
    for _ in 0..capacity {
        assert_eq!(at.look(1), [LONG]);
    }
    let (tx, rx) = (from.link.counters(), at.link.counters());
    let all = sent + capacity as u64;
    assert_eq!((tx.tx_frames, rx.rx_frames), (all, all));
    assert_eq!(
        (tx.tx_kernel, tx.lost, rx.lost, rx.rx_strange),
        (0, 0, 0, 0)
    );
    assert_eq!(at.link.kernel_counters().rx_frames, 0);
    // More than there is room for: what is lost holds no chunk.
    let mut more = 0;
    for _ in 0..2_000 {
        more += from.send(there, LONG).unwrap_or(0);
    }
    assert!(more > capacity, "{more}");
    let mut came = 0;
    while let got @ 1.. = at.await_some(32).len() {
        came += got;
    }
    assert!((capacity..more).contains(&came), "{came} of {more}");
    from.has_all(&there);
    at.has_all(&here);
}

#[test]
fn where_one_buffer_is_all_packets_are_as_long_as_a_chunk() {
    let built = jumbo("t-unit-one");
    let one = without("multibuffer");
    let [mut from, mut at] = [(0, &one), (1, &without(""))]
        .map(|(host, disabled)| Watched::open(&built.0, host, disabled));
    let there = at.address;
    assert_eq!(from.link.capabilities().frame_max, IN_ONE_MAX);
    assert_eq!(
        from.send(there, IN_ONE_MAX + 1),
        Err(LinkError::TooBig(IN_ONE_MAX))
    );
    assert_eq!(from.send(there, IN_ONE_MAX), Ok(1));
    assert_eq!(at.await_some(8), [IN_ONE_MAX]);
    // A longer one reaches it through the kernel.
    assert_eq!(at.send(from.address, LONG), Ok(1));
    assert_eq!(from.await_some(8), [LONG]);
    assert_eq!(from.link.gate().counters().too_long, 1);
    assert_eq!(from.link.kernel_counters().rx_frames, 1);
}

#[test]
fn ranks_of_a_host_share_a_queue_for_long_packets() {
    share(&jumbo("t-unit-share9").0, LONG, "");
}

#[test]
fn the_dead_are_robbed_of_the_chunks_of_long_packets() {
    let built = jumbo("t-unit-rob9");
    let mut all = SharedQueue::open(&built.0);
    (0..20).for_each(|_| rob_the_dead(&mut all, LONG));
}

#[test]
fn who_gets_no_more_chunks_finds_the_stopped() {
    let built = jumbo("t-unit-stop9");
    let mut all = SharedQueue::open(&built.0);
    // What the first has, until it leaves, the others have not: nothing comes to
    // the second, which is how it finds out.
    leave_the_stopped(&mut all, LONG);
}

#[test]
fn who_gets_no_more_chunks_leaves_the_queue() {
    let built = jumbo("t-unit-dry9");
    let mut all = SharedQueue::open(&built.0);
    all.hold(std::process::id());
    // One for which no time passes takes all chunks and gives none back.
    let (End::Fast(mut greedy), at) = (all.parts.remove(0), all.addresses.remove(0)) else {
        unreachable!("all have a host port")
    };
    greedy.set_now(now_ns());
    let bytes = &[7; LONG];
    let (mut came, mut quiet) = (0, 0);
    while quiet < 300 {
        let frame = TxFrame {
            to: at,
            bytes,
            ecn: false,
        };
        let _ = all.other.tx_burst(&[frame]);
        let found = greedy.rx_burst(32, |_| {}).unwrap();
        came += found;
        quiet = if found == 0 { quiet + 1 } else { 0 };
    }
    assert!(came > 1_000 && greedy.counters().lost == 0, "{came}");
    // It takes them along.
    drop(greedy);
    all.hold(0);
    let address = all.addresses[0];
    carry(
        &mut all.other,
        &mut all.parts[0],
        address,
        (100, LONG),
        LOOK_NS,
    );
    assert_eq!(all.part(0).counters().lost, 1);
    carries(&mut all.other, &mut all.parts[0], address, LONG);
}
