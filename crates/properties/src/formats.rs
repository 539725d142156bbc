//! Headers around packets that come past the kernel.

use portolan_link::xdp::headers_travel;

use crate::input::Input;

/// Bytes as a packet in a queue's memory, in parts of a length that they say
/// first; a beginning that most packets have is put before them. Returns whether
/// a packet was understood.
pub fn xdp_headers(bytes: &[u8]) -> bool {
    /// Ethernet and the beginning of IPv4 and of IPv6.
    const HEADS: [&[u8]; 3] = [
        &[],
        &[0xff, 0xfe, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45],
        &[0xff, 0xfe, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60],
    ];
    let mut input = Input(bytes);
    let head = HEADS[usize::from(input.byte()) % HEADS.len()];
    let part = usize::from(input.short());
    headers_travel(&[head, input.0].concat(), part)
}
