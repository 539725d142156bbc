// Endpoints outside of a job: several in one process, which add and remove each other by LINK.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::{
    AddPeerError, Binding, Config, Death, Ended, Endpoint, Event, Gather, Memory, Misuse, Notify,
    OpError, OpId, Place, PutOptions, RemoteKey, Rights, Salt, Selector, SendError, SendOptions,
    SpaceId, TaggedOptions, Threads, WaitError,
};
use portolan_sys::process::cma_permitted;

const PORT: u16 = 7;

fn open() -> Endpoint {
    open_with(Config::default())
}

fn open_with(config: Config) -> Endpoint {
    let config = config.set("interface", "lo").set("link", LINK);
    Endpoint::open_standalone(config).unwrap()
}

/// Makes progress of all until `done`; fails after five minutes. Under the address
/// sanitizer a hundred endpoints on a busy machine may need more than one.
#[track_caller]
fn until(all: &[&Endpoint], mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !done() {
        assert!(Instant::now() < end, "it did not come to that");
        let moved = all.iter().map(|ep| ep.progress().unwrap()).sum::<usize>();
        if moved == 0 {
            std::thread::yield_now();
        }
    }
}

/// What has come, and from whom last.
#[derive(Default)]
struct Heard {
    from: AtomicU32,
    count: AtomicU64,
    sum: AtomicU64,
}

fn listen(ep: &Endpoint) -> Arc<Heard> {
    let heard = Arc::new(Heard::default());
    let to = Arc::clone(&heard);
    let binding = Binding::to(move |_, m| {
        to.from.store(m.from, Ordering::Relaxed);
        to.sum.fetch_add(
            m.payload.iter().map(|b| u64::from(*b)).sum(),
            Ordering::Relaxed,
        );
        to.count.fetch_add(1, Ordering::Relaxed);
    });
    ep.bind(PORT, binding).unwrap();
    heard
}

#[test]
fn a_stranger_is_let_in_and_answered() {
    let (a, b) = (open(), open());
    assert_eq!((a.rank(), a.size()), (0, 1));
    let heard = listen(&b);
    let there = a.add_peer(&b.address()).unwrap();
    assert_eq!(there, 1);
    assert_eq!(a.add_peer(&b.address()).unwrap(), there, "the same again");
    a.send(there, PORT, &[1, 2, 3]).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    let back = heard.from.load(Ordering::Relaxed);
    assert_eq!((back, heard.sum.load(Ordering::Relaxed)), (1, 6));
    let answer = listen(&a);
    b.send(back, PORT, &[9]).unwrap();
    until(&[&a, &b], || answer.count.load(Ordering::Relaxed) == 1);
    assert_eq!(answer.from.load(Ordering::Relaxed), there);
    // Adding it later finds it.
    assert_eq!(b.add_peer(&a.address()).unwrap(), back);
}

/// What an endpoint's error handler has heard.
fn watch(ep: &Endpoint) -> Arc<Mutex<Vec<Event>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&heard);
    ep.on_error(move |_, event| to.lock().unwrap().push(*event))
        .unwrap();
    heard
}

fn has(heard: &Mutex<Vec<Event>>, event: Event) -> bool {
    heard.lock().unwrap().contains(&event)
}

/// Two that have met: and the number that each has for the other.
fn met() -> (Endpoint, Endpoint, u32, u32) {
    let (a, b) = (open(), open());
    let heard = listen(&b);
    let there = a.add_peer(&b.address()).unwrap();
    a.send(there, PORT, &[1]).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    let back = heard.from.load(Ordering::Relaxed);
    (a, b, there, back)
}

/// The end of an operation, once it has.
fn end_of(all: &[&Endpoint], ep: &Endpoint, op: OpId) -> Ended {
    until(all, || ep.has_ended(op).unwrap());
    ep.poll_op(op).unwrap().unwrap()
}

