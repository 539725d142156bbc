//! The network lane: the protocol over its tables, and the link below it. Its sending
//! half, which has the tables, is in `outbound`.

mod failing;
mod intake;
mod receive;
mod starvation;

use portolan_link::{LinkAddress, LinkError, Looked, TxFrame};
use portolan_proto as proto;
use portolan_proto::{NetAddress, PeerId, Spare, Tables, Transmit};
use portolan_wire::{Address, MessageNo};

use self::failing::Failing;
use self::intake::{Intake, Peers};
use self::receive::Receipt;
use self::starvation::Starvation;
use crate::core::{Core, Finding};
use crate::environment::{Clock, Network};
use crate::lanes::Restarted;
use crate::matched::Matched;
use crate::outbound::{Gathering, NetTx, ProtoTables};
use crate::shm::ShmLane;
use crate::values::Death;

/// Least UDP payload that every path takes, bytes (RFC 8200: 1,280 with IPv6 and UDP
/// headers).
pub const PACKET_MIN: u16 = 1_232;

/// Maximum number of frames that pass between protocol and link in one burst.
const BURST: usize = 64;

/// Longer pauses between passes may mean that the thread lacked a core, ns; without a sleep
/// they do.
const PAUSE_NS: u64 = 1_000_000;
/// Pauses longer than the dead-peer timeout divided by this may affect that timeout.
const PAUSES: u64 = 64;

/// Passes that move something, without a sleep between them, after which no sleep is likely
/// soon: about 50 us of traffic, as long as a wait spins.
const CALM_PASSES: u32 = 32;

/// Empty passes in a row, behind one that has brought something to answer, in which
/// acknowledgements wait for the answer. MPI libraries empty a completion queue before they
/// answer, so at least one such pass comes first; an acknowledgement of its own costs as much
/// as a message.
const ANSWER_PASSES: u8 = 2;

/// Interval at which the interfaces are asked for their packet size, ns: a call or two for
/// each.
const SIZES_EVERY_NS: u64 = 500_000_000;

/// The network lane.
pub struct NetLane<N> {
    /// Links that carry the packets.
    pub link: N,
    tx: NetTx,
    peers: Peers,
    /// Packets that the link has not taken yet.
    pending: Vec<Transmit>,
    /// Peers that report that our packets reach them by a detour.
    mis_steered: Vec<PeerId>,
    /// Buffer for held chunks while they are taken.
    spare: Box<Spare>,
    /// Time of the last pass, ns.
    passed_at: u64,
    /// Number of empty passes in which an answer of the application may still come.
    answer_passes: u8,
    /// The link's descriptor can be waited on.
    armed: bool,
    /// Passes that moved something since [`Self::arm`].
    busy: u32,
    /// When the interfaces are asked next for their packet size, ns.
    sizes_at: u64,
    /// Networks whose interface takes less than [`PACKET_MIN`].
    cramped: [bool; proto::PATHS_MAX],
    /// Pause between passes above which the protocol is told that they came late, ns.
    late_ns: u64,
    starvation: Starvation,
}

const fn link_address(to: NetAddress) -> LinkAddress {
    LinkAddress {
        ip: to.ip,
        port: to.port,
        scope: 0,
    }
}

impl<N: Network> NetLane<N> {
    /// Makes the lane. `silence_ns`: dead-peer timeout of `tables`.
    pub fn new(link: N, tables: ProtoTables, ranks: Vec<u32>, silence_ns: u64, now: u64) -> Self {
        Self {
            link,
            tx: NetTx {
                tables,
                now,
                dirty: false,
                gathering: Gathering::default(),
            },
            peers: Peers {
                ranks,
                failing: Failing::default(),
                gone: Vec::new(),
            },
            pending: Vec::with_capacity(BURST),
            mis_steered: Vec::with_capacity(BURST),
            spare: Box::default(),
            passed_at: now,
            answer_passes: 0,
            armed: true,
            busy: 0,
            sizes_at: 0,
            cramped: [false; proto::PATHS_MAX],
            late_ns: silence_ns / PAUSES,
            starvation: Starvation::new(silence_ns, now),
        }
    }

