//! Log of a process's puts, gets and messages to another in a superstep, in the order of its
//! calls: first the description of each call, then the bytes that the calls carry. Of a long put
//! the log has only the target; its bytes travel as a separate [piece](Piece).
//!
//! A call is a byte, then what it does not share with the call before: slot (LEB128),
//! distance from the end of that call (4 or 8 bytes), length (LEB128). So scattered puts
//! of 8 bytes in an area of up to 2 GiB take 5 bytes each beside their data.

use crate::areas::Pop;
use crate::numbers;
use crate::spare::ADDRESSES;

const KIND: u8 = 3;
const PUT: u8 = 0;
const GET: u8 = 1;
const MESSAGE: u8 = 2;
const PIECE: u8 = 3;
/// The slot is that of the last put or get.
const SAME_SLOT: u8 = 4;
/// The call begins where the last put or get ended.
const ADJACENT: u8 = 8;
/// With [`MESSAGE`]: undoes a registration, whose number follows. [`SAME_SLOT`] if the caller
/// has registered NULL there, else [`ADJACENT`].
const POP: u8 = MESSAGE;
/// The length is that of the call before.
const SAME_LENGTH: u8 = 16;
/// Slot and length are those of the call before, and only the distance follows.
const LIKE: u8 = SAME_SLOT | SAME_LENGTH;
/// Unbuffered call.
const HP: u8 = 32;
/// The distance has 8 bytes.
const WIDE: u8 = 64;

/// Most bytes of a call, without those that it carries.
const CALL_MAX: usize = 32;

/// Values that a call may share with the one before.
#[derive(Clone, Copy, Debug, Default)]
struct PreviousCall {
    slot: u32,
    end: u64,
    bytes: u64,
}

/// Length of the shortest put whose bytes travel as a piece.
pub const PIECE_MIN: usize = 4096;

/// Bytes of a long put.
#[derive(Debug)]
pub enum Piece {
    /// Copy made at the call.
    Copied(Vec<u8>),
    /// Memory of the program, unchanged until the superstep ends.
    Lent(*const u8, usize),
}

// SAFETY: an address; the code that made it has promised that it may be read.
unsafe impl Send for Piece {}

impl Piece {
    pub const fn start(&self) -> *const u8 {
        match self {
            Self::Copied(bytes) => bytes.as_ptr(),
            Self::Lent(start, _) => *start,
        }
    }

    pub const fn bytes(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Lent(_, bytes) => *bytes,
        }
    }
}

/// Range of an area that a put writes or a get reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaRange {
    pub slot: u32,
    pub offset: u64,
    pub bytes: u64,
    /// Unbuffered: by bsp_hpput or bsp_hpget.
    pub hp: bool,
}

/// Log that is being written.
#[derive(Debug, Default)]
pub struct Log {
    calls: Vec<u8>,
    data: Vec<u8>,
    /// Bytes of the long puts.
    pub pieces: Vec<Piece>,
    /// Put that the next may extend.
    open: Option<AreaRange>,
    shared: PreviousCall,
    /// Address of the area to which the next put may be a [word](Log::word).
    words_to: Option<usize>,
}

/// Call, as its receiver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    Put(AreaRange, &'a [u8]),
    Get(AreaRange),
    Message {
        tag: &'a [u8],
        payload: &'a [u8],
    },
    /// Put whose bytes are the next piece.
    Piece(AreaRange),
    Pop(Pop),
}

impl Log {
    /// Reserves memory for a call that carries `bytes` bytes; false if there is none.
    #[inline]
    pub fn make_room(&mut self, bytes: usize) -> bool {
        let fits = bytes < ADDRESSES && self.data.try_reserve(bytes).is_ok();
        fits && self.make_room_for_call()
    }

    /// Reserves memory for a call that carries none, such as a get.
    #[inline]
    pub fn make_room_for_call(&mut self) -> bool {
        // For this call, and for the put before, which is still open.
        self.calls.try_reserve(2 * CALL_MAX).is_ok()
    }