#[test]
fn messages_of_all_kinds_go_between_strangers() {
    let (a, b, there, back) = met();
    let both = [&a, &b];
    let begun =
        |result: Result<OpId, (SendError, _)>| result.map_err(|(e, _): (_, Gather)| e).unwrap();
    // Matched, from a source that was never added; and by its number once it was.
    let long: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    let plain = TaggedOptions::default();
    for (selector, to_add) in [(Selector::any(3), false), (Selector::from(back, 3), true)] {
        if to_add {
            assert_eq!(b.add_peer(&a.address()).unwrap(), back);
        }
        let memory = vec![0; long.len()];
        let receive = b.post_receive(&selector, memory, Notify::NONE).unwrap();
        let send = begun(a.post_send(there, 3, &plain, long.clone()));
        let ended = end_of(&both, &b, receive);
        assert_eq!(
            (ended.completion.result, ended.completion.peer),
            (Ok(()), back)
        );
        assert!(ended.into_received() == long);
        assert_eq!(end_of(&both, &a, send).completion.result, Ok(()));
    }
    // One that came before it was added is found by its number.
    let send = begun(a.post_send(there, 4, &plain, vec![5_u8; 10]));
    until(&both, || b.probe(&Selector::any(4)).unwrap().is_some());
    assert!(b.probe(&Selector::from(back, 4)).unwrap().is_some());
    end_of(&both, &a, send);
    // One-sided.
    let region = b
        .register(vec![7_u8; 4096], None, Rights::Both)
        .map_err(|(e, _)| e);
    let key = b.remote_key(region.unwrap()).unwrap().unwrap();
    let place = |offset| Place { key, offset };
    let put = begun(a.post_put(there, place(8), vec![9_u8; 16], &PutOptions::default()));
    assert_eq!(end_of(&both, &a, put).completion.result, Ok(()));
    let get = a.post_get(there, place(0), vec![0_u8; 24], Notify::NONE);
    let ended = end_of(&both, &a, get.map_err(|(e, _)| e).unwrap());
    assert_eq!(ended.completion.result, Ok(()));
    let Some(Memory::Sink(memory)) = ended.memory else {
        panic!("its memory comes back")
    };
    let expected = [[7; 8], [9; 8], [9; 8]].concat();
    assert_eq!(memory.into_buffers()[0].as_slice(), expected);
    // On this host by the kernel, which has named the other's process.
    let direct = a.counters().unwrap().direct > 0;
    let can = LINK != "udp" && cma_permitted(std::process::id());
    assert_eq!(direct, can);
}

/// Sends messages of which no end is reported to a space that the receiver has not opened, and
/// closes; `known`: the receiver has added the sender. Gives how the close ended.
fn close_towards_no_space(known: bool) -> Result<(), WaitError> {
    let config = Config::default().set("close_ms", "1000");
    let several = Config::default().threads(Threads::Serialized);
    let (a, b) = (open_with(config.set("helper", "off")), open_with(several));
    let heard = listen(&b);
    let there = a.add_peer(&b.address()).unwrap();
    a.send(there, PORT, &[1]).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    if known {
        b.add_peer(&a.address()).unwrap();
    }
    let id = SpaceId::OTHERS[0];
    let space = a.space(id).unwrap();
    let long = vec![1_u8; 100_000];
    space
        .inject_tagged(there, 1, &TaggedOptions::default(), &long)
        .unwrap();
    let over = AtomicBool::new(false);
    let closed = std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                b.progress().unwrap();
            }
        });
        drop(a);
        let closed = space.close();
        over.store(true, Ordering::Relaxed);
        closed
    });
    if known {
        let (at, any) = (b.space(id).unwrap(), Selector::any(1));
        at.receive_tagged(&any, &mut vec![0; 100_000]).unwrap();
    }
    closed
}

#[test]
fn who_was_added_hands_over_to_a_space_that_is_not_open_and_a_stranger_does_not() {
    assert_eq!(close_towards_no_space(true), Ok(()));
    assert_eq!(close_towards_no_space(false), Err(WaitError::TimedOut));
}

/// What a stranger that was given no key may try: keys that a program chooses, and those that
/// followed from the address once. A life was turned and mixed with a count.
fn guesses(address: &[u8; 64], registered: u64) -> Vec<RemoteKey> {
    let key = portolan_runtime::KeyAddress::parse(address).unwrap().key;
    let (_, life) = portolan_seal::identity(&key);
    let mixed = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let salts = (1..=registered + 8).map(|n| mixed(life.rotate_left(32).wrapping_add(n)));
    let both = |key: u64, salt: u64| {
        RemoteKey::from_bytes((u128::from(salt) << 64 | u128::from(key)).to_le_bytes())
    };
    salts
        .flat_map(|salt| {
            [
                both(!salt, salt),
                both(!salt, 0),
                both(0, salt),
                both(1, salt),
            ]
        })
        .chain((0..4).map(RemoteKey::any))
        .collect()
}

