//! Put and get on another process's memory: every error, regions withdrawn
//! while others copy, and processes that are stopped or killed.

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::process::parent_id;
use std::process::Child;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::{Duration, Instant};

use crate::processes::{PATIENCE, child, host, receive_one, send, sleep, small, spawn};
use portolan_link::shm::{
    Exposed, OneSidedError, PeerState, Permission, PublishError, RegionId, Segment, SegmentConfig,
    ShmPlace, ShmPort, Terms, WithdrawError, lines_of,
};
use portolan_sys::memory::SharedMemory;
use portolan_sys::process::{Condition, threads};
use portolan_sys::shared_doorbell::SharedDoorbells;
use portolan_wire::Priority::{Reply, Request};
use rustix::process::{Pid, Signal, kill_process};

/// Bytes that others may read and write behind the compiler's back.
struct Memory(Box<[AtomicU8]>);

impl Memory {
    fn new(bytes: usize, fill: u8) -> Self {
        Self((0..bytes).map(|_| AtomicU8::new(fill)).collect())
    }

    fn exposed(&self) -> Exposed {
        // SAFETY: atomics, which others may change at any time; each test
        // keeps them until it has withdrawn the region or ended.
        unsafe { Exposed::new(self.0.as_ptr() as u64, self.0.len() as u64) }
    }

    fn start(&self) -> u64 {
        self.exposed().start()
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(Relaxed)).collect()
    }

    fn fill(&self, value: u8) {
        self.0.iter().for_each(|byte| byte.store(value, Relaxed));
    }

    fn holds_only(&self, value: u8) -> bool {
        self.0.iter().all(|byte| byte.load(Relaxed) == value)
    }
}

fn put(
    port: &mut ShmPort,
    peer: u16,
    key: u64,
    place: ShmPlace,
    from: &[u8],
) -> Result<(), OneSidedError> {
    port.outlet().put(peer, key, place, &[IoSlice::new(from)])
}

fn get(
    port: &mut ShmPort,
    peer: u16,
    key: u64,
    place: ShmPlace,
    into: &mut [u8],
) -> Result<(), OneSidedError> {
    port.outlet()
        .get(peer, key, place, &mut [IoSliceMut::new(into)])
}

/// Whether the rest of a test can run; says so where it cannot.
fn can_copy(port: &mut ShmPort, peer: u16) -> bool {
    let can = port.can_copy(peer);
    if !can {
        eprintln!("*** process_vm_writev IS NOT PERMITTED HERE: PUT AND GET NOT TESTED ***");
    }
    can
}

const START: ShmPlace = ShmPlace::Offset(0);

#[test]
fn bytes_go_to_their_place_and_come_back() {
    let mut host = host(2, &small());
    let [a, b] = &mut host.ports[..] else {
        unreachable!()
    };
    let memory = Memory::new(100, 0);
    let id = b
        .outlet()
        .publish(7, memory.exposed(), Permission::Both)
        .unwrap();
    if !can_copy(a, 1) {
        return;
    }
    let pieces = [&b"one"[..], b"", b" two"].map(IoSlice::new);
    a.outlet().put(1, 7, ShmPlace::Offset(90), &pieces).unwrap();
    assert_eq!(memory.bytes()[89..98], *b"\0one two\0");
    put(a, 1, 7, ShmPlace::Address(memory.start() + 2), &[5]).unwrap();
    assert_eq!(memory.bytes()[..4], [0, 0, 5, 0]);
    let (mut first, mut second) = ([0; 2], [0; 6]);
    let mut pieces = [&mut first[..], &mut second].map(IoSliceMut::new);
    a.outlet()
        .get(1, 7, ShmPlace::Offset(90), &mut pieces)
        .unwrap();
    assert_eq!((&first, &second), (b"on", b"e two\0"));
    // A region of one's own is as good, as is a port that shows frames.
    b.outlet().put(1, 7, START, &[IoSlice::new(b"x")]).unwrap();
    assert_eq!(memory.bytes()[0], b'x');
    // All that fits, and no more.
    put(a, 1, 7, START, &[1; 100]).unwrap();
    assert!(memory.holds_only(1));
    put(a, 1, 7, ShmPlace::Offset(100), &[]).unwrap();
    put(a, 1, 7, ShmPlace::Address(memory.start() + 100), &[]).unwrap();
    b.outlet().try_withdraw(id).unwrap();
}

