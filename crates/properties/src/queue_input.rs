//! One process at the rings of a queue, whose other ends, and whose memory that
//! others of the queue share, hold whatever the bytes say.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use portolan_ring::{Offsets, Share, Words};

use crate::input::Input;

/// Entries of each ring.
const COUNT: u32 = 64;
/// Chunks for sending: of all, and our own.
const ALL: (u32, u32) = (16, 16);
const OURS: (u32, u32) = (20, 6);
/// Words of the memory.
const WORDS: usize = 160;

/// Says what the bytes say, or what was written.
struct Hostile<'a> {
    input: Rc<RefCell<Input<'a>>>,
    words: Rc<RefCell<Vec<u64>>>,
    /// This word, and those behind it.
    at: usize,
    /// So many looks see what was written.
    honest: Rc<Cell<u8>>,
}

impl Hostile<'_> {
    fn get(&self, at: usize) -> u64 {
        let mut input = self.input.borrow_mut();
        if self.honest.get() > 0 || input.is_empty() {
            self.honest.set(self.honest.get().saturating_sub(1));
            return self.words.borrow()[self.at + at];
        }
        let choice = input.byte();
        self.honest.set(choice >> 4);
        match choice & 3 {
            0 => input.word(),
            1 => input.byte().into(),
            _ => self.words.borrow()[self.at + at],
        }
    }

    fn set(&self, at: usize, value: u64) {
        self.words.borrow_mut()[self.at + at] = value;
    }

    fn behind(&self, at: usize) -> Self {
        Self {
            input: Rc::clone(&self.input),
            words: Rc::clone(&self.words),
            at,
            honest: Rc::clone(&self.honest),
        }
    }
}

impl Words for Hostile<'_> {
    fn load(&self, at: usize) -> u64 {
        self.get(at)
    }

    fn store(&self, at: usize, value: u64) {
        self.set(at, value);
    }

    fn replace(&self, at: usize, from: u64, to: u64) -> bool {
        let is = self.get(at) == from;
        if is {
            self.set(at, to);
        }
        is
    }
}

impl Offsets for Hostile<'_> {
    fn count(&self) -> u32 {
        COUNT
    }

    fn producer(&self) -> u32 {
        self.get(0) as u32
    }

    fn set_producer(&self, to: u32) {
        self.set(0, to.into());
    }

    fn consumer(&self) -> u32 {
        self.get(1) as u32
    }

    fn set_consumer(&self, to: u32) {
        self.set(1, to.into());
    }

    fn entry(&self, at: u32) -> u64 {
        self.get(2 + (at % COUNT) as usize)
    }

    fn set_entry(&self, at: u32, value: u64) {
        self.set(2 + (at % COUNT) as usize, value);
    }
}

/// Turns at such rings: nothing panics, no chunk is sent that is not our own,
/// and none is kept that was not given.
pub fn queue_input(bytes: &[u8]) {
    let ring = 2 + COUNT as usize;
    let input = Rc::new(RefCell::new(Input(bytes)));
    let words = Hostile {
        input: Rc::clone(&input),
        words: Rc::new(RefCell::new(vec![0; WORDS + 2 * ring])),
        at: 0,
        honest: Rc::default(),
    };
    let (fill, completion) = (words.behind(WORDS), words.behind(WORDS + ring));
    let mut share = Share::new(fill, completion, 7, ALL, OURS);
    let own = OURS.0..OURS.0 + OURS.1;
    let mut given = 0;
    while !input.borrow().is_empty() {
        let step = input.borrow_mut().byte();
        match step % 4 {
            0 => {
                share.keep(u32::from(step / 4));
                given += 1;
            }
            1 => {
                if let Some(chunk) = share.chunk_to_send(&words) {
                    assert!(own.contains(&chunk), "{chunk}");
                    share.send(&words, chunk);
                }
            }
            2 => {
                let mut found = [0; 3];
                if share.chunks_to_send(&words, &mut found) {
                    assert!(found.iter().all(|chunk| own.contains(chunk)), "{found:?}");
                }
            }
            _ => {
                let before = share.kept();
                let _ = share.exchange(&words, |_| step & 4 != 0);
                assert!(share.kept() <= before);
            }
        }
        assert!(share.kept() <= given);
    }
}
