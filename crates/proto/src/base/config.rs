//! Settings of an endpoint. Every default is derived from a stated link: a
//! 10 Gbit/s cluster Ethernet with 50 us round trips between sleeping hosts.

use crate::congestion::Mode;

/// Packets that one acknowledgement's bitmap covers; the send window of a path
/// never spans more.
pub const WINDOW_SPAN: usize = 512;

/// Maximum number of paths between two endpoints in one direction, the first included.
pub const PATHS_MAX: usize = 4;

/// Maximum number of flows of each priority that a pair keeps.
pub const FLOWS_MAX: usize = 16;

/// Maximum number of active peers, unless [`Config::active`] is larger.
const CONNECTIONS_MAX: u32 = 1 << 14;

/// Largest first packet number: counting from it never overflows.
pub const FIRST_PACKET_MAX: u64 = 1 << 63;

/// Largest frame, and so the largest held chunk, bytes: a jumbo packet.
pub(crate) const FRAME_BYTES_MAX: usize = 9728;

/// UDP payload that every path takes: 1,280 bytes of IPv6 less 48 of headers.
pub(crate) const PACKET_BASE: u16 = 1232;

/// Settings, fixed while the endpoint lives. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Maximum number of peers. Default 1,024; 64 bytes each, and 336 more once
    /// it had a connection.
    pub peers: u32,
    /// Initial number of peers that can be active; [`Config::connections`] is
    /// the maximum. Default 64; about 10 KB each, and 3 KB for its keys. The
    /// peer that is idle longest makes room for the next; if none is idle, the
    /// caller provides [more](crate::Endpoint::wanted_connections).
    pub active: u32,
    /// Maximum number of active paths beside the first of each peer. Default 0;
    /// about 3 KB each. A pair that finds none free uses the paths that it has.
    pub more_paths: u32,
    /// Frames of the shared pool. Default 2,048.
    pub frames: u32,
    /// Bytes of a frame: headroom, the largest packet and its tag. Default 2,048.
    pub frame_bytes: u32,
    /// Maximum number of long messages under way, an eighth of them reserved
    /// for replies; at least 2. Default 256.
    pub longs: u32,
    /// Flows of each priority towards each peer, 1 to 16. Default 16.
    pub flows: u16,
    /// Largest UDP payload that this side's interface takes, bytes. Default
    /// 1,472 (an MTU of 1,500 and IPv4).
    pub packet_max: u16,
    /// Packets that the link's receive buffer holds, shared by all current
    /// senders. Default 184 (212,992 bytes of full Ethernet frames).
    pub receive_packets: u32,
    /// Frames that one peer's undelivered messages may hold here, for each
    /// priority, a quarter of the pool at most. Default 512.
    pub hold_frames: u32,
    /// Frames that may be queued or in flight to one peer. Default 512. A flow
    /// queues at most as many as are free, so that others go on if it is
    /// stopped.
    pub queue_frames: u32,
    /// Congestion control of all peers; `None`: as given to
    /// [`crate::Endpoint::add_peer`].
    pub congestion: Option<Mode>,
    /// Added to SRTT + 4 RTTVAR before the tail-loss probe, ns. Default 30,000:
    /// one wake-up of a sleeping peer.
    pub probe_slack_ns: u64,
    /// Silence after which a peer that is waited for counts as dead, ns.
    /// Default 3 s; `u64::MAX`: never.
    pub silence_ns: u64,
    /// Time after which a peer that never answered a connect counts as dead,
    /// ns. Default `u64::MAX`: connecting goes on, with
    /// [`crate::PeerEvent::Waiting`] after `silence_ns`.
    pub connect_ns: u64,
    /// Idle time after which a peer's active state is parked, ns. Default 10 s.
    pub idle_ns: u64,
    /// Packets sealed under one key before the next phase, at most the suite's
    /// own limit. Default `u64::MAX`: the suite's.
    pub rekey_packets: u64,
    /// Peers may be added and removed while the endpoint lives; connect packets
    /// introduce it to peers that do not know it. Default false.
    pub introduces: bool,
    /// Strangers are accepted: peers that introduce themselves and were not
    /// added. Default false.
    pub strangers: bool,
    /// First packet number of path 0, at most [`FIRST_PACKET_MAX`]. Default
    /// 0; tests start near a wrap.
    pub first_packet: u64,
    /// First message number of every flow; credit and the count of congestion
    /// marks begin there too. Default 0.
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
    /// Maximum number of active peers once the tables have grown to full length.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.peers.min(CONNECTIONS_MAX).max(self.active)
    }

    /// # Panics
    /// If a value is out of range; the caller checks user input.
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