#[test]
fn each_error_is_told_apart_and_touches_nothing() {
    let config = SegmentConfig {
        regions: 4,
        ..small()
    };
    let mut host = host(3, &config);
    drop(host.ports.pop());
    let [a, b] = &mut host.ports[..] else {
        unreachable!()
    };
    let memory = Memory::new(100, 9);
    let exposed = memory.exposed();
    let all = [
        Permission::None,
        Permission::Get,
        Permission::Put,
        Permission::Both,
    ];
    let ids: Vec<_> = (0..)
        .zip(all)
        .map(|(key, rights)| b.outlet().publish(key, exposed, rights).unwrap())
        .collect();
    let full = b.outlet().publish(4, exposed, Permission::Both);
    assert_eq!(full, Err(PublishError::Full(4)));
    let taken = b.outlet().publish(3, exposed, Permission::Both);
    assert_eq!(taken, Err(PublishError::KeyTaken));
    // SAFETY: nothing is ever published.
    let beyond = unsafe { Exposed::new(u64::MAX, 1) };
    assert_eq!(
        b.outlet().publish(4, beyond, Permission::Both),
        Err(PublishError::Range)
    );

    let mut got = [1; 10];
    for (key, rights) in (0..).zip(all) {
        let denied = Err(OneSidedError::Denied(rights));
        if !rights.allow_put() {
            assert_eq!(put(a, 1, key, START, &[0; 10]), denied);
        }
        if !rights.allow_get() {
            assert_eq!(get(a, 1, key, START, &mut got), denied);
        }
    }
    let outside = Err(OneSidedError::OutOfBounds(100));
    let start = memory.start();
    for (place, bytes) in [
        (ShmPlace::Offset(0), 101),
        (ShmPlace::Offset(91), 10),
        (ShmPlace::Offset(101), 0),
        (ShmPlace::Offset(u64::MAX), 1),
        (ShmPlace::Offset(u64::MAX - 9), 10),
        (ShmPlace::Offset(start.wrapping_neg()), 10),
        (ShmPlace::Address(start - 1), 1),
        (ShmPlace::Address(start - 1), 0),
        (ShmPlace::Address(start + 91), 10),
        (ShmPlace::Address(0), 10),
        (ShmPlace::Address(u64::MAX), 10),
    ] {
        assert_eq!(put(a, 1, 3, place, &vec![0; bytes]), outside, "{place:?}");
        let got = &mut vec![0; bytes];
        assert_eq!(get(a, 1, 3, place, got), outside, "{place:?}");
    }
    let no_key = Err(OneSidedError::NoKey);
    assert_eq!(put(a, 1, 4, START, &[0]), no_key);
    assert_eq!(put(a, 1, u64::MAX, START, &[0]), no_key);
    assert_eq!(get(a, 0, 3, START, &mut got), no_key);
    // A stale key, and its name.
    b.outlet().try_withdraw(ids[3]).unwrap();
    assert_eq!(put(a, 1, 3, START, &[0]), no_key);
    assert_eq!(
        b.outlet().try_withdraw(ids[3]),
        Err(WithdrawError::NoRegion)
    );
    // Where the table does not tell all, and where there is nothing to tell.
    b.outlet().set_terms(Terms::Elsewhere);
    let elsewhere = put(a, 1, 3, START, &[0]);
    assert_eq!(elsewhere, Err(OneSidedError::Elsewhere));
    assert!(elsewhere.unwrap_err().asks_for_message());
    b.outlet().set_terms(Terms::Forbidden);
    let forbidden = b.outlet().publish(3, exposed, Permission::Both);
    assert_eq!(forbidden, Err(PublishError::Forbidden));
    for key in 0..4 {
        let refused = Err(OneSidedError::Forbidden);
        assert_eq!(put(a, 1, key, START, &[0]), refused);
        assert_eq!(get(a, 1, key, START, &mut got), refused);
    }
    b.outlet().set_terms(Terms::Complete);
    b.outlet().publish(3, exposed, Permission::Both).unwrap();
    let mut gone = |port: &mut ShmPort, peer, state| {
        let gone = Err(OneSidedError::Gone(state));
        assert_eq!(put(port, peer, 3, START, &[0]), gone);
        assert_eq!(get(port, peer, 3, START, &mut got), gone);
    };
    gone(a, 2, PeerState::Closed);
    a.mark_dead(1);
    gone(a, 1, PeerState::Dead);
    assert_eq!(put(a, 3, 3, START, &[0]), Err(OneSidedError::NoPeer));
    assert!(memory.holds_only(9));
    assert_eq!(got, [1; 10]);
}

