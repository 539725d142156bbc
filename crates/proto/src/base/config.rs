//! Settings of an endpoint. Every default is derived from a stated link: a
//! 10 Gbit/s cluster Ethernet with 50 us round trips between sleeping hosts.

use crate::congestion::Mode;

/// Packets that one acknowledgement's bitmap can speak of; the send window of
/// a path never spans more.
pub const WINDOW_SPAN: usize = 512;

/// Paths between two endpoints in one direction, at most, the first included.
pub const PATHS_MAX: usize = 4;

/// Flows of each priority that a pair keeps, at most.
pub const FLOWS_MAX: usize = 16;

/// Peers that are active at once where peers come and go, at most, if
/// [`Config::active`] is not more.
const CONNECTIONS_MAX: u32 = 1 << 14;

/// Largest first packet number: whatever follows, counting never overflows.
pub const FIRST_PACKET_MAX: u64 = 1 << 63;

/// Largest frame, and so the largest held chunk, bytes: a jumbo packet.
pub(crate) const FRAME_BYTES_MAX: usize = 9728;

/// UDP payload that every path takes: 1,280 bytes of IPv6 less 48 of headers.
pub(crate) const PACKET_BASE: u16 = 1232;

/// Settings, fixed while the endpoint lives. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Peers that can be added. Default 1,024; 56 bytes each, and 208 more of
    /// each that was talked to.
    pub peers: u32,
    /// Peers that can be active at once. Default 64; about 10 KB each, and 3 KB
    /// for its keys. The longest idle one makes room for the next. Where peers
    /// come and go ([`Config::introduces`]) these are the first: see [`Config::connections`].
    pub active: u32,
    /// Paths that can be active at once beside the first one of each peer.
    /// Default 0; about 3 KB each. A pair that finds none free does with the
    /// paths that it has.
    pub more_paths: u32,
    /// Frames of the shared pool. Default 2,048.
    pub frames: u32,
    /// Bytes of a frame: headroom, the largest packet and its tag. Default 2,048.
    pub frame_bytes: u32,
    /// Long messages under way at once, an eighth of them replies only; at
    /// least 2. Default 256.
    pub longs: u32,
    /// Flows of each priority towards each peer, 1 to 16. Default 16.
    pub flows: u16,
    /// Largest UDP payload that this side's interface takes, bytes. Default
    /// 1,472 (an MTU of 1,500 and IPv4).
    pub packet_max: u16,
    /// Packets that the link's receive buffer holds, shared by all peers that
    /// now send. Default 184 (212,992 bytes of full Ethernet frames).
    pub receive_packets: u32,
    /// Frames that one peer's undelivered messages may hold here, for each
    /// priority, a quarter of the pool at most. Default 512.
    pub hold_frames: u32,
    /// Frames that may be queued or in flight towards one peer. Default 512. In one
    /// flow no more wait than there are free frames: others go on if it is stopped.
    pub queue_frames: u32,
    /// Congestion control: `None` picks per peer as told by
    /// [`crate::Endpoint::add_peer`].
    pub congestion: Option<Mode>,
    /// Added to SRTT + 4 RTTVAR before the tail-loss probe, ns. Default 30,000:
    /// one wake-up of a sleeping peer.
    pub probe_slack_ns: u64,
    /// An operation that waits for a silent peer reports after this, ns.
    /// Default 3 s; `u64::MAX` never.
    pub silence_ns: u64,
    /// A peer that never answered a connect is dead after this, ns. Default
    /// `u64::MAX`: it is retried, with [`crate::PeerEvent::Waiting`] after
    /// `silence_ns`.
    pub connect_ns: u64,
    /// A peer quiet for this long gives its active state back, ns. Default 10 s.
    pub idle_ns: u64,
    /// Packets sealed under one key before the next phase, at most the suite's
    /// own limit. Default `u64::MAX`: the suite's.
    pub rekey_packets: u64,
    /// Peers may be added and removed while the endpoint lives, and need not know of it:
    /// its connect packets introduce it. Default false.
    pub introduces: bool,
    /// Who introduces itself, and was not added, is let in. Default false.
    pub strangers: bool,
    /// First packet number of path 0, at most [`FIRST_PACKET_MAX`]. Default
    /// 0; tests start near a wrap.
    pub first_packet: u64,
    /// First message number of every flow, where credit and the count of
    /// congestion marks begin too. Default 0.
    pub first_message: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            peers: 1024,
            active: 64,
            more_paths: 0,
            frames: 2048,
            frame_bytes: 2048,
            longs: 256,
            flows: 16,
            packet_max: 1472,
            receive_packets: 184,
            hold_frames: 512,
            queue_frames: 512,
            congestion: None,
            probe_slack_ns: 30_000,
            silence_ns: 3_000_000_000,
            connect_ns: u64::MAX,
            idle_ns: 10_000_000_000,
            rekey_packets: u64::MAX,
            introduces: false,
            strangers: false,
            first_packet: 0,
            first_message: 0,
        }
    }
}

impl Config {
    /// Peers that can be active at once when the tables have become as long as they may.
    #[must_use]
    pub fn connections(&self) -> u32 {
        if self.introduces {
            self.peers.min(CONNECTIONS_MAX).max(self.active)
        } else {
            self.active
        }
    }

    /// # Panics
    /// If a value is out of range: the caller checks what users give it.
    pub(crate) fn assert_valid(&self) {
        assert!(
            self.flows >= 1 && self.flows as usize <= FLOWS_MAX,
            "flows: 1 to 16"
        );
        assert!(self.frames >= 32, "frames: at least 32");
        assert!(self.frame_bytes >= 1472, "frame_bytes: at least 1,472");
        assert!(
            u32::from(self.packet_max) + 192 <= self.frame_bytes,
            "packet_max: fits a frame"
        );
        assert!(
            self.frame_bytes as usize <= FRAME_BYTES_MAX,
            "frame_bytes: at most 9,728"
        );
        assert!(self.packet_max >= PACKET_BASE, "packet_max: at least 1,232");
        assert!(
            self.active >= 1 && self.longs >= 2,
            "active: at least 1, longs: at least 2"
        );
        assert!(self.peers < 1 << 20, "peers: fewer than 1,048,576");
        assert!(self.rekey_packets >= 1, "rekey_packets: at least 1");
        assert!(
            self.hold_frames >= 2 && self.queue_frames >= 2,
            "at least 2 frames a peer"
        );
    }
}
