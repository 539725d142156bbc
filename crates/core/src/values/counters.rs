//! What an endpoint has done.

/// Counts since the endpoint was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages accepted for sending.
    pub sent: u64,
    /// Payload bytes in them.
    pub bytes_sent: u64,
    /// Messages handed to a handler or written to a buffer.
    pub received: u64,
    /// Payload bytes in them.
    pub bytes_received: u64,
    /// Messages that were kept in the endpoint's memory first.
    pub kept: u64,
    /// How often a message found no memory: it is set aside, and offered again when some
    /// becomes free.
    pub not_now: u64,
    /// Sends that found no credit: each try, also of a send that waits.
    pub no_credit: u64,
    /// Messages of ours that were refused.
    pub refused: u64,
    /// Peers that died.
    pub deaths: u64,
    /// Passes of the helper thread that moved something.
    pub helped: u64,
    /// Sleeps in the kernel.
    pub sleeps: u64,
    /// Packets that the link could not send (unreachable, too big).
    pub tx_failed: u64,
    /// Puts and gets that were done without the target, in the memory of
    /// another process of this host.
    pub direct: u64,
    /// Parts of our matched messages that we wrote to the receiver's memory, in
    /// another process of this host, while it copied the rest.
    pub shared: u64,
    /// The network protocol's own counts; zero without a network lane.
    pub protocol: portolan_proto::Counters,
}
