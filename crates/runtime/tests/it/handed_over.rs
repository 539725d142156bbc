//! What an endpoint has accepted arrives though it closes right behind it, on every lane.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{ALL, By, Count, config, helped, job, pair, pattern, run, settle};
use portolan_runtime::{
    Binding, Config, Death, Event, Misuse, Notify, Place, PutOptions, Rights, Selector, SendError,
    SendOptions, Space, SpaceId, TaggedOptions, Threads, WaitError,
};

/// Beyond what a sender may push that nobody has heard of.
const MESSAGES: usize = 300;

/// Most are short; some are pulled in any case.
fn message(number: usize) -> Vec<u8> {
    let bytes = if number % 50 == 49 { 200_000 } else { 600 };
    pattern(bytes, number as u8)
}

fn inject(from: &Space, to: u32) {
    for number in 0..MESSAGES {
        let options = TaggedOptions::default();
        let sent = from.inject_tagged(to, number as u64, &options, &message(number));
        sent.unwrap();
    }
}

/// Receives all of them, in order, and then hears of the end.
fn receive_all(by: By, at: &Space, from: u32) {
    let mut room = vec![0; 200_000];
    for number in 0..MESSAGES {
        let any = Selector::any(0).ignoring(u64::MAX);
        let got = at.receive_tagged(&any, &mut room).unwrap();
        assert_eq!((got.tag, got.peer), (number as u64, from), "{by:?}");
        assert!(room[..got.bytes as usize] == message(number), "{by:?}");
    }
    let late = at.receive_tagged(&Selector::from(from, 1), &mut room);
    let why = Death::Closed;
    assert_eq!(late, Err(WaitError::PeerDead { rank: from, why }), "{by:?}");
}

#[test]
fn what_was_injected_is_received_after_its_sender_has_closed() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        inject(&a, 1);
        a.close().unwrap();
        drop(a);
        receive_all(by, &b, 0);
    }
}

#[test]
fn two_that_close_at_once_wait_for_nothing() {
    let config = Config {
        threads: Threads::Serialized,
        ..helped()
    };
    for by in ALL {
        let (a, b) = pair(by, &config);
        inject(&a, 1);
        inject(&b, 0);
        thread::scope(|s| {
            let first = s.spawn(|| a.close());
            b.close().unwrap();
            first.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_space_that_is_not_open_yet_gets_what_was_sent_there() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let id = SpaceId::OTHERS[0];
        let space = a.space(id).unwrap();
        inject(&space, 1);
        drop(a);
        space.close().unwrap();
        drop(space);
        receive_all(by, &b.space(id).unwrap(), 0);
    }
}

#[test]
fn a_space_closes_towards_one_that_is_not_open_yet() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let id = SpaceId::OTHERS[0];
        let space = a.space(id).unwrap();
        inject(&space, 1);
        space.close().unwrap();
        receive_all(by, &b.space(id).unwrap(), 0);
    }
}

#[test]
fn a_space_that_closes_hands_over_while_others_go_on() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let [ours, theirs] = [&a, &b].map(|it| it.space(SpaceId::OTHERS[0]).unwrap());
        inject(&ours, 1);
        ours.close().unwrap();
        let again = ours.inject_tagged(1, 0, &TaggedOptions::default(), b"x");
        assert_eq!(again, Err(Misuse::Closed.into()));
        receive_all(by, &theirs, 0);
        a.send_tagged(1, 7, b"ahoy").unwrap();
        let mut room = [0; 4];
        b.receive_tagged(&Selector::from(0, 7), &mut room).unwrap();
        assert_eq!(room, *b"ahoy");
    }
}

#[test]
fn who_is_not_answered_in_time_says_so_and_is_closed() {
    for by in ALL {
        // The other makes no call, and has no helper thread.
        let (a, b) = pair(by, &config());
        inject(&a, 1);
        assert_eq!(a.close(), Err(WaitError::TimedOut), "{by:?}");
        assert_eq!(a.close(), Err(Misuse::Closed.into()));
        drop((a, b));
    }
}

/// Its last word alone is left unanswered.
#[test]
fn who_has_sent_nothing_closes_in_good_order_though_nobody_answers() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        b.inject_tagged(0, 1, &TaggedOptions::default(), b"ahoy")
            .unwrap();
        let mut room = [0; 4];
        let any = Selector::any(1);
        run(&[&a, &b], || a.probe(&any).unwrap().is_some());
        a.receive_tagged(&any, &mut room).unwrap();
        settle(&[&a, &b]);
        assert_eq!(a.close(), Ok(()), "{by:?}");
        drop((a, b));
    }
}

