//! Somebody scribbles over the memory of a host: whoever finds nonsense there
//! says so, nobody is told of an end that there was not, and nobody waits on.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use crate::common::{By, config, ended, opening, pattern, peer, run, settle};
use portolan_link::shm::{Segment, SegmentConfig, lines_of};
use portolan_ring::{InboxLayout, RingLayout};
use portolan_runtime::{
    Binding, Death, Notice, SendError, SendOptions, ShmAttachment, Space, WaitError, Watch,
};
use portolan_sys::memory::SharedMemory;
use portolan_sys::shared_doorbell::SharedDoorbells;

const RANKS: u16 = 3;
const RINGS: usize = 18;
const RING: RingLayout = RingLayout {
    slots: 128,
    data_lines: 16 << 10,
};
const INBOX: InboxLayout = InboxLayout {
    slots: 128,
    blocks: 4,
    block_lines: 1023,
};
/// Neither a plausible number of a slot nor of how far a ring was read.
const GARBAGE: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// More than a ring holds.
const LONG: usize = 9_000_000;

/// What a launcher tells a rank, and hears of it.
#[derive(Clone)]
struct Launcher(Arc<Talk>);

struct Talk {
    bell: UnixStream,
    told: Mutex<VecDeque<Notice>>,
    heard: Mutex<Vec<(u32, Death)>>,
}

struct Ear(Launcher, UnixStream);

impl Launcher {
    fn tell(&self, notice: Notice) {
        self.0.told.lock().unwrap().push_back(notice);
        (&self.0.bell).write_all(b"!").unwrap();
    }

    fn heard(&self) -> Vec<(u32, Death)> {
        self.0.heard.lock().unwrap().clone()
    }
}

impl Watch for Ear {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }
    fn poll(&mut self) -> Option<Notice> {
        let _ = self.1.read(&mut [0]);
        self.0.0.told.lock().unwrap().pop_front()
    }
    fn give_up(&mut self, rank: u32, _restarts: u32, why: Death, _starved: bool) {
        self.0.0.heard.lock().unwrap().push((rank, why));
    }
    fn leave(&mut self) {}
}

struct Host {
    memory: SharedMemory,
    ranks: Vec<Space>,
    launchers: Vec<Launcher>,
}

impl Host {
    fn new() -> Self {
        let settings = SegmentConfig {
            rings: Some(RINGS as u32),
            ring_bytes: Some(1 << 20),
            ..SegmentConfig::default()
        };
        let segment = Segment::create(RANKS.into(), &settings).unwrap();
        let bells = SharedDoorbells::new(RANKS.into()).unwrap();
        let all: Vec<_> = (0..RANKS.into())
            .map(|rank| opening(By::Ring, rank, &config()))
            .collect();
        let peers: Vec<_> = (all.iter().zip(0..))
            .map(|(opening, index)| peer(opening, Some(index)))
            .collect();
        let (mut ranks, mut launchers) = (Vec::new(), Vec::new());
        for (opening, index) in all.into_iter().zip(0..) {
            let attachment = ShmAttachment {
                segment: segment.duplicate_fd().unwrap(),
                index,
                doorbells: bells.duplicate_of(usize::from(index)).unwrap(),
            };
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let launcher = Launcher(Arc::new(Talk {
                bell: ours,
                told: Mutex::default(),
                heard: Mutex::default(),
            }));
            let ear = Box::new(Ear(launcher.clone(), theirs));
            let endpoint = opening.finish(&peers, Some(attachment), Some(ear)).unwrap();
            endpoint.bind(1, Binding::to(|_, _| ())).unwrap();
            ranks.push(endpoint);
            launchers.push(launcher);
        }
        let memory = SharedMemory::from_fd(segment.duplicate_fd().unwrap(), None).unwrap();
        Self {
            memory,
            ranks,
            launchers,
        }
    }

    fn scribble(&self, lines: std::ops::Range<usize>) {
        for line in &lines_of(&self.memory)[lines] {
            (0..8).for_each(|word| line.word(word).store(GARBAGE, Relaxed));
        }
    }

    /// Over all pair rings, which end the memory.
    fn scribble_rings(&self) {
        let end = lines_of(&self.memory).len();
        self.scribble(end - RINGS * RING.lines()..end);
    }
}

fn long(from: &Space, to: u32) -> portolan_runtime::OpId {
    let options = SendOptions::default();
    from.post_message(to, 1, &options, pattern(LONG, 1))
        .unwrap()
}

#[test]
fn who_sends_into_nonsense_waits_no_longer_and_is_told_of_no_close() {
    let host = Host::new();
    let [a, ..] = &host.ranks[..] else { panic!() };
    let sent = ended(a, long(a, 1));
    settle(&[a]);
    assert!(!sent(), "nobody reads");
    host.scribble_rings();
    run(&[a], sent);
    let why = Death::Corrupt;
    assert_eq!(a.death(1).unwrap(), Some(why));
    let refused = a.try_send(1, 1, b"x");
    assert_eq!(refused.unwrap_err(), SendError::PeerDead { rank: 1, why });
    assert_eq!(host.launchers[0].heard(), [(1, why)]);
    // What it sent to nobody by a ring goes on.
    assert_eq!(a.death(2).unwrap(), None);
}

#[test]
fn who_is_given_up_hears_of_it_and_waits_no_longer() {
    let host = Host::new();
    let [a, b, _] = &host.ranks[..] else { panic!() };
    let sent = ended(b, long(b, 0));
    run(&[a, b], sent);
    // From here on it waits for an answer, and has no reason to look.
    host.scribble_rings();
    let why = Death::Corrupt;
    run(&[a], || a.death(1).unwrap() == Some(why));
    assert_eq!(host.launchers[0].heard(), [(1, why)]);
    host.launchers[1].tell(Notice::GivenUp(0));
    let waited = b.wait_until(|| false);
    assert_eq!(waited, Err(WaitError::PeerDead { rank: 0, why }));
    // One that shares no memory with it has nothing to say.
    host.launchers[1].tell(Notice::GivenUp(1));
    settle(&[b]);
    assert_eq!(b.death(1).unwrap(), None);
}

#[test]
fn of_a_scribbled_inbox_all_who_write_there_are_given_up() {
    let host = Host::new();
    let [a, b, _] = &host.ranks[..] else { panic!() };
    b.try_send(0, 1, b"lost").unwrap();
    // Behind the header, its state and who it is: a count and the blocks' owners.
    let slots = 3 + 2 + 2;
    assert!(INBOX.lines() > slots);
    host.scribble(slots..slots + INBOX.slots as usize);
    let why = Death::Corrupt;
    run(&[a], || {
        [1, 2].map(|rank| a.death(rank).unwrap()) == [Some(why); 2]
    });
    let mut heard = host.launchers[0].heard();
    heard.sort_unstable_by_key(|(rank, _)| *rank);
    assert_eq!(heard, [(1, why), (2, why)]);
}

#[test]
fn a_scribbled_state_is_no_end() {
    let host = Host::new();
    let [a, ..] = &host.ranks[..] else { panic!() };
    let state = lines_of(&host.memory)[3 + 2 + 2 * INBOX.lines()].word(0);
    assert_eq!(state.load(Relaxed), 1, "the state of rank 1, which lives");
    state.store(2, Relaxed);
    let why = Death::Corrupt;
    let refused = a.try_send(1, 1, b"x");
    assert_eq!(refused.unwrap_err(), SendError::PeerDead { rank: 1, why });
    run(&[a], || host.launchers[0].heard() == [(1, why)]);
}