    /// Reserves memory for a long put.
    pub fn make_room_for_piece(&mut self) -> bool {
        self.make_room_for_call() && self.pieces.try_reserve(1).is_ok()
    }

    /// Allows [`Log::word`] to the area at `start`, if the open put is a word like the call before.
    #[inline]
    pub fn begin_words(&mut self, start: usize) {
        let word = |it: &AreaRange| it.bytes == 8 && !it.hp && it.slot == self.shared.slot;
        let same = self.shared.bytes == 8 && self.open.as_ref().is_some_and(word);
        self.words_to = same.then_some(start);
    }

    /// Fast [`put`](Log::put) of a word to the area at `start`, within a run of words. False if
    /// the slow path is needed, and nothing was done.
    #[inline]
    pub fn word(&mut self, start: usize, offset: u64, word: &[u8; 8]) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let near = i32::try_from(open.offset.wrapping_sub(self.shared.end) as i64);
        let end = open.offset.wrapping_add(8);
        let room = self.calls.capacity() - self.calls.len() >= 8
            && self.data.capacity() - self.data.len() >= 8;
        let (Some(to), Ok(near), true) = (self.words_to, near, room) else {
            return false;
        };
        if to != start || offset == end {
            return false;
        }
        push_near(&mut self.calls, PUT | LIKE, near);
        self.data.extend_from_slice(word);
        (open.offset, self.shared.end) = (offset, end);
        true
    }

    /// Records a short put, whose bytes are copied.
    #[inline]
    pub fn put(&mut self, slot: u32, offset: u64, bytes: &[u8], hp: bool) {
        let length = bytes.len() as u64;
        self.words_to = None;
        match &mut self.open {
            Some(it) if it.slot == slot && it.offset + it.bytes == offset && it.hp == hp => {
                it.bytes += length;
            }
            _ => {
                self.close();
                self.open = Some(AreaRange {
                    slot,
                    offset,
                    bytes: length,
                    hp,
                });
            }
        }
        // Most puts are words: a copy of known length needs no call.
        match <&[u8; 8]>::try_from(bytes) {
            Ok(word) => self.data.extend_from_slice(word),
            Err(_) => self.data.extend_from_slice(bytes),
        }
    }

    /// Records a long put.
    pub fn piece(&mut self, slot: u32, offset: u64, piece: Piece) {
        self.close();
        let place = AreaRange {
            slot,
            offset,
            bytes: piece.bytes() as u64,
            hp: matches!(piece, Piece::Lent(..)),
        };
        self.place(PIECE, place);
        self.pieces.push(piece);
    }

    pub fn get(&mut self, place: AreaRange) {
        self.close();
        self.place(GET, place);
    }

    /// Records a message; all of a superstep have tags of one length.
    pub fn message(&mut self, tag: &[u8], payload: &[u8]) {
        self.close();
        let same = self.shared.bytes == payload.len() as u64;
        self.calls
            .push(MESSAGE | if same { SAME_LENGTH } else { 0 });
        if !same {
            numbers::push(&mut self.calls, payload.len() as u64);
            self.shared.bytes = payload.len() as u64;
        }
        self.data.extend_from_slice(tag);
        self.data.extend_from_slice(payload);
    }

    /// Records that a registration is undone.
    pub fn pop(&mut self, pop: Pop) {
        self.close();
        self.calls
            .push(POP | if pop.null { SAME_SLOT } else { ADJACENT });
        numbers::push(&mut self.calls, pop.number);
    }

    fn close(&mut self) {
        self.words_to = None;
        if let Some(place) = self.open.take() {
            self.place(PUT, place);
        }
    }

    fn place(&mut self, kind: u8, place: AreaRange) {
        let AreaRange {
            slot,
            offset,
            bytes,
            hp,
        } = place;
        let before = self.shared;
        let flag = |flag, on| if on { flag } else { 0 };
        let distance = offset.wrapping_sub(before.end) as i64;
        let near = i32::try_from(distance);
        let first = kind
            | flag(HP, hp)
            | flag(SAME_SLOT, slot == before.slot)
            | flag(ADJACENT, distance == 0)
            | flag(SAME_LENGTH, bytes == before.bytes)
            | flag(WIDE, near.is_err());
        if let Ok(near) = near
            && first & (ADJACENT | LIKE) == LIKE
        {
            push_near(&mut self.calls, first, near);
        } else {
            self.calls.push(first);
            if slot != before.slot {
                numbers::push(&mut self.calls, slot.into());
            }
            match near {
                Ok(0) => {}
                Ok(near) => self.calls.extend_from_slice(&near.to_le_bytes()),
                Err(_) => self.calls.extend_from_slice(&distance.to_le_bytes()),
            }
            if bytes != before.bytes {
                numbers::push(&mut self.calls, bytes);
            }
        }
        self.shared = PreviousCall {
            slot,
            end: offset.wrapping_add(bytes),
            bytes,
        };
    }

    /// Ends the log; returns its calls and the bytes that they carry.
    #[inline]
    pub fn end(&mut self) -> (&[u8], &[u8]) {
        self.close();
        self.written()
    }

    /// Returns the calls and bytes of an ended log.
    #[inline]
    pub fn written(&self) -> (&[u8], &[u8]) {
        (&self.calls, &self.data)
    }

    /// Takes calls and bytes with their memory, and resets.
    pub fn take(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.shared = PreviousCall::default();
        (
            std::mem::take(&mut self.calls),
            std::mem::take(&mut self.data),
        )
    }

    /// Resets the log.
    #[inline]
    pub fn clear(&mut self) {
        self.shared = PreviousCall::default();
        self.calls.clear();
        self.data.clear();
    }
}

