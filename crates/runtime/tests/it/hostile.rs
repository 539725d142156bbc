//! A process of the job that writes what it likes into the shared memory of its
//! host: it is judged corrupt, or what it says is ignored, and others' traffic
//! goes on.

use std::sync::{Arc, Mutex};

use crate::common::{By, Count, config, ended, opening, pattern, peer, run, settle};
use portolan_link::shm::{Segment, SegmentConfig, ShmPort};
use portolan_runtime::{Binding, Death, Event, Priority, SendOptions, ShmAttachment, Space};
use portolan_sys::shared_doorbell::SharedDoorbells;

/// Index and rank of the one that misbehaves.
const HOSTILE: u16 = 1;
/// Kinds of control frames.
const ASK: u8 = 0x80;
const ANSWER: u8 = 0x81;
const OFFER: u8 = 0x82;
const DONE: u8 = 0x83;
const MARK: u8 = 0x84;

struct Host {
    victim: Space,
    other: Space,
    hostile: ShmPort,
    /// What the victim heard of others' deaths.
    deaths: Arc<Mutex<Vec<(u32, Death)>>>,
    /// Messages of the other that came to the victim, whole and right.
    came: Count,
}

/// Bytes of a message of the other's: in parts, by the ring.
const BYTES: usize = 40_000;
/// More than finds room there at once.
const LONG: usize = 9_000_000;

impl Host {
    fn new(by: By) -> Self {
        let config = config();
        let segment = Segment::create(3, &SegmentConfig::default()).unwrap();
        let bells = SharedDoorbells::new(3).unwrap();
        let bells = |index| bells.duplicate_of(usize::from(index)).unwrap();
        let openings = [0, 1, 2].map(|rank| opening(by, rank, &config));
        let peers: Vec<_> = (openings.iter().zip(0..))
            .map(|(opening, index)| peer(opening, Some(index)))
            .collect();
        let [zero, _, two] = openings;
        let open = |opening: portolan_runtime::Opening, index| {
            let attachment = ShmAttachment {
                segment: segment.duplicate_fd().unwrap(),
                index,
                doorbells: bells(index),
            };
            opening.finish(&peers, Some(attachment), None).unwrap()
        };
        let (victim, other) = (open(zero, 0), open(two, 2));
        let hostile = segment.duplicate_fd().unwrap();
        let hostile = ShmPort::attach(hostile, HOSTILE, bells(HOSTILE), true).unwrap();
        let (deaths, came) = (Arc::default(), Count::default());
        let (log, count) = (Arc::clone(&deaths), came.clone());
        let log: Arc<Mutex<Vec<(u32, Death)>>> = log;
        victim
            .on_error(move |_, event| {
                if let Event::PeerDead { rank, why, .. } = event {
                    log.lock().unwrap().push((*rank, *why));
                }
            })
            .unwrap();
        let to_port = Binding::to(move |_, m| {
            if m.from == 2 {
                assert!(m.payload == pattern(BYTES, 2));
                count.add();
            }
        });
        victim.bind(1, to_port).unwrap();
        Self {
            victim,
            other,
            hostile,
            deaths,
            came,
        }
    }

    /// Writes a frame to the victim; false: there is no room.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let slot = self.hostile.reserve(0, Priority::Request, bytes.len());
        slot.is_ok_and(|mut slot| {
            slot.bytes_mut().copy_from_slice(bytes);
            slot.commit();
            true
        })
    }

    fn settle(&self) {
        settle(&[&self.victim, &self.other]);
    }

    /// A message of the other's arrives as it should.
    fn goes_on(&self) {
        let before = self.came.get();
        let sent = self
            .other
            .post_message(0, 1, &SendOptions::default(), pattern(BYTES, 2));
        let sent = ended(&self.other, sent.unwrap());
        run(&[&self.victim, &self.other], || {
            sent() && self.came.get() > before
        });
    }

    fn deaths(&self) -> Vec<(u32, Death)> {
        self.deaths.lock().unwrap().clone()
    }
}

/// The head of a message of so many bytes, with its first ones.
fn head(port: u16, flow: u16, args: u8, total: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![1, args];
    frame.extend(flow.to_le_bytes());
    frame.extend(7_u32.to_le_bytes());
    frame.extend(port.to_le_bytes());
    frame.extend((payload.len() as u16).to_le_bytes());
    frame.extend(total.to_le_bytes());
    frame.extend(payload);
    frame
}

