//! What a socket's receive buffer holds, in packets.

/// Memory that the kernel counts for one small packet: its bookkeeping
/// (`sk_buff`, shared info) and the smallest buffer. Measured 768 to 832, on Debian's Linux 6.12 960.
const SMALL_PACKET_BYTES: usize = 960;
/// Payload up to which a packet counts as small; its buffer then is the
/// smallest.
const SMALL_PAYLOAD_MAX: usize = 128;
/// Ethernet, IP and UDP headers, head room and shared info, which share the
/// packet's buffer with the payload.
const BUFFER_EXTRA: usize = 512;
/// The `sk_buff` itself.
const BOOKKEEPING: usize = 256;

/// Packets that a receive buffer holds before the kernel drops. Count
/// packets, not bytes: a small one takes many times its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveCapacity {
    /// Packets with the largest frame, each arriving alone. Coalesced ones
    /// take less.
    pub full_packets: usize,
    /// Packets with at most 128 bytes.
    pub small_packets: usize,
}

impl ReceiveCapacity {
    /// For a buffer of `bytes` as `SO_RCVBUF` reads back (the kernel's
    /// doubled figure) and frames of at most `frame_max` bytes.
    #[must_use]
    pub fn of_buffer(bytes: usize, frame_max: usize) -> Self {
        Self {
            full_packets: (bytes / packet_bytes(frame_max)).max(1),
            small_packets: (bytes / SMALL_PACKET_BYTES).max(1),
        }
    }
}

/// What the kernel counts for a packet with `payload` bytes; its buffers come
/// in powers of two.
fn packet_bytes(payload: usize) -> usize {
    if payload <= SMALL_PAYLOAD_MAX {
        SMALL_PACKET_BYTES
    } else {
        (payload + BUFFER_EXTRA).next_power_of_two() + BOOKKEEPING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_limit_holds_what_was_measured() {
        let capacity = ReceiveCapacity::of_buffer(2 * 212_992, 1_452);
        assert_eq!(
            capacity,
            ReceiveCapacity {
                full_packets: 184,
                small_packets: 443
            }
        );
    }

    #[test]
    fn a_tiny_buffer_still_holds_one() {
        assert_eq!(ReceiveCapacity::of_buffer(1, 65_507).full_packets, 1);
        assert_eq!(ReceiveCapacity::of_buffer(1, 8).small_packets, 1);
    }
}
