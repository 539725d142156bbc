//! Counters of an endpoint.

/// Counts since the endpoint was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages accepted for sending.
    pub sent: u64,
    /// Messages handed to a handler or written to a buffer.
    pub received: u64,
    /// Payload bytes in messages accepted for sending.
    pub bytes_sent: u64,
    /// Payload bytes in messages received.
    pub bytes_received: u64,
    /// Messages that were first stored in the endpoint's memory.
    pub kept: u64,
    /// Attempts to take a message that failed, retries included: it is set aside, and offered
    /// again later.
    pub not_now: u64,
    /// Attempts to send that found no credit, retries of a blocking send included.
    pub no_credit: u64,
    /// Sent messages that were refused.
    pub refused: u64,
    /// Peers that died.
    pub deaths: u64,
    /// Passes of the helper thread that moved something.
    pub helped: u64,
    /// Sleeps in the kernel.
    pub sleeps: u64,
    /// Packets that the link could not send (unreachable, too big).
    pub tx_failed: u64,
    /// Puts and gets done without the target, directly in the memory of another process of this
    /// host.
    pub direct: u64,
    /// Parts of sent matched messages that this process wrote to the memory of a receiver on
    /// this host, while the receiver copied the rest.
    pub shared: u64,
    /// Counters of the network protocol; zero without a network lane.
    pub protocol: portolan_proto::Counters,
}
