//! The pass over shared memory.

use portolan_link::shm::ShortFrame;

use super::Io;
use crate::core::Core;
use crate::environment::{Clock, Network};
use crate::matched::{Lend, Onward};
use crate::net::NetLane;
use crate::outbound::{Outbound, ShmOut};
use crate::shm::{ShmLane, hand_over_whole};

/// Maximum number of frames that one pass takes.
const BURST: usize = 64;
/// Short messages in a row, without an empty pass in between, after which a pass looks for more:
/// one that waits for a single answer finds none.
const LOOK_AFTER: u32 = 8;

impl<N: Network, C: Clock> Io<N, C> {
    /// Makes one pass over shared memory: takes what has arrived, sends what waits for room. Returns
    /// how much moved. Where one short message waits, that is usually all that is looked at.
    #[inline(always)]
    pub fn pass_shm(&mut self, core: &mut Core) -> usize {
        let Some(shm) = &mut self.shm else { return 0 };
        let ShmLane { link, tx, rx, .. } = shm;
        let mut streak = 0;
        if !tx.has_work()
            && let Some(ShortFrame {
                short,
                from,
                priority,
            }) = link.peek_short()
            && let Some(message) = rx.whole(short.bytes(), from, priority)
        {
            if core.is_usual(&message)
                && let Some((handler, state)) = core.usual_handler(message.port)
            {
                // At once: the handler sees a copy.
                streak = link.advance_short();
                state.run(handler, self, message.flow, &message);
            } else if hand_over_whole(core, &mut self.lend(), &message)
                && let Some(shm) = &mut self.shm
            {
                streak = shm.link.advance_short();
            }
            if !streak.is_multiple_of(LOOK_AFTER) {
                return 1;
            }
        } else if shm.note_if_quiet() {
            return 0;
        }
        self.pass_all(core, usize::from(streak > 0))
    }

    /// Makes a pass over shared memory in which `moved` frames were taken before.
    #[inline(never)]
    fn pass_all(&mut self, core: &mut Core, mut moved: usize) -> usize {
        let Self {
            matched,
            net,
            shm,
            clock,
        } = self;
        let Some(ShmLane {
            link,
            tx,
            rx,
            blocked,
            ..
        }) = shm
        else {
            return moved;
        };
        *blocked = false;
        let polled = link.poll_with(BURST, |outlet, from, priority, frame| {
            let out = Outbound {
                net: net.as_mut().map(NetLane::sender),
                shm: Some(ShmOut {
                    outlet: outlet.again(),
                    tx,
                }),
                clock,
            };
            let taken = rx.take(core, &mut Onward { matched, out }, from, priority, frame);
            *blocked |= !taken;
            taken
        });
        moved += match polled {
            Ok(n) => n,
            Err(e) => {
                // The sender of a message in an inbox is not known.
                for index in 0..rx.ranks().len() as u16 {
                    if e.from.is_none_or(|from| from == index) {
                        rx.distrust(core, index);
                    }
                }
                1
            }
        };
        if tx.has_work() {
            moved += tx.run(&mut link.outlet(), &mut core.ops);
            core.note_news();
        }
        if let Some(to) = link.take_corrupt() {
            rx.distrust(core, to);
            moved += 1;
        }
        moved
    }
}