#[test]
fn what_waits_in_stopped_flows_is_taken_before_its_sender_is_gone() {
    const LATE: u16 = 4;
    let config = Config {
        unexpected_bytes: 16 << 10,
        unexpected_share: 16 << 10,
        ..helped()
    };
    for by in ALL {
        let (a, b) = pair(by, &config);
        let (mut sent, mut refusals) = (0_u64, 0);
        while refusals < 1_000 {
            match a.try_send_with(1, LATE, &SendOptions::default(), &sent.to_le_bytes()) {
                Ok(_) => (sent, refusals) = (sent + 1, 0),
                Err(SendError::NoCredit) => refusals += 1,
                Err(e) => panic!("{e}"),
            }
            a.progress().unwrap();
        }
        a.close().unwrap();
        drop(a);
        let got = Count::default();
        let count = got.clone();
        let bound = b.bind(
            LATE,
            Binding::to(move |_, m| {
                assert_eq!(m.payload, count.get().to_le_bytes());
                count.add();
            }),
        );
        bound.unwrap();
        run(&[&b], || got.get() == sent);
    }
}

#[test]
fn puts_of_which_nobody_hears_are_there_after_a_close() {
    const PUTS: usize = 5_000;
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let memory = vec![0; 8 * PUTS];
        let region = b.register(memory, None, Rights::Both).unwrap();
        let key = b.remote_key(region).unwrap().unwrap();
        let notify = Notify {
            queue: Some(a.open_queue().unwrap()),
            only_errors: true,
            ..Notify::default()
        };
        for put in 0..PUTS {
            let offset = 8 * put as u64;
            let options = PutOptions {
                notify,
                ..PutOptions::default()
            };
            let bytes = (put as u64).to_le_bytes().to_vec();
            a.post_put(1, Place { key, offset }, bytes, &options)
                .unwrap();
        }
        a.close().unwrap();
        let memory = b.deregister(region).unwrap().expect("it was the last");
        let bytes = memory.into_buffers().remove(0).into_vec().unwrap();
        let words = bytes
            .chunks(8)
            .map(|it| u64::from_le_bytes(it.try_into().unwrap()));
        assert!(words.eq(0..PUTS as u64), "{by:?}");
    }
}

#[test]
fn a_death_tells_how_many_messages_are_lost() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        b.on_error(move |_, event| log.lock().unwrap().push(*event))
            .unwrap();
        inject(&a, 1);
        settle(&[&a, &b]);
        b.peer_died(0).unwrap();
        run(&[&b], || !told.lock().unwrap().is_empty());
        let Event::PeerDead { rank: 0, lost, .. } = told.lock().unwrap()[0] else {
            panic!("{told:?}");
        };
        let mut received = 0;
        let mut room = vec![0; 200_000];
        let any = Selector::any(0).ignoring(u64::MAX);
        while b.probe(&any).unwrap().is_some() {
            b.receive_tagged(&any, &mut room).unwrap();
            received += 1;
        }
        assert_eq!(received + lost, MESSAGES as u64, "{by:?}");
        assert!(lost > 0 && received > 0, "{by:?}");
    }
}

#[test]
fn a_receive_from_anybody_goes_on_when_its_message_is_lost_half_way() {
    for by in ALL {
        let all = job(by, 3, &config());
        let [a, b, c] = all.as_slice() else {
            panic!("there are three");
        };
        let options = TaggedOptions::default();
        b.post_send(0, 7, &options, pattern(3_000_000, 1)).unwrap();
        run(&[a, b], || a.probe(&Selector::any(7)).unwrap().is_some());
        let room = vec![0; 3_000_000];
        let first = a.post_receive(&Selector::any(7), room, Notify::default());
        let second = a.post_receive(&Selector::any(7), vec![0; 100], Notify::default());
        let (first, second) = (first.unwrap(), second.unwrap());
        // Where it is copied out of the sender's memory it is here at once.
        if !a.has_ended(first).unwrap() {
            a.peer_died(1).unwrap();
            for text in [b"one", b"two"] {
                c.post_send(0, 7, &options, text.to_vec()).unwrap();
            }
            run(&[a, c], || a.has_ended(second).unwrap());
            for (op, text) in [(first, b"one"), (second, b"two")] {
                let ended = a.wait_end(op, None).unwrap();
                assert_eq!(ended.completion.peer, 2, "{by:?}");
                assert_eq!(ended.into_received(), text);
            }
        } else {
            assert_eq!(by, By::Shm);
        }
    }
}
