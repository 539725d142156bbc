//! Counters of an endpoint.

/// Packets that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Drops {
    /// Another wire version: its sender runs another release.
    pub version: u64,
    /// Not a packet of ours at all, or one whose fields contradict each other.
    pub malformed: u64,
    /// Unknown connection number or endpoint id, or another life of ours.
    pub unknown: u64,
    /// The tag does not fit: another secret, another suite, or forged.
    pub bad_tag: u64,
    /// Seen before, or too old to tell.
    pub replay: u64,
    /// No frame or hold budget was left; the sender sends it again.
    pub no_room: u64,
    /// Unverified connect packets beyond those that are opened per second.
    pub limited: u64,
    /// Introductions of peers that were not added, where strangers are refused.
    pub stranger: u64,
}

impl Drops {
    /// Packets dropped for any reason.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.version
            + self.malformed
            + self.unknown
            + self.bad_tag
            + self.replay
            + self.no_room
            + self.limited
            + self.stranger
    }
}

/// Counters of an endpoint since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Packets handed to the link, of every kind.
    pub packets_sent: u64,
    /// Bytes in these packets.
    pub bytes_sent: u64,
    /// Packets with message chunks among them, resends included.
    pub data_packets_sent: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Packets without chunks: acknowledgements alone.
    pub acks_sent: u64,
    /// Tail-loss and credit probes.
    pub probes_sent: u64,
    /// Paths that did not answer while others did.
    pub paths_given_up: u64,
    /// Always 0, kept for programs that read it: paths once moved to other
    /// routes of equal cost.
    pub rerouted: u64,
    /// Chunks cut in two that had been sent, or counted, as one: the receiver
    /// counts both parts.
    pub cut: u64,
    /// Resends that turned out to be needless.
    pub spurious: u64,
    /// Packets that verified.
    pub packets_received: u64,
    /// Bytes in these packets.
    pub bytes_received: u64,
    /// Messages accepted for sending.
    pub messages_sent: u64,
    /// Messages delivered whole.
    pub messages_delivered: u64,
    /// Message parts that had been seen before.
    pub duplicates: u64,
    /// Chunks held because something before them was missing or not wanted yet.
    pub held: u64,
    /// Message parts in flows that their sender knew to be stopped, beyond what
    /// can have been in flight.
    pub unstopped: u64,
    /// Key phases begun.
    pub rekeys: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
}
