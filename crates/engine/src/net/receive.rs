//! Takes what arrives.

use portolan_link::{LinkAddress, LinkError, RxFrame};
use portolan_proto::{NetAddress, PeerId, Spare};

use super::intake::Intake;
use super::{BURST, NetLane, link_address};
use crate::core::Core;
use crate::environment::{Clock, Network};
use crate::matched::Matched;
use crate::outbound::NetTx;
use crate::shm::ShmLane;

/// What frames that arrive go through.
pub(super) struct Receipt<'a> {
    pub now: u64,
    pub tx: &'a mut NetTx,
    pub matched: &'a mut Matched,
    pub intake: Intake<'a>,
    pub mis_steered: &'a mut Vec<PeerId>,
    pub spare: &'a mut Spare,
    pub has_fast: bool,
}

impl Receipt<'_> {
    #[inline]
    pub fn take(&mut self, f: RxFrame<'_>) {
        let from = net_address(f.from);
        if f.detour {
            return self.take_usual(f);
        }
        // The compiler keeps a view in registers to which no other function has a reference.
        let Some(it) = self.tx.tables.view().foresee(from, f.ce, f.bytes) else {
            return self.take_usual(f);
        };
        let mut view = self.tx.tables.view();
        let taken = view.take_foreseen(self.now, it, f.bytes, self.spare);
        if self.tx.tables.core().has_events() {
            self.intake.hear(&mut self.tx.tables.view());
        }
        self.intake.take_quick(self.matched, self.tx, taken);
    }

    #[inline(never)]
    fn take_usual(&mut self, f: RxFrame<'_>) {
        let (from, detour) = (net_address(f.from), f.detour);
        let mut view = self.tx.tables.view();
        let Some(mut rx) = view.handle_packet(self.now, from, f.ce, f.bytes, self.spare) else {
            self.intake.hear(&mut view);
            return;
        };
        if let Some(heard) = rx.heard().filter(|_| self.has_fast) {
            // Only the first network has a path past the kernel.
            if heard.path == 0 {
                view.note_detour(heard.peer, detour);
            }
            if heard.detour && self.mis_steered.last() != Some(&heard.peer) {
                self.mis_steered.push(heard.peer);
            }
        }
        self.intake.take(self.matched, self.tx, &mut rx);
    }
}

fn net_address(a: LinkAddress) -> NetAddress {
    NetAddress {
        ip: a.ip,
        port: a.port,
    }
}

impl<N: Network> NetLane<N> {
    /// Takes all that has arrived, and notes what the links have learnt beside it.
    #[inline(never)]
    pub(super) fn receive_burst(
        &mut self,
        core: &mut Core,
        matched: &mut Matched,
        shm: Option<&mut ShmLane>,
        clock: &dyn Clock,
    ) -> usize {
        let now = self.tx.now;
        let has_fast = self.link.has_fast_path();
        let mut receipt = Receipt {
            now,
            tx: &mut self.tx,
            matched,
            intake: Intake {
                shm,
                ..self.peers.intake(core, clock)
            },
            mis_steered: &mut self.mis_steered,
            spare: &mut self.spare,
            has_fast,
        };
        let received = self.link.rx_burst(BURST, |frame| receipt.take(frame));
        for peer in self.mis_steered.drain(..) {
            if let Some(to) = self.tx.tables.view().peer_address(peer) {
                self.link.mis_steered(&link_address(to));
            }
        }
        let tables = &mut self.tx.tables;
        self.link
            .take_unreachable(|quote| tables.view().port_unreachable(now, quote));
        match received {
            Ok(moved) => {
                self.peers.failing.received();
                moved
            }
            Err(e) => {
                self.cannot_receive(core, e);
                0
            }
        }
    }

    /// Prints that nothing can be received: reports of silent peers alone would mislead.
    #[cold]
    fn cannot_receive(&mut self, core: &Core, e: LinkError) {
        if let LinkError::Broken(errno) = e
            && let Some(failure) = self.peers.failing.not_received(errno)
        {
            (core.tell)(format_args!(
                "portolan: rank {}: {failure}. Does a filter (seccomp) refuse the call? \
                 `portolan doctor`, run the same way, says which one",
                core.rank
            ));
        }
    }
}
