//! A space that closes while others of its endpoint go on, on every lane.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{ALL, By, config, helped, job, pair, pattern, run, settle};
use portolan_runtime::{
    Binding, Buffer, Config, Context, Death, Event, Gather, Memory, Misuse, Notify, OpError, OpId,
    Place, Rights, Scatter, Selector, SendError, SendOptions, Space, SpaceId, TaggedOptions,
    Threads, WaitError,
};

const PORT: u16 = 3;
const ID: SpaceId = SpaceId::OTHERS[0];
/// So long that by shared memory its receiver copies it.
const LONG: usize = 8 << 20;

fn sync() -> TaggedOptions {
    TaggedOptions {
        sync: true,
        ..TaggedOptions::default()
    }
}

/// For endpoints that go from thread to thread.
fn helped_by_any() -> Config {
    Config {
        threads: Threads::Serialized,
        ..helped()
    }
}

/// Sends something long, after which both know whether they can copy from each other.
fn get_acquainted(mine: &Space, theirs: &Space) {
    let options = TaggedOptions::default();
    let send = mine.post_send(1, 0, &options, vec![0; LONG]).unwrap();
    let receive = theirs.post_receive(&Selector::any(0), vec![0; LONG], Notify::default());
    let receive = receive.unwrap();
    run(&[mine, theirs], || {
        mine.has_ended(send).unwrap() && theirs.has_ended(receive).unwrap()
    });
}

/// The result of an operation, and its memory.
fn result(space: &Space, op: OpId) -> (Result<(), OpError>, Option<Memory<Gather, Scatter>>) {
    let mut ended = None;
    run(&[], || {
        ended = ended.take().or(space.poll_op(op).unwrap());
        ended.is_some()
    });
    let ended = ended.unwrap();
    (ended.completion.result, ended.memory)
}

#[test]
fn whoever_waits_for_one_that_leaves_is_told() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let (mine, theirs) = (a.space(ID).unwrap(), b.space(ID).unwrap());
        let told = Arc::new(Mutex::new(Vec::new()));
        for (space, name) in [(&a, "program"), (&mine, "space")] {
            let shared = Arc::clone(&told);
            let tell = move |_: &mut Context<'_>, e: &Event| {
                shared.lock().unwrap().push((name, *e));
            };
            space.on_error(tell).unwrap();
        }
        // What was sent before it left comes, though nobody waits for it yet.
        let early = theirs.post_send(0, 9, &TaggedOptions::default(), b"early".to_vec());
        early.unwrap();
        let ops = [
            mine.post_receive(&Selector::from(1, 1), vec![0; 8], Notify::default()),
            mine.post_receive(&Selector::from(1, 2), vec![0; LONG], Notify::default()),
            Ok(mine.post_send(1, 3, &sync(), vec![1; 8]).unwrap()),
            Ok(mine.post_send(1, 4, &sync(), pattern(LONG, 4)).unwrap()),
        ];
        settle(&[&a]);
        theirs.close().unwrap();
        for op in ops {
            let (ended, memory) = result(&mine, op.unwrap());
            assert_eq!(ended, Err(OpError::PeerDead), "{by:?}");
            assert!(memory.is_some());
        }
        let left = WaitError::PeerDead {
            rank: 1,
            why: Death::Closed,
        };
        // It was the last other one.
        assert_eq!(mine.wait_until(|| false), Err(left));
        assert_eq!(mine.barrier(), Err(left));
        let mut room = [0; 8];
        let early = mine.receive_tagged(&Selector::from(1, 9), &mut room);
        assert_eq!(early.unwrap().bytes, 5);
        let late = mine.receive_tagged(&Selector::from(1, 1), &mut room);
        assert_eq!(late.unwrap_err(), left);
        let late = mine.send_tagged(1, 1, &[]);
        assert!(
            matches!(late, Err(WaitError::PeerDead { rank: 1, .. })),
            "{late:?}"
        );
        let event = Event::PeerDead {
            rank: 1,
            why: Death::Closed,
            lost: 0,
        };
        assert_eq!(*told.lock().unwrap(), [("space", event)]);
        assert_eq!(mine.death(1), Ok(Some(Death::Closed)));
        assert_eq!(
            theirs.post_send(0, 1, &sync(), vec![]).unwrap_err().0,
            Misuse::Closed.into()
        );
        // The program's own space goes on.
        assert_eq!(a.death(1), Ok(None));
        let receive = a.post_receive(&Selector::from(1, 1), vec![0; 8], Notify::default());
        b.send_tagged(0, 1, b"on").unwrap();
        assert_eq!(result(&a, receive.unwrap()).0, Ok(()));
    }
}