    /// Makes one pass: takes what has arrived, handles what is due, sends what is ready.
    /// Returns the number of packets moved.
    pub fn pass(
        &mut self,
        core: &mut Core,
        matched: &mut Matched,
        mut shm: Option<&mut ShmLane>,
        clock: &dyn Clock,
    ) -> usize {
        let now = clock.now();
        let last = std::mem::replace(&mut self.passed_at, now);
        self.tx.now = now;
        self.tx.dirty = false;
        self.tx.gathering.pass();
        if now.saturating_sub(last) > PAUSE_NS {
            self.after_pause(now, last, clock);
        }
        self.link.set_now(now);
        if now >= self.sizes_at {
            self.ask_sizes(core);
        }
        let before = core.answerable();
        let Self {
            link,
            tx,
            peers,
            mis_steered,
            spare,
            ..
        } = self;
        let found = match link.receive_one() {
            Looked::Nothing => Some(0),
            Looked::One(frame) => {
                Receipt {
                    now,
                    tx,
                    matched,
                    intake: Intake {
                        shm: shm.as_deref_mut(),
                        ..peers.intake(core, clock)
                    },
                    mis_steered,
                    spare,
                    has_fast: false,
                }
                .take(frame);
                Some(1)
            }
            Looked::Unknown => None,
        };
        let moved = match found {
            Some(found) => {
                self.peers.failing.received();
                found
            }
            None => self.receive_burst(core, matched, shm.as_deref_mut(), clock),
        };
        if self.tx.tables.core().is_due(now) {
            self.handle_timeouts(core, matched, shm, clock);
        }
        let flush_delayed_acks = self.answer_is_late(core.answerable() != before, moved > 0);
        moved + self.transmit(core, flush_delayed_acks, clock)
    }

    /// Handles what is due now.
    #[inline(never)]
    fn handle_timeouts(
        &mut self,
        core: &mut Core,
        matched: &mut Matched,
        shm: Option<&mut ShmLane>,
        clock: &dyn Clock,
    ) {
        let tx = &mut self.tx;
        if let Some(count) = tx.tables.view().wanted_connections() {
            tx.tables.grow_connections(count);
        }
        let mut intake = Intake {
            shm,
            ..self.peers.intake(core, clock)
        };
        intake.handle_timeouts(matched, tx, &mut self.spare);
    }

    /// Tells the protocol that no pass was made from `last` to `now`: none was wanted, or this
    /// thread got no core.
    #[cold]
    fn after_pause(&mut self, now: u64, last: u64, clock: &dyn Clock) {
        let mut view = self.tx.tables.view();
        if now.saturating_sub(last) > self.late_ns {
            view.came_late(now, last);
        }
        if let Some(ns) = self.starvation.look(now, clock) {
            view.was_starved(now, ns);
        }
    }

    /// Whether delayed acknowledgements wait no longer for an answer. `answerable`: the pass
    /// has brought something to answer; `any`: some packet.
    #[inline]
    const fn answer_is_late(&mut self, answerable: bool, any: bool) -> bool {
        if answerable {
            self.answer_passes = ANSWER_PASSES;
            return false;
        }
        let late = any || self.answer_passes == 0;
        self.answer_passes = if late { 0 } else { self.answer_passes - 1 };
        late
    }

    /// Whether the thread that makes passes got too little of its core lately.
    pub fn is_starved(&self) -> bool {
        self.starvation.is_recent(self.tx.now)
    }

    /// The clock as of the last pass or send, ns.
    pub const fn now(&self) -> u64 {
        self.tx.now
    }

    /// Whether something waits to be sent by one of the next passes.
    #[inline(always)]
    pub fn is_owed(&self) -> bool {
        self.tx.dirty || !self.pending.is_empty() || self.answer_passes > 0
    }

