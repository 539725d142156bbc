//! What is free, and who may take it: less urgent uses leave some to more urgent ones.

use portolan_wire::Priority;

use super::Use;
use crate::base::{Config, FrameIndex, List, LongIndex};

/// Use of a frame that is asked for; less urgent ones leave some to more urgent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A received chunk of a request that must be held.
    Hold,
    /// A received chunk of a reply that must be held.
    HoldReply,
    /// A request.
    Request,
    /// A further part of a long request: must find a frame when the queue
    /// behind it has taken all that requests may have.
    RequestPart,
    /// A reply.
    Reply,
    /// A further part of a long reply.
    ReplyPart,
    /// Acknowledgements, connects, control chunks.
    Control,
}

impl Need {
    /// Use of a frame that holds a received chunk.
    pub const fn hold(priority: Priority) -> Self {
        match priority {
            Priority::Request => Self::Hold,
            Priority::Reply => Self::HoldReply,
        }
    }

    /// Use of a frame that carries messages, or the first part of one.
    pub const fn message(priority: Priority) -> Self {
        match priority {
            Priority::Request => Self::Request,
            Priority::Reply => Self::Reply,
        }
    }

    /// Use of a frame that carries a further part of a message.
    pub const fn part(priority: Priority) -> Self {
        match priority {
            Priority::Request => Self::RequestPart,
            Priority::Reply => Self::ReplyPart,
        }
    }

    /// Frames of a pool of `all` that received chunks may take together.
    const fn held_max(self, all: u32) -> u32 {
        match self {
            Self::Hold => all / 2,
            Self::HoldReply => all / 2 + all / 8,
            _ => u32::MAX,
        }
    }

    /// Frames of a pool of `all` that are reserved for more urgent uses (P7.15).
    const fn keep(self, all: u32, usage: Use) -> u32 {
        match self {
            Self::Hold | Self::Request => all / 8,
            Self::RequestPart => all / 8 - all / 32,
            Self::Reply | Self::HoldReply => all / 16,
            Self::ReplyPart => all / 32,
            // The last are for packets that the link returns at once: without
            // acknowledgements no frame would become free again.
            Self::Control if matches!(usage, Use::Queued) => 1 + all / 64,
            Self::Control => 0,
        }
    }
}

/// Frames and entries of long messages that are free. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pool {
    /// Number of all frames, and bytes of each.
    frames: u32,
    pub frame_bytes: u32,
    /// Number of all entries of long messages.
    longs: u32,
    pub free: List<FrameIndex>,
    pub free_count: u32,
    /// Frames that hold received chunks, of all peers.
    pub held_count: u32,
    pub free_longs: LongIndex,
    pub free_long_count: u32,
    /// Long messages whose memory is the caller's again, which has yet to be reported.
    pub released: List<LongIndex>,
    /// Smallest reserve that kept a frame from the connection whose turn it is;
    /// `u32::MAX`: none did.
    pub refused_above: u32,
    /// A frame or a long message was refused, which has yet to be noticed.
    pub lacked: bool,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(&Config::default())
    }
}

impl Pool {
    /// Pool without anything free.
    pub const fn new(config: &Config) -> Self {
        Self {
            frames: config.frames,
            frame_bytes: config.frame_bytes,
            longs: config.longs,
            free: List::EMPTY,
            free_count: 0,
            held_count: 0,
            free_longs: LongIndex::NONE,
            free_long_count: 0,
            released: List::EMPTY,
            refused_above: u32::MAX,
            lacked: false,
        }
    }

    /// Whether a frame for sending may be taken.
    #[inline]
    pub const fn may_take(&self, need: Need) -> bool {
        self.free_count > need.keep(self.frames, Use::Queued)
    }

    /// Whether a frame may be taken, and notes if not.
    #[inline]
    pub fn grants(&mut self, need: Need, usage: Use) -> bool {
        if self.held_count >= need.held_max(self.frames) {
            return false;
        }
        let keep = need.keep(self.frames, usage);
        if self.free_count <= keep {
            self.refused_above = self.refused_above.min(keep);
            self.lacked = true;
            return false;
        }
        true
    }

    /// Whether a long message may be entered: more than `keep` are free. Notes if not.
    pub const fn grants_long(&mut self, keep: u32) -> bool {
        let granted = self.free_long_count > keep;
        self.lacked |= !granted;
        granted
    }

    /// Whether `frames` more received chunks of one priority could be held.
    pub const fn can_hold(&self, priority: Priority, frames: u32) -> bool {
        let need = Need::hold(priority);
        self.held_count + frames <= need.held_max(self.frames)
            && self.free_count >= need.keep(self.frames, Use::Held) + frames
    }

    /// Whether more than one of `parts` parts of all frames and long messages is free.
    pub const fn has_free(&self, parts: u32) -> bool {
        self.free_count > self.frames.div_ceil(parts)
            && self.free_long_count > self.longs.div_ceil(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks P7.15.
    #[test]
    fn the_more_urgent_find_a_frame_when_the_less_urgent_have_taken_theirs() {
        let order = [
            Need::Request,
            Need::RequestPart,
            Need::Reply,
            Need::ReplyPart,
            Need::Control,
        ];
        for all in [32, 64, 100, 2_048, 1 << 20] {
            let kept = order.map(|n| n.keep(all, Use::Queued));
            assert!(kept[..4].is_sorted_by(|a, b| a > b), "{all}: {kept:?}");
            // A close or a refusal must not wait for long replies alone.
            assert!(kept[4] <= kept[3], "{all}: {kept:?}");
            // Packets that the link returns at once may take the last frame.
            assert_eq!(Need::Control.keep(all, Use::Passing), 0);
            assert!(kept[4] > 0);
            // Received requests take half of the pool at most, replies an
            // eighth of it more.
            assert_eq!(Need::Hold.held_max(all), all / 2);
            assert!(Need::HoldReply.held_max(all) > all / 2);
            assert!(Need::HoldReply.held_max(all) < all - kept[0]);
        }
    }
}
