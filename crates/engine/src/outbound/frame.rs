//! The frames of the lane through shared memory, as its table (`shm`) describes them.

use portolan_wire::{ARGS_MAX, HEAD_BYTES, Head, MessageNo, Priority};

use crate::values::{Meta, SendOptions};

pub const ASK: u8 = 0x80;
pub const ANSWER: u8 = 0x81;
pub const OFFER: u8 = 0x82;
pub const DONE: u8 = 0x83;
/// Flag 0 asks for a mark with flag 1 once all before it was read.
pub const MARK: u8 = 0x84;
/// Nothing more comes at this priority, and nothing more is taken; flag: the priority.
pub const PART: u8 = 0x85;
/// Bytes of an offer before its head chunk.
pub const OFFER_BYTES: usize = 24;
/// Bytes of an [`ASK`], [`ANSWER`], [`DONE`], [`MARK`] or [`PART`].
pub const CONTROL_BYTES: usize = 16;

/// Writes a head chunk and its argument words; returns where the payload goes.
#[inline(always)]
pub fn write_head(
    out: &mut [u8],
    port: u16,
    o: &SendOptions<'_>,
    number: MessageNo,
    length: usize,
    total: u64,
) -> usize {
    let head = Head {
        priority: o.priority,
        flow: o.flow,
        message: number,
        port,
        total,
        args: &[],
        payload: &[],
    };
    let fixed = head.fixed(o.args.len() as u8, length as u16);
    out[..HEAD_BYTES].copy_from_slice(&fixed);
    if o.args.is_empty() {
        return HEAD_BYTES;
    }
    for (to, arg) in out[HEAD_BYTES..].chunks_exact_mut(8).zip(o.args) {
        to.copy_from_slice(&arg.to_le_bytes());
    }
    HEAD_BYTES + 8 * o.args.len()
}

/// Makes a frame of a kind, a flag and a number.
pub const fn control(kind: u8, flag: u8, id: u64) -> [u8; CONTROL_BYTES] {
    let [a, b, c, d, e, f, g, h] = id.to_le_bytes();
    [kind, flag, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// Returns where the payload of a head chunk begins; `None` for any other frame.
#[inline(always)]
pub fn payload_at(head: &[u8]) -> Option<usize> {
    let &[lead, args] = head.first_chunk()?;
    let at = HEAD_BYTES + 8 * args as usize;
    // One bit is the priority.
    (lead & !8 == 1 && args as usize <= ARGS_MAX && at <= head.len()).then_some(at)
}

/// Returns the bytes of the little-endian word at `at` of a head chunk.
#[inline(always)]
pub fn word<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    head[at..at + N].try_into().unwrap_or([0; N])
}

/// Returns the metadata in a head chunk of at least [`HEAD_BYTES`].
#[inline(always)]
pub fn meta(head: &[u8], from: u32, priority: Priority) -> Meta {
    Meta {
        from,
        port: u16::from_le_bytes(word(head, 8)),
        flow: u16::from_le_bytes(word(head, 2)),
        priority,
        number: MessageNo(u32::from_le_bytes(word(head, 4))),
        direct: true,
    }
}

/// Returns the length of the message that a head chunk begins.
#[inline(always)]
pub fn total(head: &[u8]) -> u64 {
    // In halves: a frame of one line is copied word by word, and this crosses two.
    let low = u32::from_le_bytes(word(head, 12));
    u64::from(low) | u64::from(u32::from_le_bytes(word(head, 16))) << 32
}