    /// Sends packets that are ready; returns their number.
    #[inline]
    pub fn transmit(
        &mut self,
        core: &mut Core,
        flush_delayed_acks: bool,
        clock: &dyn Clock,
    ) -> usize {
        self.tx.dirty = false;
        self.tx.gathering.left();
        if self.pending.is_empty()
            && !self.tx.tables.core().may_transmit(flush_delayed_acks)
            && self.peers.gone.is_empty()
        {
            return 0;
        }
        self.transmit_ready(core, flush_delayed_acks, clock)
    }

    #[inline(never)]
    fn transmit_ready(
        &mut self,
        core: &mut Core,
        flush_delayed_acks: bool,
        clock: &dyn Clock,
    ) -> usize {
        let mut sent = 0;
        let Self {
            link,
            tx,
            peers,
            pending,
            sizes_at,
            ..
        } = self;
        let now = tx.now;
        let mut view = tx.tables.view();
        for peer in peers.gone.drain(..) {
            link.admit(peer.0, view.connection_numbers(peer));
        }
        let mut failure = None;
        loop {
            let mut dry = false;
            while pending.len() < BURST {
                let Some(t) = view.poll_transmit(now, flush_delayed_acks, &core.ops) else {
                    dry = true;
                    break;
                };
                if t.connect {
                    // Before the peer learns the numbers.
                    link.admit(t.peer.0, view.connection_numbers(t.peer));
                    if t.network == 0 {
                        link.introduce(&link_address(t.to));
                    }
                }
                pending.push(t);
            }
            peers.intake(core, clock).hear(&mut view);
            if pending.is_empty() {
                break;
            }
            let frame = |t: &Transmit| TxFrame {
                to: link_address(t.to),
                bytes: view.frame(t),
                ecn: t.ecn,
            };
            // Latency is measured by a single small message.
            let network = pending[0].network;
            let same = pending.iter().take_while(|t| t.network == network);
            let by = same.count();
            let result = if let [only] = pending.as_slice() {
                link.tx_burst(network, &[frame(only)])
            } else {
                let mut frames = [TxFrame {
                    to: LinkAddress::default(),
                    bytes: &[],
                    ecn: false,
                }; BURST];
                for (slot, t) in frames.iter_mut().zip(&pending[..by]) {
                    *slot = frame(t);
                }
                link.tx_burst(network, &frames[..by])
            };
            let done = match result {
                Ok(n) => n,
                Err(LinkError::Full) => 0,
                Err(e) => {
                    failure = Some(e);
                    1
                }
            };
            let all = done == by;
            let last = by == pending.len();
            match failure {
                None => peers.failing.sent(pending[..done].iter().map(|t| t.peer)),
                Some(LinkError::Unreachable(errno) | LinkError::Broken(errno)) => {
                    peers.failing.not_sent(pending[0].peer, errno);
                }
                Some(_) => {}
            }
            for (i, t) in pending[..done].iter().enumerate() {
                if i == 0
                    && let Some(LinkError::TooBig(max)) = failure
                {
                    log::debug!("packets to peer {} may have {max} bytes", t.peer.0);
                    view.packet_too_big(now, t.peer, t.path, t.len, max);
                    // The interface may know how much it takes.
                    *sizes_at = 0;
                }
                view.transmitted(t.frame);
            }
            pending.drain(..done);
            if let Some(e) = failure.take() {
                core.counters.tx_failed += 1;
                if matches!(e, LinkError::Broken(_)) {
                    log::warn!("the network link is broken: {e:?}");
                    break;
                }
                continue;
            }
            sent += done;
            // What the frames that are free now allow is sent in the next pass.
            if (dry && last) || !all {
                break;
            }
        }
        sent
    }