#[test]
fn who_has_not_opened_or_may_not_be_reached_is_sent_a_message() {
    let segment = Segment::create(3, &small()).unwrap();
    let open = |index, cma| {
        let bells = SharedDoorbells::new(3)
            .unwrap()
            .duplicate_of(index)
            .unwrap();
        let index = index as u16;
        ShmPort::attach(segment.duplicate_fd().unwrap(), index, bells, cma).unwrap()
    };
    let (mut a, mut b) = (open(0, false), open(1, true));
    let memory = Memory::new(10, 9);
    b.outlet()
        .publish(1, memory.exposed(), Permission::Both)
        .unwrap();
    let disabled = put(&mut a, 1, 1, START, &[0]);
    assert_eq!(disabled, Err(OneSidedError::NotPermitted));
    let got = &mut [7];
    assert_eq!(get(&mut a, 1, 1, START, got), disabled);
    // What is wrong in any case shows here too.
    assert_eq!(put(&mut a, 1, 2, START, &[0]), Err(OneSidedError::NoKey));
    let absent = put(&mut a, 2, 1, START, &[0]);
    assert_eq!(absent, Err(OneSidedError::NotOpen));
    for error in [disabled, absent] {
        assert!(error.unwrap_err().asks_for_message());
    }
    assert!(!OneSidedError::NoKey.asks_for_message());
    assert_eq!((memory.holds_only(9), got), (true, &mut [7]));
}

#[test]
fn a_failed_access_holds_no_region() {
    let mut host = host(2, &small());
    let [a, b] = &mut host.ports[..] else {
        unreachable!()
    };
    // Nothing is mapped at 0, and the kernel maps nothing there.
    // SAFETY: as nothing is there, nobody can change it.
    let nothing = unsafe { Exposed::new(0, u64::MAX) };
    let memory = Memory::new(10, 9);
    let whole = b.outlet().publish(1, nothing, Permission::Both).unwrap();
    let get_only = b
        .outlet()
        .publish(2, memory.exposed(), Permission::Get)
        .unwrap();
    if can_copy(a, 1) {
        let fault = Err(OneSidedError::Fault(0));
        assert_eq!(put(a, 1, 1, START, &[0]), fault);
        assert_eq!(get(a, 1, 1, ShmPlace::Address(0), &mut [0]), fault);
        let around = put(a, 1, 1, ShmPlace::Offset(u64::MAX - 4), &[0; 10]);
        assert_eq!(around, Err(OneSidedError::OutOfBounds(u64::MAX)));
        // The whole address space is a region too.
        let mut got = [0; 10];
        let place = ShmPlace::Address(memory.start());
        get(a, 1, 1, place, &mut got).unwrap();
        assert_eq!(got, [9; 10]);
    }
    assert!(put(a, 1, 2, START, &[0]).is_err());
    assert!(get(a, 1, 2, START, &mut [0; 11]).is_err());
    assert_eq!(b.outlet().try_withdraw(whole), Ok(()));
    assert_eq!(b.outlet().try_withdraw(get_only), Ok(()));
}

#[test]
fn whoever_closes_shows_nothing_any_more() {
    let mut host = host(2, &small());
    let memory = Memory::new(10, 9);
    let mut b = host.ports.pop().unwrap();
    b.outlet()
        .publish(1, memory.exposed(), Permission::Both)
        .unwrap();
    drop(b);
    let shared = SharedMemory::from_fd(host.segment.duplicate_fd().unwrap(), None).unwrap();
    // As it looks to somebody who saw it alive a moment ago.
    let line = lines_of(&shared)
        .iter()
        .find(|line| line.word(2).load(Relaxed) == memory.start())
        .expect("the region's slot");
    assert_eq!(line.word(1).load(Relaxed), 1);
    assert_eq!(line.word(0).load(Relaxed) & 4, 0);
}

