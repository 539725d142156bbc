//! A space that all ranks open, meet in and leave again while they go on with all else. Each
//! waits there for a message that never comes, has sent one that nobody takes, and others of
//! which it hears nothing more: these are received when their sender has left.

use portolan_engine::{BarrierCall, Gather, Group, Scatter, SendError, SpaceId};
use portolan_exchange::{Memory, Notify, OpError, OpId, Selector, SendOptions, Statistics};

use super::rank::Rank;

/// So long that it is offered.
const BYTES: usize = 20_000;

/// Messages that are received late, each so long: some find no room to be pushed. Their tags
/// differ from others' in this bit.
const LATE: u64 = 12;
const LATE_TAG: u64 = 1 << 32;
const LATE_BYTES: usize = 600;

/// How far a rank has come there.
#[derive(Debug, Default)]
pub enum Parting {
    #[default]
    No,
    Due,
    Meets(BarrierCall),
    Waits,
    HandsOver,
    Leaves,
    Left,
}

impl Parting {
    pub const fn is_under_way(&self) -> bool {
        !matches!(self, Self::No | Self::Left)
    }
}

/// Which space that is.
pub fn space() -> SpaceId {
    SpaceId::new(5).expect("there is one")
}

impl Rank {
    /// Goes on with it; whether it has come further.
    pub(super) fn go_on_parting(&mut self, now: u64) -> bool {
        self.parting = match std::mem::take(&mut self.parting) {
            Parting::Due => self.begin_parting(),
            Parting::Meets(mut call) => {
                if !self.poll_barrier(&mut call, now) {
                    self.parting = Parting::Meets(call);
                    return false;
                }
                Parting::Waits
            }
            // Of two neighbours one leaves; the other one hears of it.
            Parting::Waits if self.rank.is_multiple_of(2) || self.parting_ended(0) => {
                self.note(|| "leaves a space".into());
                self.receive_late();
                self.engine.core.refuse_space(space());
                self.engine.say_closing(Some(space()));
                Parting::HandsOver
            }
            Parting::HandsOver if !self.engine.holds_any(Some(space())) => {
                self.engine.close_space(space());
                Parting::Leaves
            }
            Parting::Leaves if self.engine.space_has_left(space()) => {
                self.engine.core.set_left(space());
                for op in std::mem::take(&mut self.parting_ops) {
                    let ended = self.engine.exchange(space()).take(op);
                    let result = ended.expect("all have ended").0.result;
                    let fair = matches!(result, Err(OpError::Closed | OpError::PeerDead));
                    assert!(fair, "{result:?}");
                }
                let left = self.engine.exchange(space()).statistics();
                let mut nothing = Statistics::default();
                // What still comes goes nowhere; the pulls are those of all spaces.
                (nothing.parts, nothing.pulled_bytes) = (left.parts, left.pulled_bytes);
                assert_eq!(left, nothing);
                Parting::Left
            }
            same => {
                self.parting = same;
                return false;
            }
        };
        true
    }

    fn begin_parting(&mut self) -> Parting {
        self.engine
            .open_space(space())
            .expect("it was never opened");
        let size = self.engine.core.size;
        let [next, before] = [1, size - 1].map(|by| (self.rank as u32 + by) % size);
        let into = Scatter::from(vec![0; BYTES]);
        let never = Selector::from(next, 1);
        let waits = (self.engine).post_receive(space(), &never, into, Notify::default());
        self.parting_ops.push(waits.expect("the rank is there"));
        let options = SendOptions {
            sync: true,
            ..SendOptions::default()
        };
        let from = Gather::from(vec![0; BYTES]);
        match self.engine.post_tagged(space(), before, 2, &options, from) {
            Ok(op) => self.parting_ops.push(op),
            Err((SendError::PeerDead { .. }, _)) => {}
            Err((e, _)) => panic!("{e:?}"),
        }
        for number in 0..LATE {
            let from = Gather::from(vec![number as u8; LATE_BYTES]);
            let options = SendOptions::default();
            if let Ok(op) =
                (self.engine).post_tagged(space(), before, LATE_TAG | number, &options, from)
            {
                self.engine.exchange(space()).forget_end(op);
            }
        }
        let ranks: Vec<u32> = (0..size).collect();
        let group = Group::new(&ranks).within(space());
        (self.engine.core.begin_barrier(&group)).map_or(Parting::Waits, Parting::Meets)
    }

    /// Of a neighbour that has left in good order all is here, in order.
    fn receive_late(&mut self) {
        let next = (self.rank as u32 + 1) % self.engine.core.size;
        let lives = self.engine.core.lanes.dead(next).is_none();
        let left = lives && self.engine.core.restarts(next) == Ok(0) && self.parting_ended(0);
        if !left || next as usize == self.rank {
            return;
        }
        let late = Selector::from(next, LATE_TAG).ignoring(LATE_TAG - 1);
        for number in 0..LATE {
            let exchange = self.engine.exchange(space());
            let found = exchange.claim(&late);
            let (message, what) = found.expect("what a rank sent before it left is here");
            let expected = (LATE_TAG | number, LATE_BYTES as u64);
            assert_eq!((what.tag, what.total), expected);
            let into = Scatter::from(vec![0xff; LATE_BYTES]);
            let op = exchange.receive_claimed(message, into, Notify::default());
            let ended = exchange.take(op);
            let Some((done, Some(Memory::Sink(into)))) = ended else {
                panic!("message {number} of a rank that has left is not here whole");
            };
            assert_eq!(done.result, Ok(()));
            let bytes = into.into_buffers().remove(0).into_vec();
            assert_eq!(bytes, Some(vec![number as u8; LATE_BYTES]));
        }
    }

    fn parting_ended(&mut self, at: usize) -> bool {
        let op: OpId = self.parting_ops[at];
        self.engine.exchange(space()).is_done(op) == Some(true)
    }
}
