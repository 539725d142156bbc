//! Messages that have arrived, in the superstep after the one in which they were sent.

/// Alignment of tags and payloads in the queue, bytes: fit for any type.
const ALIGNMENT: usize = size_of::<u128>();

/// Offsets of a message's tag and payload.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: usize,
    payload: usize,
    payload_bytes: usize,
}

#[derive(Debug, Default)]
pub struct Queue {
    /// Buffer, aligned by its element type.
    memory: Vec<u128>,
    used: usize,
    entries: Vec<Entry>,
    next: usize,
    /// Payload bytes of messages that were not taken.
    left: u64,
    tag_bytes: usize,
}

impl Queue {
    /// Drops all messages, and sets the length of tags of those to come.
    pub fn begin(&mut self, tag_bytes: usize) {
        self.used = 0;
        self.entries.clear();
        self.next = 0;
        self.left = 0;
        self.tag_bytes = tag_bytes;
    }

    /// Allocates memory, so that nothing moves later.
    pub fn reserve(&mut self, messages: usize, bytes: usize) {
        self.entries.reserve(messages);
        let most = bytes.div_ceil(ALIGNMENT) + 2 * messages;
        if self.memory.len() < most {
            // The old contents are not needed any more.
            self.memory = vec![0; most];
        }
    }

    fn store(&mut self, bytes: &[u8]) -> usize {
        let at = self.used;
        let end = at + bytes.len();
        if end > self.memory.len() * ALIGNMENT {
            self.memory.resize(end.div_ceil(ALIGNMENT), 0);
        }
        self.bytes_mut()[at..end].copy_from_slice(bytes);
        self.used = end.next_multiple_of(ALIGNMENT);
        at
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.memory.len() * ALIGNMENT;
        // SAFETY: `bytes` bytes of one allocation, borrowed as long as the slice.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), bytes) }
    }

    fn bytes(&self) -> &[u8] {
        let bytes = self.memory.len() * ALIGNMENT;
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr().cast(), bytes) }
    }

    pub fn push(&mut self, tag: &[u8], payload: &[u8]) {
        let entry = Entry {
            tag: self.store(tag),
            payload: self.store(payload),
            payload_bytes: payload.len(),
        };
        self.entries.push(entry);
        self.left += payload.len() as u64;
    }

    /// Number of messages, and bytes of their payloads.
    pub fn size(&self) -> (u64, u64) {
        ((self.entries.len() - self.next) as u64, self.left)
    }

    /// Returns tag and payload of the next message, which stays.
    pub fn peek(&self) -> Option<(&[u8], &[u8])> {
        let it = self.entries.get(self.next)?;
        let all = self.bytes();
        let tag = &all[it.tag..it.tag + self.tag_bytes];
        Some((tag, &all[it.payload..it.payload + it.payload_bytes]))
    }

    /// Removes the next message.
    pub fn advance(&mut self) {
        if let Some(it) = self.entries.get(self.next) {
            self.left -= it.payload_bytes as u64;
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_once_and_stand_aligned() {
        let mut queue = Queue::default();
        queue.begin(3);
        queue.reserve(3, 3 * 3 + 20);
        for length in [0_usize, 7, 13] {
            queue.push(b"tag", &vec![length as u8; length]);
        }
        assert_eq!(queue.size(), (3, 20));
        let start = queue.memory.as_ptr();
        for length in [0_usize, 7, 13] {
            let (tag, payload) = queue.peek().unwrap();
            assert_eq!(
                (tag, payload),
                (b"tag".as_slice(), &vec![length as u8; length][..])
            );
            assert!(
                tag.as_ptr().addr() % ALIGNMENT == 0 && payload.as_ptr().addr() % ALIGNMENT == 0
            );
            queue.advance();
        }
        assert_eq!(start, queue.memory.as_ptr(), "nothing has moved");
        assert!(queue.peek().is_none());
        queue.advance();
        assert_eq!(queue.size(), (0, 0));
        // Messages that were not taken are dropped.
        queue.push(b"tag", b"x");
        queue.begin(0);
        assert_eq!(queue.size(), (0, 0));
        queue.push(b"", b"");
        assert_eq!(queue.peek(), Some((&[][..], &[][..])));
    }
}