/// Appends a call with slot and length of the call before. Most calls are such, and this
/// needs neither a loop nor a function call.
#[inline]
fn push_near(calls: &mut Vec<u8>, first: u8, distance: i32) {
    let end = calls.len() + 5;
    let both = u64::from(first) | u64::from(distance as u32) << 8;
    calls.extend_from_slice(&both.to_le_bytes());
    calls.truncate(end);
}

/// The bytes are not a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reader of a log.
#[derive(Clone, Debug)]
pub struct Calls<'a> {
    calls: &'a [u8],
    data: &'a [u8],
    tag_bytes: u64,
    shared: PreviousCall,
}

impl<'a> Calls<'a> {
    /// Reads a log of calls, and of the data that they carry.
    #[inline]
    pub fn of(calls: &'a [u8], data: &'a [u8], tag_bytes: u64) -> Self {
        Self {
            calls,
            data,
            tag_bytes,
            shared: PreviousCall::default(),
        }
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.calls.split_first().ok_or(Malformed)?;
        self.calls = rest;
        Ok(*first)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.calls.split_first_chunk().ok_or(Malformed)?;
        self.calls = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        numbers::read(&mut self.calls).ok_or(Malformed)
    }

    fn bytes(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        let (taken, rest) = self.data.split_at_checked(count).ok_or(Malformed)?;
        self.data = rest;
        Ok(taken)
    }

    /// Slot of the last put or get, or 0.
    pub const fn slot(&self) -> u32 {
        self.shared.slot
    }