/// A piece of a message that has begun.
fn body(flow: u16, bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0];
    frame.extend(flow.to_le_bytes());
    frame.resize(portolan_wire::BODY_BYTES + bytes, 0xee);
    frame
}

fn control(kind: u8, flag: u8, word: u64) -> Vec<u8> {
    let mut frame = vec![kind, flag, 0, 0, 0, 0, 0, 0];
    frame.extend(word.to_le_bytes());
    frame
}

fn offer(address: u64, op: u64, head: &[u8]) -> Vec<u8> {
    let mut frame = control(OFFER, 0, address);
    frame.extend(op.to_le_bytes());
    frame.extend(head);
    frame
}

#[test]
fn who_writes_frames_that_make_no_sense_is_corrupt() {
    let whole = head(1, 0, 0, 4_000, &[1; 100]);
    let senseless: Vec<Vec<Vec<u8>>> = vec![
        vec![vec![0x85; 16]],
        vec![vec![0xff; 100]],
        vec![vec![0; 24]],
        // Too short for what they are.
        vec![vec![MARK, 0, 0, 0]],
        vec![vec![DONE]],
        vec![control(OFFER, 0, 1)],
        vec![offer(8, 1, &[1, 0])],
        // Words that are not there, or more than any message has.
        vec![offer(8, 1, &head(1, 0, 5, 1_000, &[]))],
        vec![offer(8, 1, &head(1, 0, 21, 1_000, &[0; 168]))],
        // Less than has come; a flow that there is not.
        vec![head(1, 0, 0, 50, &[1; 100])],
        vec![head(1, 16, 0, 4_000, &[1; 100])],
        // One whose number is that of a space, cut to a byte.
        vec![head(1, 263, 0, 100, &[1; 100])],
        vec![head(1, u16::MAX, 0, u64::MAX, &[])],
        // Bodies of nothing, of too much, of no flow, without bytes.
        vec![body(0, 64)],
        vec![whole.clone(), body(0, 3_904)],
        vec![whole.clone(), body(17, 64)],
        vec![whole.clone(), body(0, 0)],
        // One message before the other has come.
        vec![whole.clone(), whole],
    ];
    for frames in senseless {
        let mut host = Host::new(By::Ring);
        host.goes_on();
        for frame in &frames {
            assert!(host.write(frame));
        }
        host.settle();
        let corrupt = (u32::from(HOSTILE), Death::Corrupt);
        assert_eq!(host.deaths(), [corrupt], "{frames:x?}");
        host.goes_on();
    }
}

#[test]
fn an_empty_piece_of_an_old_message_ends_nobody_elses() {
    let mut host = Host::new(By::Ring);
    assert!(host.write(&head(1, 0, 0, 164, &[1; 100])));
    assert!(host.write(&body(0, 64)));
    host.settle();
    // What begins now may have the number of what has ended.
    let sent = host
        .other
        .post_message(0, 1, &SendOptions::default(), pattern(BYTES, 2));
    host.other.progress().unwrap();
    for _ in 0..20 {
        host.victim.progress().unwrap();
        host.write(&body(0, 0));
        host.other.progress().unwrap();
    }
    host.settle();
    assert!(ended(&host.other, sent.unwrap())());
    assert_eq!(host.came.get(), 1);
    assert_eq!(host.deaths(), [(u32::from(HOSTILE), Death::Corrupt)]);
}

#[test]
fn answers_that_nobody_asked_for_are_ignored() {
    let mut host = Host::new(By::Ring);
    let refused = Count::default();
    let count = refused.clone();
    host.victim
        .on_error(move |_, event| {
            if matches!(event, Event::Refused { .. }) {
                count.add();
            }
        })
        .unwrap();
    let got = Count::default();
    let log = got.clone();
    let to_port = Binding::to(move |_, m| {
        assert!(m.payload == pattern(LONG, 3));
        log.add();
    });
    host.other.bind(1, to_port).unwrap();
    // One on its way to the other, which has no part in what follows.
    let sent = host
        .victim
        .post_message(2, 1, &SendOptions::default(), pattern(LONG, 3));
    let op = sent.unwrap();
    for flag in [0, 1, 2, 255] {
        for number in (0..40).chain([u64::MAX, 1 << 32, 1 << 63]) {
            for kind in [DONE, ANSWER] {
                assert!(host.write(&control(kind, flag, number)));
            }
            // Of flag 0 it is a question.
            if flag != 0 {
                assert!(host.write(&control(MARK, 1, number)));
            }
            host.victim.progress().unwrap();
        }
    }
    let sent = ended(&host.victim, op);
    assert!(!sent());
    run(&[&host.victim, &host.other], || sent() && got.get() == 1);
    assert_eq!((refused.get(), host.deaths().len()), (0, 0));
    host.goes_on();
}

