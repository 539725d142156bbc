//! Links: ways of moving bursts of frames between endpoints.
//!
//! A link knows how to move bytes and nothing of what they mean. What it
//! promises stands in its [`Capabilities`], by which the engine picks a lane.

mod bell;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
pub mod shm;
pub mod udp;
pub mod xdp;

/// Where a frame comes from or goes to, as a link names it.
///
/// For `udp` and `xdp`: IPv6 address (IPv4 mapped), UDP port and scope id.
/// For `shm`: the endpoint's index on its host in `port`, the rest zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LinkAddress {
    /// IPv6 address, IPv4 as `::ffff:a.b.c.d`.
    pub ip: [u8; 16],
    /// UDP port, or index on the host.
    pub port: u16,
    /// Interface index of a link-local address, otherwise 0.
    pub scope: u32,
}

/// What a link promises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capabilities {
    /// Its name, as `--link` takes it.
    pub name: &'static str,
    /// Largest frame that one transmission takes, bytes.
    pub frame_max: usize,
    /// Bytes that the link wants free in front of a frame.
    pub headroom: usize,
    /// Frames of one pair arrive in the order in which they were sent.
    pub ordered: bool,
    /// No accepted frame is ever lost, repeated or altered.
    pub reliable: bool,
    /// Expected cost: LogP's o (sender and receiver), g and L, nanoseconds.
    pub overhead_ns: u32,
    /// Gap between consecutive small frames, nanoseconds.
    pub gap_ns: u32,
    /// Latency, nanoseconds.
    pub latency_ns: u32,
}

/// A frame on its way out. The link copies it or is done with it on return.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// Destination.
    pub to: LinkAddress,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Mark the packet as ECN-capable, where the link can.
    pub ecn: bool,
}

/// A frame that has arrived; valid during the call that shows it.
#[derive(Debug)]
pub struct RxFrame<'a> {
    /// Source, as far as the link can tell; not authenticated.
    pub from: LinkAddress,
    /// The bytes, to be decrypted in place.
    pub bytes: &'a mut [u8],
    /// It carried the congestion-experienced mark.
    pub ce: bool,
    /// It came another way than by the link's fast path, though that works.
    pub detour: bool,
}

/// What one quick look at a link has found.
#[derive(Debug)]
pub enum Looked<'a> {
    /// Nothing.
    Nothing,
    /// One frame.
    One(RxFrame<'a>),
    /// Unknown: such a look does not do now.
    Unknown,
}

/// Why a link could not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// Nothing was taken now; make progress and try again.
    Full,
    /// The first frame not taken exceeds what the path takes: at most this
    /// many bytes, or 0 if the link cannot tell.
    TooBig(usize),
    /// The first frame not taken cannot reach its destination (errno).
    Unreachable(i32),
    /// The link itself is broken (errno).
    Broken(i32),
}

/// A way of moving bursts of frames.
pub trait Link {
    /// What it promises; may change when the interface does.
    fn capabilities(&self) -> Capabilities;

    /// Sends frames in order; gives how many were taken. Fewer than all is
    /// normal: the rest was not touched.
    ///
    /// # Errors
    /// Only when the first frame could not be taken.
    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError>;

    /// Shows at least one arrived frame and about `max` at most to `sink`;
    /// gives how many, 0 if none waits. Never blocks.
    ///
    /// # Errors
    /// [`LinkError::Broken`].
    fn rx_burst(&mut self, max: usize, sink: impl FnMut(RxFrame<'_>)) -> Result<usize, LinkError>;
}