#[test]
fn several_initiators_never_reach_what_was_withdrawn() {
    let mut host = host(4, &small());
    let mut owner = host.ports.remove(3);
    if !can_copy(&mut owner, 0) {
        return;
    }
    let memory = Memory::new(300_000, 0);
    let stop = AtomicBool::new(false);
    let (mut busy, mut done) = (0, 0);
    std::thread::scope(|s| {
        let users: Vec<_> = host
            .ports
            .iter_mut()
            .map(|port| {
                s.spawn(|| {
                    let mut copies = 0u32;
                    let (bytes, mut back) = (vec![1; 300_000], vec![0; 300_000]);
                    while !stop.load(Relaxed) {
                        let result = match copies % 4 {
                            0 => get(port, 3, 5, START, &mut back),
                            _ => put(port, 3, 5, START, &bytes),
                        };
                        match result {
                            Ok(()) => copies += 1,
                            Err(e) => assert_eq!(e, OneSidedError::NoKey),
                        }
                    }
                    copies
                })
            })
            .collect();
        let end = Instant::now() + PATIENCE;
        while (busy < 20 || done < 200) && Instant::now() < end {
            let id = owner
                .outlet()
                .publish(5, memory.exposed(), Permission::Both)
                .unwrap();
            std::thread::sleep(Duration::from_micros(300));
            while let Err(e) = owner.outlet().try_withdraw(id) {
                assert!(matches!(e, WithdrawError::InUse(0..3)), "{e}");
                busy += 1;
                std::thread::yield_now();
                assert!(Instant::now() < end, "{e}");
            }
            memory.fill(2);
            std::thread::yield_now();
            assert!(memory.holds_only(2));
            done += 1;
        }
        stop.store(true, Relaxed);
        let copies: Vec<_> = users.into_iter().map(|user| user.join().unwrap()).collect();
        assert!(copies.iter().all(|n| *n > 0), "{copies:?}");
    });
    assert!(busy > 0 && done > 0, "{busy} {done}");
}

/// Another process with endpoint 1, which runs this same test, and port 0.
struct Two {
    process: Child,
    port: ShmPort,
    segment: Segment,
}

impl Two {
    fn new(test: &str) -> Self {
        let segment = Segment::create(2, &SegmentConfig::default()).unwrap();
        let bells = SharedDoorbells::new(2).unwrap();
        let process = spawn(test, 1, &segment, &bells);
        let bells = bells.duplicate_of(0).unwrap();
        let mut port = ShmPort::attach(segment.duplicate_fd().unwrap(), 0, bells, true).unwrap();
        port.set_process(1, process.id());
        Self {
            process,
            port,
            segment,
        }
    }