    /// Sends one short message at once, past the queues. `None`: something waits, or is
    /// unusual, and the message has to wait its turn.
    #[inline]
    pub fn send_one(
        &mut self,
        clock: &impl Clock,
        peer: PeerId,
        m: &proto::Message<'_>,
    ) -> Option<MessageNo> {
        let Self {
            link,
            tx,
            peers,
            pending,
            ..
        } = self;
        if tx.dirty || !pending.is_empty() || !peers.gone.is_empty() || !tx.gathering.is_alone(peer)
        {
            return None;
        }
        let now = clock.now();
        let mut view = tx.tables.view();
        let (number, t) = view.send_one(now, peer, m)?;
        let frame = TxFrame {
            to: link_address(t.to),
            bytes: view.frame(&t),
            ecn: t.ecn,
        };
        if link.tx_burst(t.network, &[frame]) == Ok(1) {
            view.sent_one(t.frame);
            // An acknowledgement or a probe of the packet size may be due now.
            tx.dirty = tx.tables.core().may_transmit(false);
            peers.failing.sent(std::iter::once(peer));
        } else {
            // The usual way finds out why.
            pending.push(t);
            tx.dirty = true;
        }
        tx.now = now;
        tx.gathering.add(now, peer, 0);
        Some(number)
    }

    /// Asks the interfaces for their packet sizes, which may have changed.
    #[cold]
    fn ask_sizes(&mut self, core: &mut Core) {
        self.sizes_at = self.tx.now + SIZES_EVERY_NS;
        if core.standalone() {
            core.find(Finding::Due);
        }
        let (rank, least) = (core.rank, usize::from(PACKET_MIN));
        for (path, size) in self.link.sizes_now() {
            let was_cramped = std::mem::replace(&mut self.cramped[usize::from(path)], size < least);
            if size < least && !was_cramped {
                // Short packets still leave, so that no peer seems silent.
                (core.tell)(format_args!(
                    "portolan: rank {rank}: an interface takes UDP payloads of {size} bytes now, \
                     {least} are needed, and no long message leaves: give it an MTU of 1,280 or \
                     more"
                ));
            }
            let now = self.tx.now;
            self.tx.tables.view().set_packet_max(now, path, size);
        }
    }

    /// Offers messages again that were not taken.
    pub fn resume(
        &mut self,
        core: &mut Core,
        matched: &mut Matched,
        shm: Option<&mut ShmLane>,
        clock: &dyn Clock,
    ) {
        let now = self.tx.now;
        let mut intake = Intake {
            shm,
            ..self.peers.intake(core, clock)
        };
        let mut rx = self.tx.tables.view().resume(now, &mut self.spare);
        intake.take(matched, &mut self.tx, &mut rx);
        self.tx.dirty = true;
    }

    /// Handles a report that a peer's process has ended.
    pub fn peer_died(&mut self, core: &mut Core, peer: PeerId, how: Death, clock: &dyn Clock) {
        let mut intake = Intake {
            told: how,
            ..self.peers.intake(core, clock)
        };
        self.tx.tables.view().peer_died(peer);
        intake.hear(&mut self.tx.tables.view());
    }

    /// The protocol's tables.
    pub(crate) const fn tables(&mut self) -> &mut ProtoTables {
        &mut self.tx.tables
    }

    /// Raises the number of peers; each has its number plus one as rank.
    pub(crate) fn grow(&mut self, peers: u32) {
        let known = self.peers.ranks.len() as u32;
        self.peers.ranks.extend(known + 1..=peers);
    }

    /// Removes a peer for the program: it is told, and more happens when it knows.
    pub(crate) fn remove_peer(
        &mut self,
        core: &mut Core,
        now: u64,
        peer: PeerId,
        clock: &dyn Clock,
    ) {
        self.tx.now = now;
        self.tx.dirty = true;
        self.tx.tables.view().remove_peer(now, peer);
        let mut intake = Intake {
            told: Death::Nobody,
            ..self.peers.intake(core, clock)
        };
        intake.hear(&mut self.tx.tables.view());
    }