#[test]
fn what_the_one_that_leaves_has_begun_ends() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let (mine, theirs) = (a.space(ID).unwrap(), b.space(ID).unwrap());
        let region = mine.register(Scatter::from(vec![7; 64]), Some(5), Rights::Both);
        let key = mine.remote_key(region.unwrap()).unwrap().unwrap();
        let ops = [
            mine.post_receive(&Selector::any(1), vec![0; 8], Notify::default()),
            mine.post_receive(&Selector::from(1, 2), vec![0; LONG], Notify::default()),
            Ok(mine.post_send(1, 3, &sync(), vec![1; 8]).unwrap()),
            Ok(mine.post_send(1, 4, &sync(), pattern(LONG, 4)).unwrap()),
        ];
        // The other has them: what of these it would copy itself is free only when it says so.
        settle(&[&a, &b]);
        mine.close().unwrap();
        for op in ops {
            let (ended, memory) = result(&mine, op.unwrap());
            assert_eq!(ended, Err(OpError::Closed), "{by:?}");
            assert!(memory.is_some());
        }
        let receive = theirs.post_receive(&Selector::from(0, 4), vec![0; LONG], Notify::default());
        assert_eq!(result(&theirs, receive.unwrap()).0, Err(OpError::PeerDead));
        let get = theirs.post_get(0, Place { key, offset: 0 }, vec![0; 8], Notify::default());
        assert!(matches!(get, Err((SendError::PeerDead { .. }, _))));
        assert_eq!(mine.close(), Err(Misuse::Closed.into()));
        // What it says once more as the endpoint closes surprises nobody.
        drop((mine, a));
        run(&[&b], || b.death(0) == Ok(Some(Death::Closed)));
    }
}

#[test]
fn no_byte_comes_from_memory_that_was_given_back() {
    for by in ALL {
        for turn in 0..20 {
            let (a, b) = pair(by, &helped_by_any());
            let (mine, theirs) = (a.space(ID).unwrap(), b.space(ID).unwrap());
            get_acquainted(&mine, &theirs);
            let sent = pattern(LONG, turn);
            let options = TaggedOptions::default();
            let send = mine.post_send(1, 1, &options, sent.clone()).unwrap();
            let receiver = thread::spawn(move || {
                let mut room = vec![0; LONG];
                let received = theirs.receive_tagged(&Selector::from(0, 1), &mut room);
                (received.map(drop), room, b)
            });
            for _ in 0..usize::from(turn) {
                a.progress().unwrap();
            }
            mine.close().unwrap();
            let (ended, memory) = result(&mine, send);
            let Some(Memory::Source(source)) = memory else {
                panic!("no memory came back");
            };
            // Whoever still reads it sees that.
            let mut bytes = source.into_vec();
            bytes.fill(0xee);
            let (received, room, b) = receiver.join().unwrap();
            match received {
                Ok(()) => assert!(room == sent, "{by:?} {turn}"),
                Err(e) => {
                    assert!(matches!(e, WaitError::PeerDead { rank: 0, .. }), "{e:?}");
                    assert!(ended.is_err(), "{by:?} {turn}");
                }
            }
            drop((a, b));
        }
    }
}