    /// What the child says next.
    fn wait(&mut self) -> Vec<u8> {
        loop {
            if let Some((1, Reply, bytes)) = receive_one(&mut self.port) {
                return bytes;
            }
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "the child ended");
            sleep(&mut self.port);
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn stop(&self) {
        self.signal(Signal::STOP);
        while !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    /// Whether all its threads are.
    fn is_stopped(&self) -> bool {
        threads(self.process.id()).all(|thread| Condition::of(thread).unwrap().stopped)
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: the next message.
fn next(port: &mut ShmPort) -> Vec<u8> {
    loop {
        if let Some((0, Request, bytes)) = receive_one(port) {
            return bytes;
        }
        sleep(port);
    }
}

#[test]
fn a_stopped_process_is_put_to_and_got_from() {
    const TEST: &str = "onesided::a_stopped_process_is_put_to_and_got_from";
    const BYTES: usize = 3_000_000;
    if let Some(mut port) = child() {
        let memory = Memory::new(BYTES, 3);
        let id = port
            .outlet()
            .publish(1, memory.exposed(), Permission::Both)
            .unwrap();
        send(&mut port, 0, Reply, b"ready").unwrap();
        assert_eq!(next(&mut port), b"look");
        let right = memory.holds_only(4);
        let withdrawn = port.outlet().try_withdraw(id);
        send(
            &mut port,
            0,
            Reply,
            &[right.into(), withdrawn.is_ok().into()],
        )
        .unwrap();
        next(&mut port);
        return;
    }
    let mut two = Two::new(TEST);
    assert_eq!(two.wait(), b"ready");
    if !can_copy(&mut two.port, 1) {
        return;
    }
    two.stop();
    let mut got = vec![0; BYTES];
    get(&mut two.port, 1, 1, START, &mut got).unwrap();
    assert!(got.iter().all(|byte| *byte == 3));
    put(&mut two.port, 1, 1, START, &vec![4; BYTES]).unwrap();
    get(&mut two.port, 1, 1, START, &mut got).unwrap();
    assert!(got.iter().all(|byte| *byte == 4));
    let outside = put(&mut two.port, 1, 1, ShmPlace::Offset(1), &got);
    assert_eq!(outside, Err(OneSidedError::OutOfBounds(BYTES as u64)));
    assert!(two.is_stopped());
    two.signal(Signal::CONT);
    send(&mut two.port, 1, Request, b"look").unwrap();
    assert_eq!(two.wait(), [1, 1]);
}

#[test]
fn a_process_that_died_unnoticed_is_gone() {
    const TEST: &str = "onesided::a_process_that_died_unnoticed_is_gone";
    if let Some(mut port) = child() {
        let memory = Memory::new(10, 3);
        port.outlet()
            .publish(1, memory.exposed(), Permission::Both)
            .unwrap();
        send(&mut port, 0, Reply, b"ready").unwrap();
        next(&mut port);
        return;
    }
    let mut two = Two::new(TEST);
    assert_eq!(two.wait(), b"ready");
    if !can_copy(&mut two.port, 1) {
        return;
    }
    put(&mut two.port, 1, 1, START, &[0]).unwrap();
    two.process.kill().unwrap();
    two.process.wait().unwrap();
    let gone = put(&mut two.port, 1, 1, START, &[0]);
    assert_eq!(gone, Err(OneSidedError::Gone(PeerState::Dead)));
}

/// The child puts until its parent ends; ours is the memory.
fn child_puts(port: &mut ShmPort, bytes: usize) {
    let parent = parent_id();
    let bytes = vec![1; bytes];
    let can = port.can_copy(0);
    send(port, 0, Reply, &[can.into()]).unwrap();
    while parent_id() == parent {
        match put(port, 0, 1, START, &bytes) {
            Ok(()) | Err(OneSidedError::NoKey) => {}
            Err(e) => panic!("{e}"),
        }
    }
}

/// Publishes, until the child is met in the middle of a copy.
fn withdraw_in_a_copy(two: &mut Two, memory: &Memory, prepare: impl Fn(&Two)) -> RegionId {
    let end = Instant::now() + PATIENCE;
    loop {
        let id = two
            .port
            .outlet()
            .publish(1, memory.exposed(), Permission::Put)
            .unwrap();
        std::thread::sleep(Duration::from_millis(5));
        prepare(two);
        if two.port.outlet().try_withdraw(id) == Err(WithdrawError::InUse(1)) {
            return id;
        }
        assert!(Instant::now() < end, "the child does not copy");
    }
}

/// Withdraws until it succeeds, and sees that nobody writes from then on.
fn withdraw_for_good(two: &mut Two, memory: &Memory, id: RegionId) {
    let end = Instant::now() + PATIENCE;
    while let Err(e) = two.port.outlet().try_withdraw(id) {
        assert_eq!(e, WithdrawError::InUse(1));
        assert!(Instant::now() < end, "the dead hold it");
        std::thread::yield_now();
    }
    memory.fill(2);
    std::thread::sleep(Duration::from_millis(20));
    assert!(memory.holds_only(2));
}

const LARGE: usize = 64 << 20;

#[test]
fn an_initiator_killed_in_a_copy_holds_nothing_up() {
    const TEST: &str = "onesided::an_initiator_killed_in_a_copy_holds_nothing_up";
    if let Some(mut port) = child() {
        return child_puts(&mut port, LARGE);
    }
    for _ in 0..4 {
        let mut two = Two::new(TEST);
        if two.wait() != [1] {
            eprintln!("*** process_vm_writev IS NOT PERMITTED HERE: NOT TESTED ***");
            return;
        }
        let memory = Memory::new(LARGE, 0);
        let id = withdraw_in_a_copy(&mut two, &memory, |_| {});
        two.signal(Signal::KILL);
        // As early as anybody can hear of it.
        two.segment.mark_dead(1);
        withdraw_for_good(&mut two, &memory, id);
    }
}

/// Marked dead by mistake: it may still write, and so is waited for.
#[test]
fn a_stopped_initiator_is_waited_for_while_it_can_go_on() {
    const TEST: &str = "onesided::a_stopped_initiator_is_waited_for_while_it_can_go_on";
    if let Some(mut port) = child() {
        return child_puts(&mut port, LARGE);
    }
    let mut two = Two::new(TEST);
    if two.wait() != [1] || !can_copy(&mut two.port, 1) {
        eprintln!("*** process_vm_writev IS NOT PERMITTED HERE: NOT TESTED ***");
        return;
    }
    let memory = Memory::new(LARGE, 0);
    let id = withdraw_in_a_copy(&mut two, &memory, |two| {
        two.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(5));
        two.stop();
    });
    two.segment.mark_dead(1);
    for _ in 0..100 {
        let held = two.port.outlet().try_withdraw(id);
        assert_eq!(held, Err(WithdrawError::InUse(1)));
    }
    two.signal(Signal::KILL);
    withdraw_for_good(&mut two, &memory, id);
}

/// Random words over the tables while everybody publishes, gets and
/// withdraws: nothing crashes and no call lasts for ever. No bytes are put:
/// a table of garbage names any memory of this process.
#[test]
fn scribbled_tables_neither_crash_nor_hang() {
    for seed in 1..=20u64 {
        let config = SegmentConfig {
            regions: 8,
            ..small()
        };
        let mut host = host(3, &config);
        let shared = SharedMemory::from_fd(host.segment.duplicate_fd().unwrap(), None).unwrap();
        let lines = lines_of(&shared);
        let memory = Memory::new(1_000, 9);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut ids = Vec::new();
        for _ in 0..3_000 {
            // Use lines and tables lie between inboxes and ring owners.
            let slots: Vec<_> = lines
                .iter()
                .enumerate()
                .filter(|(_, line)| line.word(2).load(Relaxed) == memory.start())
                .map(|(at, _)| at)
                .collect();
            let at = match slots.as_slice() {
                [] => next() as usize % lines.len(),
                slots => slots[next() as usize % slots.len()] - next() as usize % 12,
            };
            let word = lines[at].word(next() as usize % 8);
            let old = word.load(Relaxed);
            word.store(
                match next() % 4 {
                    0 => next(),
                    1 => old.wrapping_add(1),
                    2 => old ^ 1 << (next() % 64),
                    _ => next() % 64,
                },
                Relaxed,
            );
            let (at, peer, key) = (next() as usize % 3, next() as u16 % 3, next() % 8);
            let place = match next() % 2 {
                0 => ShmPlace::Offset(next() % 1_000),
                _ => ShmPlace::Address(memory.start()),
            };
            let port = &mut host.ports[at];
            match next() % 4 {
                0 => {
                    if let Ok(id) = port
                        .outlet()
                        .publish(key, memory.exposed(), Permission::Both)
                    {
                        ids.push((at, id));
                    }
                }
                1 => {
                    let _ = get(port, peer, key, place, &mut [0; 100]);
                }
                2 => {
                    let _ = put(port, peer, key, place, &[]);
                }
                _ if !ids.is_empty() => {
                    let (owner, id) = ids.swap_remove(next() as usize % ids.len());
                    let withdrawn = host.ports[owner].outlet().try_withdraw(id);
                    assert_ne!(withdrawn, Err(WithdrawError::NoRegion));
                }
                _ => {}
            }
        }
        assert!(memory.holds_only(9));
    }
}