    /// Handles a report that a rank is back in another life; returns its number as a peer, if
    /// it has one.
    pub fn peer_returned(
        &mut self,
        core: &mut Core,
        it: &Restarted,
        clock: &dyn Clock,
    ) -> Option<PeerId> {
        let at = self.peers.ranks.iter().position(|rank| *rank == it.rank)?;
        let peer = PeerId(at as u32);
        let mut intake = Intake {
            told: Death::Restarted,
            ..self.peers.intake(core, clock)
        };
        let Address { life, ip, port, .. } = it.address;
        let to = NetAddress { ip, port };
        (self.tx.tables.view()).peer_returned(peer, life, to, it.mode);
        intake.hear(&mut self.tx.tables.view());
        Some(peer)
    }

    /// Resets a peer's silence timer: it is known to be alive, though silent.
    pub fn reset_silence_timer(&mut self, peer: PeerId, now: u64) {
        self.tx.tables.view().reset_silence_timer(now, peer);
    }

    /// Returns when a peer was last heard, ns, if it has active state.
    pub fn heard_at(&mut self, peer: PeerId) -> Option<u64> {
        self.tx.tables.view().heard_at(peer)
    }

    /// Prepares the link's descriptor for a sleep; false if it cannot be relied on.
    pub fn arm(&mut self) -> bool {
        self.busy = 0;
        if !self.armed {
            self.armed = self.link.arm().is_ok();
        }
        self.armed
    }

    /// Whether the link's descriptor can be waited on.
    #[inline(always)]
    pub const fn is_armed(&self) -> bool {
        self.armed
    }

    /// Notes a pass that moved something without a sleep: after several, the kernel need not
    /// look for sleepers with each packet.
    pub fn disarm_link(&mut self) {
        self.busy += 1;
        if self.busy >= CALM_PASSES {
            self.armed = false;
            self.link.disarm();
        }
    }

    /// Returns when the next pass is due, ns of the monotonic clock.
    pub fn next_timeout(&mut self) -> Option<u64> {
        if self.is_owed() {
            return Some(0);
        }
        self.tx.tables.view().next_timeout()
    }

    /// Whether all that was sent has been acknowledged.
    pub fn idle(&mut self) -> bool {
        self.pending.is_empty() && self.tx.tables.view().idle()
    }

    /// Returns the ranks that have stopped flows of ours.
    pub fn stopped_by(&mut self) -> Vec<u32> {
        let (view, ranks) = (self.tx.tables.view(), &self.peers.ranks);
        let stopping = view.stopped_by();
        stopping.map(|peer| ranks[peer.0 as usize]).collect()
    }

    /// Whether all that was sent has left.
    pub fn has_left(&mut self) -> bool {
        self.pending.is_empty() && self.tx.tables.view().has_left()
    }

    /// Tells all peers that nothing more comes.
    pub fn close(&mut self, now: u64) {
        self.tx.now = now;
        self.tx.tables.view().close(now);
    }

    /// Returns what is read from outside: the protocol's tables, and the rank of each peer.
    pub fn described(&mut self) -> (Tables<'_>, &[u32]) {
        (self.tx.tables.split().0, &self.peers.ranks)
    }

    /// Asserts that the protocol's tables agree with each other. For tests.
    pub fn check(&mut self) {
        self.tx.tables.view().check();
    }

    /// Returns the protocol's counters.
    pub fn counters(&mut self) -> proto::Counters {
        *self.tx.tables.view().counters()
    }

    /// Returns the sending half.
    #[inline(always)]
    pub const fn sender(&mut self) -> &mut NetTx {
        &mut self.tx
    }

    /// Sets the time for a send outside of a pass, ns.
    pub const fn set_now(&mut self, now: u64) {
        self.tx.now = now;
    }

    /// Whether a call outside of a pass has sent something.
    #[inline(always)]
    pub const fn is_dirty(&self) -> bool {
        self.tx.dirty
    }

    /// Lets short messages in a row wait for the next pass, which must come soon while
    /// [`NetLane::gathers`].
    pub const fn gather(&mut self) {
        self.tx.gathering.switch_on();
    }

    /// Whether what was sent waits for more of its kind.
    #[inline(always)]
    pub const fn gathers(&self) -> bool {
        self.tx.gathering.waits()
    }
}