    /// Takes the puts of words that follow to the slot of the call before; `put` gets offset and
    /// word. Stops at one beyond `area_bytes`.
    #[inline]
    pub fn words(&mut self, area_bytes: u64, mut put: impl FnMut(u64, &'a [u8; 8])) {
        let (Some(last), 8) = (area_bytes.checked_sub(8), self.shared.bytes) else {
            return;
        };
        while let Some((&[first, near @ ..], calls)) = self.calls.split_first_chunk::<5>()
            && first & !HP == PUT | LIKE
            && let Some((word, data)) = self.data.split_first_chunk()
        {
            let near = i64::from(i32::from_le_bytes(near)) as u64;
            let offset = self.shared.end.wrapping_add(near);
            if offset > last {
                break;
            }
            put(offset, word);
            (self.calls, self.data, self.shared.end) = (calls, data, offset + 8);
        }
    }

    /// Returns the next call; `None` at the end.
    pub fn read(&mut self) -> Result<Option<Call<'a>>, Malformed> {
        if self.calls.is_empty() {
            return if self.data.is_empty() {
                Ok(None)
            } else {
                Err(Malformed)
            };
        }
        let first = self.byte()?;
        if first >= WIDE << 1 {
            return Err(Malformed);
        }
        let has = |flag| first & flag != 0;
        let kind = first & KIND;
        if first == POP | SAME_SLOT || first == POP | ADJACENT {
            let (number, null) = (self.number()?, has(SAME_SLOT));
            return Ok(Some(Call::Pop(Pop { number, null })));
        }
        if kind == MESSAGE {
            if has(SAME_SLOT | ADJACENT | HP | WIDE) {
                return Err(Malformed);
            }
            if !has(SAME_LENGTH) {
                self.shared.bytes = self.number()?;
            }
            let tag = self.bytes(self.tag_bytes)?;
            let payload = self.bytes(self.shared.bytes)?;
            return Ok(Some(Call::Message { tag, payload }));
        }
        let mut it = self.shared;
        if !has(SAME_SLOT) {
            it.slot = u32::try_from(self.number()?).map_err(|_| Malformed)?;
        }
        if !has(ADJACENT) {
            let distance = if has(WIDE) {
                i64::from_le_bytes(self.array()?)
            } else {
                i32::from_le_bytes(self.array()?).into()
            };
            it.end = it.end.wrapping_add(distance as u64);
        }
        if !has(SAME_LENGTH) {
            it.bytes = self.number()?;
        }
        let (slot, offset, bytes) = (it.slot, it.end, it.bytes);
        it.end = it.end.wrapping_add(bytes);
        self.shared = it;
        let place = AreaRange {
            slot,
            offset,
            bytes,
            hp: has(HP),
        };
        Ok(Some(match kind {
            PUT => Call::Put(place, self.bytes(bytes)?),
            GET => Call::Get(place),
            _ => Call::Piece(place),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &[u8], calls: u64, tag_bytes: u64) -> Result<Vec<Call<'_>>, Malformed> {
        let mut all = Vec::new();
        let at = usize::try_from(calls).map_err(|_| Malformed)?;
        let (calls, data) = log.split_at_checked(at).ok_or(Malformed)?;
        let mut calls = Calls::of(calls, data, tag_bytes);
        while let Some(call) = calls.read()? {
            all.push(call);
        }
        Ok(all)
    }

    #[test]
    fn what_was_called_is_read() {
        let mut log = Log::default();
        log.put(3, 8, b"abcd", false);
        log.put(3, 12, b"efgh", false);
        log.put(3, 0, b"12345678", false);
        log.get(AreaRange {
            slot: 5,
            offset: u64::MAX - 9,
            bytes: 8,
            hp: true,
        });
        log.message(b"t", b"payload");
        log.message(b"u", b"PAYLOAD");
        let pops = [(1, true), (u64::MAX, false)].map(|(number, null)| Pop { number, null });
        pops.into_iter().for_each(|pop| log.pop(pop));
        log.put(0, 1 << 40, b"", false);
        log.piece(1, 5, Piece::Copied(vec![7; PIECE_MIN]));
        log.put(1, 5 + PIECE_MIN as u64, &[8; PIECE_MIN - 1], false);
        let (bytes, calls, pieces) = taken(&mut log);
        assert_eq!(pieces, 1);
        let place = |slot, offset, bytes| AreaRange {
            slot,
            offset,
            bytes,
            hp: false,
        };
        let put = |slot, offset, bytes: &'static [u8]| {
            Call::Put(place(slot, offset, bytes.len() as u64), bytes)
        };
        let message = |tag, payload| Call::Message { tag, payload };
        let expected = [
            put(3, 8, b"abcdefgh".as_slice()),
            put(3, 0, b"12345678"),
            Call::Get(AreaRange {
                hp: true,
                ..place(5, u64::MAX - 9, 8)
            }),
            message(b"t".as_slice(), b"payload".as_slice()),
            message(b"u", b"PAYLOAD"),
            Call::Pop(pops[0]),
            Call::Pop(pops[1]),
            put(0, 1 << 40, b""),
            Call::Piece(place(1, 5, PIECE_MIN as u64)),
            put(1, 5 + PIECE_MIN as u64, &[8; PIECE_MIN - 1]),
        ];
        assert_eq!(read(&bytes, calls, 1).unwrap(), expected);
        // The log is empty again.
        assert_eq!(taken(&mut log), (Vec::new(), 0, 0));
    }

    fn taken(log: &mut Log) -> (Vec<u8>, u64, usize) {
        let (calls, data) = log.end();
        let taken = ([calls, data].concat(), calls.len() as u64);
        log.clear();
        let pieces = std::mem::take(&mut log.pieces);
        (taken.0, taken.1, pieces.len())
    }

    #[test]
    fn words_are_noted_and_read_as_other_puts_are() {
        const PLACES: [u64; 11] = [64, 0, 24, 56, 40, 8, 16, 24, 1 << 40, 48, 80];
        let noted = |by_words: bool| {
            let (mut log, mut words) = (Log::default(), 0);
            for (at, offset) in (0..).zip(PLACES) {
                let word = [at; 8];
                if by_words && log.word(0x1000, offset, &word) {
                    words += 1;
                    continue;
                }
                assert!(log.make_room(8));
                log.put(2, offset, &word, false);
                log.begin_words(0x1000);
            }
            assert!(!log.word(0x2000, 80, &[0; 8]), "another area");
            log.get(AreaRange {
                slot: 2,
                offset: 0,
                bytes: 8,
                hp: false,
            });
            assert!(!log.word(0x1000, 80, &[0; 8]), "not behind a get");
            (taken(&mut log), words)
        };
        let ((bytes, calls, _), words) = noted(true);
        assert_eq!(((bytes.clone(), calls, 0), 0), noted(false));
        assert!(words > 1);
        // Runs contain the same calls as single reads, and no word beyond the area.
        let all = read(&bytes, calls, 0).unwrap();
        for area_bytes in [0, 8, 56, 1 << 50] {
            let (first, data) = bytes.split_at(calls as usize);
            let (mut calls, mut runs) = (Calls::of(first, data, 0), Vec::new());
            let mut in_runs = 0;
            loop {
                let slot = calls.slot();
                calls.words(area_bytes, |offset, word| {
                    assert!(offset + 8 <= area_bytes);
                    in_runs += 1;
                    let place = AreaRange {
                        slot,
                        offset,
                        bytes: 8,
                        hp: false,
                    };
                    runs.push(Call::Put(place, word));
                });
                match calls.read().unwrap() {
                    Some(call) => runs.push(call),
                    None => break,
                }
            }
            assert_eq!(runs, all);
            assert_eq!(in_runs > 0, area_bytes >= 8);
        }
    }

    #[test]
    fn a_scattered_put_costs_few_bytes_more() {
        let mut log = Log::default();
        let mut at = 1_u64;
        for _ in 0..1000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            log.put(7, (at >> 33) % 100_000 * 8, &[1; 8], false);
        }
        let (bytes, calls, _) = taken(&mut log);
        assert!(bytes.len() <= 1000 * 13 + 10, "{}", bytes.len());
        assert_eq!(read(&bytes, calls, 0).unwrap().len(), 1000);
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let mut log = Log::default();
        log.put(300, 70_000, b"abc", false);
        log.message(b"", b"x");
        let (bytes, calls, _) = taken(&mut log);
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], calls, 0), Err(Malformed), "{cut}");
        }
        assert_eq!(read(&bytes, calls + 1, 0), Err(Malformed));
        assert_eq!(
            read(&[bytes.clone(), vec![0]].concat(), calls, 0),
            Err(Malformed)
        );
        assert_eq!(read(&bytes, u64::MAX, 0), Err(Malformed));
        // Reading any bytes ends.
        for seed in 0..20_000_u64 {
            let noise: Vec<u8> = (0..40)
                .map(|i| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i) >> 8) as u8)
                .collect();
            let _ = read(&noise, seed % 41, seed % 3);
        }
    }
}
