//! What the program does.

use portolan_exchange::{
    Atomic, AtomicOp, AtomicType, InlineReceive, MessageId, Notify, OpError, OpId, Place, PutEnd,
    PutOptions, RegionId, RegisterRefused, RemoteKey, Rights, Selector, SendOptions, SendRefused,
    Signal,
};

use super::host::{Bytes, FILL, Permitted, SIZE, Use, mark};
use super::{Op, Run, memory};

/// Operations at once, at most.
const OPS: usize = 40;
/// Bytes of a region's memory; of some one more.
pub(super) const REGION: usize = 600;
/// Bytes of the region that is a part of one that nobody may touch.
pub(super) const PART_OF_REGION: u64 = 200;

impl Run<'_> {
    pub(super) fn program(&mut self, choice: u8) {
        match choice {
            19 => return self.post_inline(),
            22 => return self.claims(),
            23 => return self.regions(),
            24 => return self.take(),
            25 => return self.settings(),
            _ if self.ops.len() >= OPS => return,
            _ => {}
        }
        match choice {
            15 | 16 => self.send(),
            17 | 18 => self.receive(),
            20 => self.put_or_get(),
            _ => self.atomic(),
        }
    }

    /// A rank, mostly a peer; perhaps none.
    fn rank(&mut self) -> u32 {
        match self.input.byte() % 16 {
            0 | 1 => 0,
            2 => SIZE as u32,
            odd => 1 + u32::from(odd % 2),
        }
    }

    fn length(&mut self) -> usize {
        match self.input.byte() {
            few @ 0..64 => few.into(),
            some @ 64..160 => usize::from(some) * 5,
            many => usize::from(many) * 40,
        }
    }

    fn selector(&mut self) -> Selector {
        let choice = self.input.byte();
        let tag = u64::from(choice >> 4 & 3);
        let selector = match choice & 15 {
            0..4 => Selector::any(tag),
            4 => Selector::from(0, tag),
            odd => Selector::from(1 + u32::from(odd % 2), tag),
        };
        selector.ignoring([0, 1, u64::MAX, 0][usize::from(choice >> 6)])
    }

    fn send(&mut self) {
        let (to, bytes, choice) = (self.rank(), self.length(), self.input.byte());
        let options = SendOptions {
            data: (choice & 4 != 0).then_some(7),
            sync: choice & 8 != 0,
            notify: Notify::default(),
        };
        let source = memory(Use::With(to), bytes, mark(0));
        let tag = u64::from(choice & 3);
        let sent = (self.exchange).post_send(to, tag, &options, source);
        self.begun(to, sent.map_err(|(why, _)| why));
    }

    /// An operation was begun towards a rank, unless it could not.
    fn begun(&mut self, to: u32, made: Result<OpId, SendRefused>) {
        match made {
            Ok(id) => self.ops.push(Op { id, with: Some(to) }),
            Err(SendRefused::BadRank) => assert_eq!(to, SIZE as u32),
            Err(SendRefused::PeerDead) => assert!(self.dead[to as usize]),
            Err(why @ (SendRefused::TooLong | SendRefused::BadAtomic)) => panic!("{why:?}"),
        }
    }

    fn use_of(selector: &Selector) -> Use {
        selector.source.map_or(Use::Anybody, Use::With)
    }

    fn receive(&mut self) {
        let (selector, bytes) = (self.selector(), self.length());
        let sink = memory(Self::use_of(&selector), bytes, FILL);
        let none = Notify::default();
        let id = (self.exchange).post_receive(&selector, sink, none);
        self.ops.push(Op {
            id,
            with: selector.source,
        });
    }

    /// A receive whose caller waits for it.
    fn post_inline(&mut self) {
        if self.input.byte() < 160 {
            let (selector, bytes) = (self.selector(), self.length());
            let sink = memory(Self::use_of(&selector), bytes, FILL);
            let _ = self.exchange.post_inline(&selector, sink);
        } else {
            self.poll_inline(false);
        }
    }

    /// What became of it; it may be given up.
    pub(super) fn poll_inline(&mut self, give_up: bool) {
        match self.exchange.poll_inline() {
            Some(InlineReceive::Ended(done, sink)) => self.check_sink(&done, &sink),
            Some(InlineReceive::Became(id)) => self.ops.push(Op { id, with: None }),
            Some(InlineReceive::Waits(_)) => panic!("it waits"),
            None => {}
        }
        if give_up && let Some(sink) = self.exchange.withdraw_inline() {
            assert!(sink.bytes.iter().all(|byte| *byte == FILL));
        }
    }

    fn place(&mut self) -> Place {
        let choice = self.input.byte();
        // Our own regions have such keys, and peers' may.
        let salted = self.keys.chunks_exact(2).nth(usize::from(choice >> 2 & 7));
        let key = match (choice & 3, salted) {
            (0, Some(&[key, salt])) => {
                RemoteKey::from_bytes((u128::from(salt) << 64 | u128::from(key)).to_le_bytes())
            }
            _ => RemoteKey::any(u64::from(choice & 3)),
        };
        Place {
            key,
            offset: 8 * u64::from(choice >> 5),
        }
    }

    fn put_or_get(&mut self) {
        let (to, place, bytes) = (self.rank(), self.place(), self.length());
        let choice = self.input.byte();
        let made = if choice & 1 == 0 {
            let sink = memory(Use::With(to), bytes, FILL);
            let none = Notify::default();
            let got = (self.exchange).get(to, place, sink, none);
            got.map_err(|(why, _)| why)
        } else {
            let options = PutOptions {
                end: if choice & 2 == 0 {
                    PutEnd::Visible
                } else {
                    PutEnd::Local
                },
                signal: (choice & 4 != 0).then(|| Signal {
                    port: u32::from(choice >> 3 & 7),
                    word: 9,
                }),
                notify: Notify::default(),
            };
            let source = memory(Use::With(to), bytes, mark(0));
            let put = (self.exchange).put(to, place, source, &options);
            put.map_err(|(why, _)| why)
        };
        self.begun(to, made);
    }

    fn atomic(&mut self) {
        let (to, place, none) = (self.rank(), self.place(), Notify::default());
        let x = &mut self.exchange;
        let choice = self.input.byte();
        let made = match choice % 4 {
            0 if choice & 4 != 0 => {
                let what = Atomic {
                    op: AtomicOp::SwapMasked,
                    of: AtomicType::U16,
                    count: 4,
                    operands: &[1; 8],
                    compare: &[2; 8],
                };
                let sink = memory(Use::With(to), 8, FILL);
                let made = x.fetch_atomic(to, place, &what, sink, none);
                made.map_err(|(why, _)| why)
            }
            0 => x.fetch_add(to, place, 5, none),
            1 => x.compare_swap(to, place, 5, 6, none),
            2 => x.flush(to, none),
            _ => return x.fence(to),
        };
        self.begun(to, made);
    }

    fn claims(&mut self) {
        let choice = self.input.byte();
        let selector = self.selector();
        if choice & 1 == 0 || self.claimed.is_empty() {
            let found = self.exchange.probe(&selector);
            let claimed = (choice & 2 == 0).then(|| self.exchange.claim(&selector));
            if let Some(claimed) = claimed {
                assert_eq!(claimed.as_ref().map(|(_, what)| *what), found);
                self.claimed.extend(claimed.map(|(id, _)| id));
            }
            return;
        }
        let id = (self.claimed).swap_remove(usize::from(choice >> 2) % self.claimed.len());
        if choice & 2 == 0 && self.ops.len() < OPS {
            let sink = memory(Use::Anybody, self.length(), FILL);
            let none = Notify::default();
            let id = (self.exchange).receive_claimed(id, sink, none);
            self.ops.push(Op { id, with: None });
        } else {
            self.discard(id);
        }
    }

    pub(super) fn discard(&mut self, id: MessageId) {
        assert!(self.exchange.is_claimed(&id));
        let nothing = memory(Use::Anybody, 0, FILL);
        self.exchange.discard(id, nothing);
    }

    fn regions(&mut self) {
        let choice = self.input.byte();
        let at = usize::from(choice >> 3) % self.regions.len().max(1);
        match (choice & 7, self.regions.get(at).copied()) {
            (0 | 1, Some((id, number))) => {
                // In use, it is asked for again at the end.
                if let Ok(back) = self.exchange.deregister(id) {
                    self.regions.remove(at);
                    self.came_back(number, back);
                }
            }
            (2..=5, Some((id, number))) => {
                let start = 8 * u64::from(self.input.byte() & 63);
                let bytes = u64::from(self.input.byte());
                let (key, rights) = self.key_and_rights();
                let made = (self.exchange).register_again(id, start, bytes, key, rights);
                match made {
                    // The same again is not another region.
                    Ok(id) => self.registered(id, number, rights),
                    Err(RegisterRefused::OutOfBounds) => assert!(start + bytes > 0),
                    Err(_) => {}
                }
            }
            _ => {
                let (key, rights) = self.key_and_rights();
                self.register(key, rights);
            }
        }
    }

    fn key_and_rights(&mut self) -> (Option<u64>, Rights) {
        let choice = self.input.byte();
        let rights = [Rights::None, Rights::Get, Rights::Put, Rights::Both];
        let key = (choice & 0x80 == 0).then_some(u64::from(choice >> 2 & 3));
        (key, rights[usize::from(choice & 3)])
    }

    /// What there is from the beginning: a region of each kind.
    pub(super) fn register_all(&mut self) {
        self.register(Some(1), Rights::Both);
        self.register(Some(2), Rights::Get);
        self.register(Some(3), Rights::None);
        if let Some(&(id, number)) = self.regions.last() {
            let both = Rights::Both;
            let part = (self.exchange).register_again(id, 40, PART_OF_REGION, Some(4), both);
            self.registered(part.expect("there is room"), number, both);
        }
    }

    fn register(&mut self, key: Option<u64>, rights: Rights) {
        let number = self.carrier.permitted.len();
        let memory = Bytes {
            of: Use::Regions(number),
            ..memory(Use::Anybody, REGION + number % 2, FILL)
        };
        self.carrier.permitted.push(Permitted {
            get: vec![false; memory.bytes.len()],
            put: vec![false; memory.bytes.len()],
        });
        if let Ok(id) = self.exchange.register(memory, key, rights) {
            self.registered(id, number, rights);
        }
    }

    fn registered(&mut self, id: RegionId, number: usize, rights: Rights) {
        let opened = self.exchange.opened(id).expect("it is open");
        assert_eq!(opened.rights, rights);
        let range = opened.start as usize..(opened.start + opened.bytes) as usize;
        let key = u128::from_le_bytes(opened.key.to_bytes());
        // Before the older ones: those may be gone.
        self.keys.splice(0..0, [key as u64, (key >> 64) as u64]);
        let may = &mut self.carrier.permitted[number];
        if rights.allow_get() {
            may.get[range.clone()].fill(true);
        }
        if rights.allow_put() {
            may.put[range].fill(true);
        }
        self.regions.push((id, number));
    }

    /// A region is gone; perhaps it was the last of its memory.
    pub(super) fn came_back(&mut self, number: usize, memory: Option<Bytes>) {
        let last = self.regions.iter().all(|(_, other)| *other != number);
        assert_eq!(memory.is_some(), last);
        let Some(memory) = memory else { return };
        for (byte, may) in memory.bytes.iter().zip(&self.carrier.permitted[number].put) {
            assert!(*may || *byte == FILL, "{memory:?}");
        }
    }

    /// The program asks how an operation has ended.
    fn take(&mut self) {
        let choice = usize::from(self.input.byte());
        if self.ops.is_empty() {
            return;
        }
        let at = choice % self.ops.len();
        if let Some((done, memory)) = self.exchange.take(self.ops[at].id) {
            self.ops.swap_remove(at);
            assert!(self.refuses || done.result != Err(OpError::Closed));
            self.check(&done, memory);
        }
    }

    fn settings(&mut self) {
        let choice = self.input.byte();
        let value = [0, 1, 2, 100, 3_000, 1 << 20, u64::MAX][usize::from(choice >> 3) % 7];
        match choice & 7 {
            0..=2 if !self.ops.is_empty() => {
                let at = usize::from(choice >> 3) % self.ops.len();
                self.exchange.cancel(self.ops[at].id);
            }
            3 if !self.ops.is_empty() => {
                let op = self
                    .ops
                    .swap_remove(usize::from(choice >> 3) % self.ops.len());
                self.exchange.forget_end(op.id);
                self.forgotten.push(op.id);
            }
            4 => {
                let bytes = (value > 0).then_some(value);
                self.exchange.set_pushed_share(bytes);
            }
            5 => {
                let chunk = u64::from(self.input.byte());
                self.window = self.window.max(value);
                self.chunk = self.chunk.max(chunk);
                self.exchange.set_pull(value, chunk);
            }
            _ => {
                let to = 1 + u32::from(choice >> 7);
                let bytes = u64::from(self.input.byte());
                if self.exchange.may_push_whole(to, bytes) && choice & 8 == 0 {
                    self.exchange.unpush(to, bytes);
                }
            }
        }
    }
}