#[test]
fn who_asks_and_never_listens_holds_up_nobody() {
    let mut host = Host::new(By::Ring);
    let mut written = 0;
    for turn in 0..100_000_u64 {
        let frame = match turn % 3 {
            0 => control(ASK, 0, 0),
            1 => control(MARK, 0, turn),
            // Refused: the answer has to be said as well.
            _ => offer(8, turn, &head(0xffff, 0, 0, 1_000, &[])),
        };
        if host.write(&frame) {
            written += 1;
        }
        if turn % 8 == 0 {
            host.victim.progress().unwrap();
        }
    }
    // It has come to the end of what is answered later.
    assert!((60_000..100_000).contains(&written), "{written}");
    host.goes_on();
    assert_eq!(host.deaths(), []);
}

#[test]
fn who_goes_on_in_a_stopped_flow_is_bounded_and_named() {
    const MIB: usize = 1 << 20;
    let mut host = Host::new(By::Ring);
    // Nobody takes from port 9. Short messages stay where they are after a while.
    let mut written = 0;
    let short = head(9, 3, 0, 1_000, &[1; 1_000]);
    for _ in 0..100_000 {
        written += usize::from(host.write(&short)) * short.len();
        host.victim.progress().unwrap();
    }
    assert!(written > 4 * MIB && written < 40 * MIB, "{written} bytes");
    assert_eq!(host.deaths(), []);
    // Of a long one that has begun all is read, until it is too much.
    let mut host = Host::new(By::Ring);
    assert!(host.write(&head(9, 3, 0, 1 << 40, &[1; 1_024])));
    let piece = body(3, 32 << 10);
    let mut written = 0;
    while host.deaths().is_empty() {
        written += usize::from(host.write(&piece)) * piece.len();
        host.victim.progress().unwrap();
        if written % (8 * MIB) < piece.len() {
            host.goes_on();
        }
        assert!(written < 200 * MIB, "nothing ends it");
    }
    assert_eq!(host.deaths(), [(1, Death::Corrupt)]);
    host.goes_on();
    // A flow that there is not gathers nowhere.
    let mut host = Host::new(By::Ring);
    let long = head(9, 16, 0, 50_000, &[1; 50_000]);
    for _ in 0..1_000 {
        host.write(&long);
        host.victim.progress().unwrap();
    }
    assert_eq!(host.deaths(), [(1, Death::Corrupt)]);
    host.goes_on();
}

#[test]
fn offered_memory_that_there_is_not_is_never_read() {
    for address in [1, 0xdead_0000, 1 << 47, u64::MAX - 5, u64::MAX] {
        for total in [1_000, 1 << 20] {
            let mut host = Host::new(By::Shm);
            assert!(host.write(&offer(address, 3, &head(1, 0, 0, total, &[]))));
            host.settle();
            // It lent memory that it does not have, or has just ended.
            let gone = (u32::from(HOSTILE), Death::Ended);
            assert_eq!(host.deaths(), [gone], "{address:x} {total}");
            host.goes_on();
        }
    }
    // What is longer than anything is refused before it is looked for.
    let mut host = Host::new(By::Shm);
    host.victim
        .bind(2, Binding::to(|_, _| ()).with_buffer(vec![0; 100]))
        .unwrap();
    for port in [
        2, 0xff80, 0xff81, 0xff83, 0xff87, 0xff8d, 0xff91, 0xff99, 0xffff,
    ] {
        assert!(host.write(&offer(8, 3, &head(port, 0, 0, u64::MAX, &[]))));
    }
    host.settle();
    assert!(
        host.deaths()
            .iter()
            .all(|(rank, _)| *rank == u32::from(HOSTILE))
    );
    host.goes_on();
}