#[test]
fn a_message_that_is_arriving_is_refused() {
    // By others it arrives in one piece, or not at all.
    let by = By::Udp;
    let (a, b) = pair(by, &config());
    let (mine, theirs) = (a.space(ID).unwrap(), b.space(ID).unwrap());
    let refused = Arc::new(Mutex::new(0));
    let shared = Arc::clone(&refused);
    let count = move |_: &mut Context<'_>, e: &Event| {
        *shared.lock().unwrap() += usize::from(matches!(e, Event::Refused { .. }));
    };
    mine.on_error(count).unwrap();
    let mut memory = vec![0; LONG];
    // SAFETY: it is used again only after the space is closed.
    let buffer = unsafe { Buffer::lent(memory.as_mut_ptr(), LONG) };
    let binding = Binding::to(|_, _| panic!("it is not all there")).with_buffer(buffer);
    theirs.bind(PORT, binding).unwrap();
    let sent = mine
        .post_message(1, PORT, &SendOptions::PLAIN, pattern(LONG, 1))
        .unwrap();
    let began = |b: &Space| b.counters().unwrap().protocol.packets_received > 20;
    run(&[&a, &b], || began(&b));
    assert!(!mine.has_ended(sent).unwrap());
    theirs.close().unwrap();
    // It is the program's again: nothing more is written there.
    memory.fill(0xee);
    let mut ended = None;
    run(&[&a, &b], || {
        ended = ended.take().or(mine.poll_op(sent).unwrap());
        ended.is_some()
            && (*refused.lock().unwrap() == 1 || ended.as_ref().unwrap().completion.result.is_err())
    });
    assert!(memory.iter().all(|byte| *byte == 0xee));
}

#[test]
fn other_threads_that_wait_in_it_are_let_go() {
    for by in ALL {
        let config = Config {
            threads: Threads::Multiple,
            ..helped()
        };
        let ends = job(by, 2, &config);
        let space = ends[0].space(ID).unwrap();
        let closed = Misuse::Closed;
        thread::scope(|s| {
            let waits = [
                s.spawn(|| space.wait_until(|| false)),
                s.spawn(|| space.barrier()),
                s.spawn(|| space.receive_tagged(&Selector::any(1), &mut []).map(drop)),
            ];
            while ends[0].counters().unwrap().sleeps < 3 {
                thread::yield_now();
            }
            space.close().unwrap();
            for wait in waits {
                assert_eq!(wait.join().unwrap(), Err(closed.into()), "{by:?}");
            }
        });
        ends[0].progress().unwrap();
    }
}

#[test]
fn whoever_has_come_to_a_barrier_may_leave() {
    for by in ALL {
        for _ in 0..30 {
            let ends = job(by, 3, &helped_by_any());
            thread::scope(|s| {
                for end in &ends {
                    s.spawn(move || {
                        let space = end.space(ID).unwrap();
                        space.barrier().unwrap();
                        space.close().unwrap();
                    });
                }
            });
        }
    }
}

#[test]
fn memory_that_another_may_copy_from_is_waited_for() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (mine, theirs) = (a.space(ID).unwrap(), b.space(ID).unwrap());
        get_acquainted(&mine, &theirs);
        let options = TaggedOptions::default();
        let send = mine.post_send(1, 1, &options, pattern(LONG, 1)).unwrap();
        settle(&[&a, &b]);
        let closed = mine.close();
        if by == By::Shm {
            // The other knows where it lies, and has not said that it is done with it.
            assert_eq!(closed, Err(WaitError::TimedOut));
            assert!(!mine.has_ended(send).unwrap());
            run(&[&a, &b], || mine.has_ended(send).unwrap());
        } else {
            assert_eq!(closed, Ok(()), "{by:?}");
        }
        assert_eq!(result(&mine, send).0, Err(OpError::Closed), "{by:?}");
        drop(theirs);
    }
}