#[test]
fn a_strangers_guesses_of_keys_are_refused() {
    let (a, b, there, _) = met();
    let both = [&a, &b];
    let register = |key, admission| {
        let region = b.register(vec![7_u8; 64], key, admission);
        b.remote_key(region.map_err(|(e, _)| e).unwrap())
            .unwrap()
            .unwrap()
    };
    let rights = Rights::Both;
    let own = [None, Some(0), Some(1), None].map(|key| register(key, rights.into()));
    let result = |key: RemoteKey| {
        let place = Place { key, offset: 0 };
        let get = a.post_get(there, place, vec![0_u8; 64], Notify::NONE);
        let ended = end_of(&both, &a, get.map_err(|(e, _)| e).unwrap());
        let put = a.post_put(there, place, vec![7_u8; 64], &PutOptions::default());
        let put = end_of(&both, &a, put.map_err(|(e, _): (_, Gather)| e).unwrap());
        let add = a.post_fetch_add(there, place, 0, Notify::NONE).unwrap();
        let add = end_of(&both, &a, add);
        let results = [ended, put, add].map(|it| it.completion.result);
        assert!(results.iter().all(|it| *it == results[0]), "{results:?}");
        results[0]
    };
    for key in guesses(&b.address(), own.len() as u64) {
        assert_eq!(result(key), Err(OpError::BadKey), "{key:?}");
    }
    for key in own {
        assert_eq!(result(RemoteKey::any(key.key())), Err(OpError::BadKey));
        assert_eq!(result(key), Ok(()));
    }
    // Unless the program wants it so.
    register(Some(2), rights.with(Salt::Any));
    assert_eq!(result(RemoteKey::any(2)), Ok(()));
    let key = RemoteKey::any(register(None, rights.with(Salt::Any)).key());
    assert_eq!(result(key), Ok(()));
}

#[test]
fn ports_with_an_error_handler_hear_who_comes() {
    let (a, b) = (open(), open());
    let (told, heard) = (watch(&b), listen(&b));
    let at_port = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&at_port);
    let other = Binding::default().on_error(move |_, event| to.lock().unwrap().push(*event));
    b.bind(PORT + 1, other).unwrap();
    let there = a.add_peer(&b.address()).unwrap();
    a.send(there, PORT, &[1]).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    let rank = heard.from.load(Ordering::Relaxed);
    for told in [told, at_port] {
        assert_eq!(*told.lock().unwrap(), [Event::PeerCome { rank }]);
    }
}

#[test]
fn a_removed_peer_hears_of_it_and_may_come_again() {
    let (a, b, there, back) = met();
    let (told_a, told_b) = (watch(&a), watch(&b));
    let never = a
        .post_receive(&Selector::from(there, 1), vec![0; 8], Notify::NONE)
        .unwrap();
    let asks = b
        .post_receive(&Selector::from(back, 1), vec![0; 8], Notify::NONE)
        .unwrap();
    a.remove_peer(there).unwrap();
    let done = a.poll_op(never).unwrap().unwrap();
    assert_eq!(done.completion.result, Err(OpError::PeerDead));
    assert_eq!(a.remove_peer(there), Err(Misuse::BadRank), "once");
    let nobody = a.send(there, PORT, &[1]);
    let why = Death::Nobody;
    assert_eq!(nobody, Err(SendError::PeerDead { rank: there, why }));
    let removed = Event::PeerDead {
        rank: back,
        why: Death::Removed,
        lost: 0,
    };
    until(&[&a, &b], || {
        has(&told_b, removed) && b.has_ended(asks).unwrap()
    });
    let done = b.poll_op(asks).unwrap().unwrap();
    assert_eq!(done.completion.result, Err(OpError::PeerDead));
    // It adds it anew, and is a stranger then.
    let heard = listen(&a);
    let again = b.add_peer(&a.address()).unwrap();
    b.send(again, PORT, &[3]).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    let rank = heard.from.load(Ordering::Relaxed);
    assert!(has(&told_a, Event::PeerCome { rank }));
    assert!(
        !told_a
            .lock()
            .unwrap()
            .iter()
            .any(|it| matches!(it, Event::PeerDead { .. }))
    );
}

