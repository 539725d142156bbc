//! Packets that arrive in several chunks, put together again.

/// Where the parts of a packet are put together. It may be begun in one look
/// at the ring and come to its end in the next.
#[derive(Debug)]
pub(super) struct MultiBuffer {
    bytes: Box<[u8]>,
    /// Bytes of the parts so far, also where they are more than fit.
    len: usize,
}

impl MultiBuffer {
    /// For packets of up to so many bytes.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: vec![0; most].into(),
            len: 0,
        }
    }

    /// Takes the next part of a packet, whose memory is done with if there are
    /// more to come; gives the packet with its last one. One that is too long
    /// is given empty.
    pub fn add<'a>(&'a mut self, part: &'a mut [u8], is_last: bool) -> Option<&'a mut [u8]> {
        if is_last && self.len == 0 {
            return Some(part);
        }
        // Once a part did not fit, none does that follows it.
        let end = self.len.saturating_add(part.len());
        if let Some(here) = self.bytes.get_mut(self.len..end) {
            here.copy_from_slice(part);
        }
        self.len = end;
        is_last.then(|| {
            let len = std::mem::take(&mut self.len);
            self.bytes.get_mut(..len).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 10;

    /// Shows parts, the last of which ends a packet; gives what comes of them.
    fn add(multi_buffer: &mut MultiBuffer, parts: &[&[u8]]) -> Vec<u8> {
        let (last, before) = parts.split_last().unwrap();
        for part in before {
            assert_eq!(multi_buffer.add(&mut part.to_vec(), false), None);
        }
        multi_buffer.add(&mut last.to_vec(), true).unwrap().to_vec()
    }

    #[test]
    fn parts_are_put_together_in_their_order() {
        let mut multi_buffer = MultiBuffer::new(MOST);
        for parts in [
            &[&[1, 2, 3][..], &[4, 5], &[6]][..],
            &[&[7]],
            &[&[], &[1, 2], &[], &[3]],
            &[&[1, 2], &[]],
            &[&[1; MOST]],
            &[&[1; MOST - 1], &[2]],
        ] {
            assert_eq!(add(&mut multi_buffer, parts), parts.concat());
        }
    }

    #[test]
    fn a_packet_in_one_part_stays_where_it_is() {
        let mut multi_buffer = MultiBuffer::new(MOST);
        let mut part = vec![9; 2 * MOST];
        let (at, len) = (part.as_ptr(), part.len());
        let whole = multi_buffer.add(&mut part, true).unwrap();
        assert_eq!((whole.as_ptr(), whole.len()), (at, len));
    }

    #[test]
    fn a_packet_that_is_too_long_is_none_and_spoils_no_other() {
        let mut multi_buffer = MultiBuffer::new(MOST);
        let parts: [&[&[u8]]; 4] = [
            &[&[1; MOST], &[2]],
            &[&[1; 6], &[2; 6], &[3], &[4; 2]],
            &[&[1; MOST + 1], &[]],
            &[&[1; 4][..]; 1_000],
        ];
        for long in parts {
            assert_eq!(add(&mut multi_buffer, long), [], "{} parts", long.len());
            assert_eq!(add(&mut multi_buffer, &[&[5, 6], &[7]]), [5, 6, 7]);
        }
    }

    #[test]
    fn a_chain_without_its_end_takes_the_next_packet_along() {
        let mut multi_buffer = MultiBuffer::new(MOST);
        assert_eq!(multi_buffer.add(&mut [1, 2], false), None);
        assert_eq!(add(&mut multi_buffer, &[&[3]]), [1, 2, 3]);
        assert_eq!(add(&mut multi_buffer, &[&[4]]), [4]);
    }
}