#[test]
fn what_was_sent_before_a_removal_arrives() {
    let (a, b, there, _) = met();
    let heard = listen(&b);
    for _ in 0..10 {
        a.send(there, PORT, &[1]).unwrap();
    }
    a.remove_peer(there).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 10);
}

#[test]
fn strangers_can_be_refused() {
    let a = open();
    let b = open_with(Config::default().set("unknown_peers", "refuse"));
    let heard = listen(&b);
    let there = a.add_peer(&b.address()).unwrap();
    a.send(there, PORT, &[1]).unwrap();
    until(&[&a, &b], || {
        b.counters().unwrap().protocol.drops.stranger > 2
    });
    assert_eq!(heard.count.load(Ordering::Relaxed), 0);
    // Once it is added, its message comes: it was never given up.
    let back = b.add_peer(&a.address()).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    assert_eq!(heard.from.load(Ordering::Relaxed), back);
}

#[test]
fn who_has_another_file_is_no_peer() {
    let folder = std::env::temp_dir().join(format!("portolan-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let with = |name: &str, byte: u8| {
        let path = folder.join(name);
        std::fs::write(&path, [byte; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        open_with(Config::default().set("job_secret_file", path.display()))
    };
    let (a, b, c) = (with("one", 1), with("other", 2), with("one", 1));
    let heard = listen(&c);
    for ep in [&b, &a] {
        let there = ep.add_peer(&c.address()).unwrap();
        ep.send(there, PORT, &[1]).unwrap();
    }
    let refused = || c.counters().unwrap().protocol.drops.bad_tag > 2;
    until(&[&a, &b, &c], || {
        refused() && heard.count.load(Ordering::Relaxed) > 0
    });
    assert_eq!(heard.count.load(Ordering::Relaxed), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn bad_addresses_and_calls_are_refused() {
    let a = open_with(Config::default().set("peers_max", 2));
    assert_eq!(a.add_peer(&a.address()), Err(AddPeerError::Myself));
    for (at, byte) in [(0, 2), (0, 0), (1, 0), (1, 9), (63, 1)] {
        let mut bytes = open().address();
        bytes[at] = byte;
        let refused = a.add_peer(&bytes);
        assert!(
            matches!(refused, Err(AddPeerError::NoAddress(_))),
            "{refused:?}"
        );
    }
    assert!(matches!(
        a.add_peer(&[0; 64]),
        Err(AddPeerError::NoAddress(_))
    ));
    let others = [open(), open(), open()];
    let [x, y] = [0, 1].map(|at: usize| a.add_peer(&others[at].address()).unwrap());
    assert_eq!((x, y), (1, 2));
    assert_eq!(a.add_peer(&others[2].address()), Err(AddPeerError::Full));
    // Nobody was ever spoken to: the place is free soon.
    a.remove_peer(x).unwrap();
    until(&[&a], || a.add_peer(&others[2].address()).is_ok());
    assert_eq!(a.remove_peer(0), Err(Misuse::BadRank));
    assert_eq!(a.remove_peer(77), Err(Misuse::BadRank));
    assert_eq!(a.barrier(), Err(WaitError::Misuse(Misuse::NoJob)));
    let all = a.broadcast(&[1, 2], PORT, &SendOptions::default(), &[1]);
    assert_eq!(all, Err(SendError::Misuse(Misuse::NoJob)));
    for (name, value) in [
        ("unknown_peers", "perhaps"),
        ("peers_max", "0"),
        ("link", "tcp"),
    ] {
        let refused = Endpoint::open_standalone(Config::default().set(name, value));
        assert!(refused.unwrap_err().to_string().contains(name), "{name}");
    }
}

/// Closes one endpoint, whose number at the other is `rank`, until the other has heard of it.
fn close_and_hear(closing: Endpoint, other: &Endpoint, told: &Mutex<Vec<Event>>, rank: u32) {
    std::thread::scope(|scope| {
        let closes = scope.spawn(move || closing.close());
        let why = Death::Closed;
        until(&[other], || {
            has(told, Event::PeerDead { rank, why, lost: 0 }) && closes.is_finished()
        });
        closes.join().unwrap().unwrap();
    });
}

#[test]
fn a_peer_that_closes_is_dead_and_its_number_is_given_again() {
    let b = open_with(Config::default().set("peers_max", 3));
    let (heard, told) = (listen(&b), watch(&b));
    for n in 1..=12 {
        let a = open_with(Config::default().threads(Threads::Serialized));
        let there = a.add_peer(&b.address()).unwrap();
        a.send(there, PORT, &[1]).unwrap();
        until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == n);
        let rank = heard.from.load(Ordering::Relaxed);
        assert!(rank <= 3, "{rank}");
        close_and_hear(a, &b, &told, rank);
        told.lock().unwrap().clear();
    }
}

#[test]
fn who_has_closed_is_added_by_the_number_under_which_its_messages_wait() {
    for known in [false, true] {
        let (a, b) = (
            open_with(Config::default().threads(Threads::Serialized)),
            open(),
        );
        let (heard, told) = (listen(&b), watch(&b));
        let there = a.add_peer(&b.address()).unwrap();
        a.send(there, PORT, &[1]).unwrap();
        until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
        let rank = heard.from.load(Ordering::Relaxed);
        let address = a.address();
        if known {
            assert_eq!(b.add_peer(&address).unwrap(), rank);
        }
        for number in 0..2 {
            a.inject_tagged(there, 1, &TaggedOptions::default(), &[number; 10])
                .unwrap();
        }
        close_and_hear(a, &b, &told, rank);
        assert_eq!(b.add_peer(&address).unwrap(), rank, "known: {known}");
        let selector = Selector::from(rank, 1);
        let mut room = [0; 10];
        for number in 0..2 {
            b.receive_tagged(&selector, &mut room).unwrap();
            assert_eq!(room, [number; 10]);
        }
        let more = b.receive_tagged(&selector, &mut room);
        let why = Death::Closed;
        assert_eq!(more, Err(WaitError::PeerDead { rank, why }));
        b.remove_peer(rank).unwrap();
    }
}

#[test]
fn what_a_closing_sender_wrote_is_found_among_many_others() {
    // More than are looked at in one pass.
    const SENDERS: usize = 24;
    let hub = open();
    let heard = listen(&hub);
    let mut sent = 0;
    let mut senders: Vec<_> = (0..SENDERS).map(|_| open()).collect();
    for ep in &senders {
        let there = ep.add_peer(&hub.address()).unwrap();
        // Whoever sends so many has memory of its own at the receiver.
        for _ in 0..40 {
            let send = || ep.try_send(there, PORT, &[1]).is_ok();
            until(&[&hub, ep], send);
            sent += 1;
        }
        until(&[&hub, ep], || heard.count.load(Ordering::Relaxed) == sent);
    }
    while let Some(ep) = senders.pop() {
        for _ in 0..5 {
            ep.try_send(1, PORT, &[1]).unwrap();
            sent += 1;
        }
        ep.close().unwrap();
        until(&[&hub], || heard.count.load(Ordering::Relaxed) == sent);
    }
}

#[test]
fn many_endpoints_in_as_many_threads() {
    const MANY: u64 = 100;
    let hub = open_with(Config::default().threads(Threads::Multiple));
    let heard = listen(&hub);
    let address = hub.address();
    std::thread::scope(|scope| {
        for n in 0..MANY {
            scope.spawn(move || {
                // Cores are few, and all others are at work.
                let ep = open_with(Config::default().set("close_ms", 300_000));
                let there = ep.add_peer(&address).unwrap();
                for _ in 0..20 {
                    ep.send(there, PORT, &[n as u8]).unwrap();
                }
                ep.close().unwrap();
            });
        }
        until(&[&hub], || heard.count.load(Ordering::Relaxed) == 20 * MANY);
    });
    assert_eq!(
        heard.sum.load(Ordering::Relaxed),
        20 * MANY * (MANY - 1) / 2
    );
}

#[test]
fn strangers_make_room_for_each_other() {
    let hub = open_with(Config::default().set("peers_max", 4));
    let heard = listen(&hub);
    let told = watch(&hub);
    let mut all: Vec<Endpoint> = Vec::new();
    for n in 1..=10 {
        let ep = open();
        let there = ep.add_peer(&hub.address()).unwrap();
        ep.send(there, PORT, &[1]).unwrap();
        all.push(ep);
        let both: Vec<&Endpoint> = all.iter().chain([&hub]).collect();
        until(&both, || heard.count.load(Ordering::Relaxed) == n);
    }
    // Those that had to go were told of.
    let gone = |it: &&Event| {
        matches!(
            it,
            Event::PeerDead {
                why: Death::Nobody,
                ..
            }
        )
    };
    assert!(told.lock().unwrap().iter().filter(gone).count() >= 6);
}

#[test]
fn a_released_peer_goes_on() {
    // Who was added once is no stranger that may be refused.
    let a = open_with(Config::default().set("unknown_peers", "refuse"));
    let b = open();
    let (heard_a, heard_b) = (listen(&a), listen(&b));
    let (told_a, told_b) = (watch(&a), watch(&b));
    let there = a.add_peer(&b.address()).unwrap();
    a.release_peer(there).unwrap();
    let back = b.add_peer(&a.address()).unwrap();
    for round in 1..=3 {
        b.send(back, PORT, &[1]).unwrap();
        until(&[&a, &b], || heard_a.count.load(Ordering::Relaxed) == round);
        assert_eq!(heard_a.from.load(Ordering::Relaxed), there);
        assert_eq!(a.add_peer(&b.address()), Ok(there), "its number is kept");
        a.send(there, PORT, &[1]).unwrap();
        a.release_peer(there).unwrap();
        until(&[&a, &b], || heard_b.count.load(Ordering::Relaxed) == round);
    }
    for told in [told_a, told_b] {
        let of_peers = |it: &Event| matches!(it, Event::PeerDead { .. } | Event::PeerCome { .. });
        assert!(!told.lock().unwrap().iter().any(of_peers));
    }
    for nobody in [0, 77] {
        assert_eq!(a.release_peer(nobody), Err(Misuse::BadRank));
    }
}

#[test]
fn released_peers_make_room() {
    let hub = open_with(Config::default().set("peers_max", 4));
    let heard = listen(&hub);
    let add = |ep: &Endpoint| {
        let mut added = None;
        // Who has to make room hears of it first.
        until(&[&hub], || {
            added = hub.add_peer(&ep.address()).ok();
            added.is_some()
        });
        added.unwrap()
    };
    let speak = |ep: &Endpoint| {
        let before = heard.count.load(Ordering::Relaxed);
        let there = ep.add_peer(&hub.address()).unwrap();
        ep.send(there, PORT, &[1]).unwrap();
        until(&[ep, &hub], || heard.count.load(Ordering::Relaxed) > before);
    };
    let mut all = Vec::new();
    for n in 0..16 {
        let ep = open();
        let rank = add(&ep);
        // With every second of them nothing has ever gone either way.
        if n % 2 == 0 {
            speak(&ep);
        }
        hub.release_peer(rank).unwrap();
        all.push(ep);
    }
    // A dead one needs not even be asked to go.
    let dead = open();
    let rank = add(&dead);
    speak(&dead);
    let told = watch(&hub);
    drop(dead);
    let why = Death::Closed;
    until(&[&hub], || {
        has(&told, Event::PeerDead { rank, why, lost: 0 })
    });
    hub.release_peer(rank).unwrap();
    let nobody = Err(Misuse::BadRank);
    until(&[&hub], || hub.release_peer(rank) == nobody);
}

#[test]
fn a_later_address_of_the_same_peer_counts() {
    let (a, b) = (open(), open());
    let heard = listen(&b);
    // Its port is another one.
    let mut elsewhere = b.address();
    elsewhere[2] ^= 1;
    let there = a.add_peer(&elsewhere).unwrap();
    a.send(there, PORT, &[1]).unwrap();
    for _ in 0..1000 {
        a.progress().unwrap();
    }
    assert_eq!(a.add_peer(&b.address()).unwrap(), there, "the same key");
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
}

/// More than an endpoint has connections for at first.
const CROWD: u64 = 80;

#[test]
fn peers_that_vanish_do_not_keep_newcomers_out() {
    // None is dead before this test has failed.
    let hub = open_with(Config::default().set("silence_ms", 3_600_000));
    let heard = listen(&hub);
    let mut gone = Vec::new();
    for n in 1..=CROWD {
        // Without calls, and without a helper, it answers as little as one that was killed.
        let ep = open_with(Config::default().set("helper", "off"));
        let there = ep.add_peer(&hub.address()).unwrap();
        ep.send(there, PORT, &[1]).unwrap();
        until(&[&ep, &hub], || heard.count.load(Ordering::Relaxed) == n);
        gone.push(ep);
        let back = heard.from.load(Ordering::Relaxed);
        until(&[&hub], || hub.try_send(back, PORT, &[2]).is_ok());
    }
    let ep = open();
    let answer = listen(&ep);
    let there = ep.add_peer(&hub.address()).unwrap();
    ep.send(there, PORT, &[1]).unwrap();
    until(&[&ep, &hub], || {
        heard.count.load(Ordering::Relaxed) == CROWD + 1
    });
    let back = heard.from.load(Ordering::Relaxed);
    until(&[&hub], || hub.try_send(back, PORT, &[2]).is_ok());
    until(&[&ep, &hub], || answer.count.load(Ordering::Relaxed) == 1);
}

#[test]
fn peers_that_are_not_up_keep_nothing_back() {
    let a = open();
    for _ in 0..CROWD {
        let nobody = open().address();
        let there = a.add_peer(&nobody).unwrap();
        // Of this host nothing is taken for one that is not there.
        until(&[&a], || {
            a.try_send(there, PORT, &[1]).is_ok() || LINK != "udp"
        });
    }
    let b = open();
    let heard = listen(&b);
    let there = a.add_peer(&b.address()).unwrap();
    until(&[&a, &b], || a.try_send(there, PORT, &[1]).is_ok());
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
}

#[test]
fn memory_that_a_silent_peer_was_writing_comes_back_without_a_spin() {
    let a = open_with(Config::default().set("helper", "off"));
    let alone = [
        ("silence_ms", "1000"),
        ("spin_passes", "0"),
        ("yield_us", "0"),
    ];
    let config = alone
        .iter()
        .fold(Config::default(), |c, (name, value)| c.set(name, value));
    let b = open_with(config.set("helper", "off"));
    let (there, heard) = (a.add_peer(&b.address()).unwrap(), listen(&b));
    a.send(there, PORT, &[1]).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    let bytes = 8 << 20;
    let region = (b.register(vec![7_u8; bytes], None, Rights::Both)).map_err(|(e, _)| e);
    let region = region.unwrap();
    let key = b.remote_key(region).unwrap().unwrap();
    let place = Place { key, offset: 0 };
    let put = a.post_put(there, place, vec![9_u8; bytes], &PutOptions::default());
    put.map_err(|(e, _)| e).unwrap();
    let before = b.counters().unwrap().protocol.packets_received;
    until(&[&a, &b], || {
        b.counters().unwrap().protocol.packets_received > before + 100
    });
    // From now on it makes no progress: as if it was killed.
    let before = b.counters().unwrap().sleeps;
    let memory = b.deregister(region).unwrap();
    assert!(memory.is_some(), "nobody writes to it any more");
    let slept = b.counters().unwrap().sleeps - before;
    assert!((1..300).contains(&slept), "{slept} times");
}

#[test]
fn an_operation_with_a_peer_that_never_answers_ends() {
    for own in ["silence_ms", "join_ms"] {
        let a = open_with(Config::default().set(own, 300));
        let b = open();
        let address = b.address();
        drop(b);
        let there = a.add_peer(&address).unwrap();
        for _ in 0..2 {
            let to = TaggedOptions::default();
            let send = a.post_send(there, 3, &to, vec![1_u8; 100_000]);
            let send = send.map_err(|(e, _): (_, Gather)| e).unwrap();
            let ended = end_of(&[&a], &a, send);
            assert_eq!(ended.completion.result, Err(OpError::PeerDead));
            let why = Death::NoAnswer;
            let refused = Err(SendError::PeerDead { rank: there, why });
            assert_eq!(a.send(there, PORT, &[1]), refused);
            // One that is not even known to be dead ends likewise.
            assert_eq!(a.add_peer(&address).unwrap(), there, "it is tried anew");
            assert_eq!(a.send(there, PORT, &vec![1; 1 << 20]), refused);
            a.add_peer(&address).unwrap();
        }
    }
}
