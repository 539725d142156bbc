//! Ranks that died and come back in a new life.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{By, Count, PATIENCE, config, helped, job_watched, run, settle};
use portolan_runtime::{
    Address, Binding, Config, Congestion, Death, EndpointId, Event, Life, Misuse, Notice, Opening,
    PeerConfig, Placement, Restarted, SendError, SendOptions, Space, Threads, WaitError, Watch,
};

/// What a launcher tells one rank.
#[derive(Clone)]
struct Feed(Arc<(UnixStream, Mutex<VecDeque<Notice>>)>);

struct Fed(Feed, UnixStream);

impl Feed {
    fn new() -> (Self, Box<dyn Watch>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let feed = Self(Arc::new((ours, Mutex::default())));
        (feed.clone(), Box::new(Fed(feed, theirs)))
    }

    fn tell(&self, notice: Notice) {
        self.0.1.lock().unwrap().push_back(notice);
        (&self.0.0).write_all(b"!").unwrap();
    }
}

impl Watch for Fed {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }
    fn poll(&mut self) -> Option<Notice> {
        let _ = self.1.read(&mut [0]);
        self.0.0.1.lock().unwrap().pop_front()
    }
    fn give_up(&mut self, _rank: u32, _restarts: u32, _why: Death, _starved: bool) {}
    fn leave(&mut self) {}
}

/// A job whose ranks are told of each other by the test.
struct Job {
    config: Config,
    feeds: Vec<Feed>,
    table: Vec<PeerConfig>,
    returns: u32,
}

impl Job {
    fn opening(config: &Config, rank: u32, life: u64) -> Opening {
        let mut config = config.clone();
        config.rank = rank;
        config.id = EndpointId(100 + u64::from(rank));
        config.life = Life(life);
        config.secrets.protocol = [life as u8; 32];
        config.fixed_lives = true;
        Opening::new(config).unwrap()
    }

    fn start(size: u32, config: Config) -> (Self, Vec<Space>) {
        let openings: Vec<_> = (0..size)
            .map(|rank| Self::opening(&config, rank, 1000 + u64::from(rank)))
            .collect();
        let mut job = Self {
            table: openings
                .iter()
                .map(|o| crate::common::peer(o, None))
                .collect(),
            config,
            feeds: Vec::new(),
            returns: 0,
        };
        let finish = |opening: Opening| {
            let (feed, watch) = Feed::new();
            job.feeds.push(feed);
            opening.finish(&job.table, None, Some(watch)).unwrap()
        };
        let all = openings.into_iter().map(finish).collect();
        (job, all)
    }

    /// Everybody but `but` hears that a rank has died.
    fn died(&self, rank: u32, but: &[u32]) {
        self.tell(rank, but, || Notice::Died(rank, Death::HostLost));
    }

    fn tell(&self, about: u32, but: &[u32], notice: impl Fn() -> Notice) {
        for (rank, feed) in (0..).zip(&self.feeds) {
            if rank != about && !but.contains(&rank) {
                feed.tell(notice());
            }
        }
    }

    /// A rank is started again and joins; gives it, and what the others are to
    /// be told.
    fn again(&mut self, rank: u32) -> (Space, Restarted) {
        self.returns += 1;
        let since = self.returns;
        let opening = Self::opening(&self.config, rank, 2000 + u64::from(since));
        let address: Address = *opening.address();
        let entry = &mut self.table[rank as usize];
        entry.address = address;
        entry.restarts += 1;
        entry.since = since;
        let restarts = entry.restarts;
        let (feed, watch) = Feed::new();
        self.feeds[rank as usize] = feed;
        let endpoint = opening.finish(&self.table, None, Some(watch)).unwrap();
        let returned = Restarted {
            rank,
            address,
            restarts,
            since,
            mode: Congestion::Lan,
            reason: "started again".into(),
        };
        (endpoint, returned)
    }

    fn back(&self, it: &Restarted, but: &[u32]) {
        self.tell(it.rank, but, || Notice::Back(Box::new(it.clone())));
    }
}

type Texts = Arc<Mutex<Vec<String>>>;

/// Collects what comes to port 1.
fn texts(endpoint: &Space) -> Texts {
    let texts = Texts::default();
    let log = Arc::clone(&texts);
    let note = move |_: &mut portolan_runtime::Context<'_>, m: &portolan_runtime::Message<'_>| {
        let text = String::from_utf8(m.payload.to_vec()).unwrap();
        log.lock().unwrap().push(format!("{text} from {}", m.from));
    };
    endpoint.bind(1, Binding::to(note)).unwrap();
    texts
}

fn events(endpoint: &Space) -> Arc<Mutex<Vec<Event>>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    endpoint
        .on_error(move |_, event| log.lock().unwrap().push(*event))
        .unwrap();
    events
}

/// Ends the test program where a barrier never ends.
struct Watchdog(Sender<()>);

impl Watchdog {
    fn start() -> Self {
        let (alive, ended) = channel();
        thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a barrier has not ended");
                std::process::exit(1);
            }
        });
        Self(alive)
    }
}

const DEAD: WaitError = WaitError::PeerDead {
    rank: 2,
    why: Death::HostLost,
};

#[test]
fn a_rank_that_is_back_is_sent_to_and_met_at_barriers() {
    let watchdog = Watchdog::start();
    let config = Config {
        threads: Threads::Multiple,
        ..helped()
    };
    let (mut job, all) = Job::start(3, config);
    let [a, b, old] = <[_; 3]>::try_from(all).unwrap();
    let together = |all: &[&Space]| -> Vec<Result<(), WaitError>> {
        thread::scope(|s| {
            let calls: Vec<_> = all.iter().map(|e| s.spawn(|| e.barrier())).collect();
            calls.into_iter().map(|c| c.join().unwrap()).collect()
        })
    };
    assert_eq!(together(&[&a, &b, &old]), [Ok(()); 3]);
    let told = events(&a);
    let of_port = Count::default();
    let log = of_port.clone();
    let to_nobody = Binding::to(|_, _| ()).on_error(move |_, _| log.add());
    a.bind(7, to_nobody).unwrap();
    let heard = texts(&a);
    // One waits at a barrier, one computes.
    job.died(2, &[]);
    assert_eq!(a.barrier().unwrap_err(), DEAD);
    let refused = SendError::PeerDead {
        rank: 2,
        why: Death::HostLost,
    };
    assert_eq!(a.try_send(2, 1, b"x").unwrap_err(), refused);
    let (c, returned) = job.again(2);
    let c_heard = texts(&c);
    job.back(&returned, &[]);
    let back = || told.lock().unwrap().last() == Some(&Event::PeerBack { rank: 2 });
    run(&[&a], back);
    let dead = Event::PeerDead {
        rank: 2,
        why: Death::HostLost,
        lost: 0,
    };
    assert_eq!(
        told.lock().unwrap()[..],
        [dead, Event::PeerBack { rank: 2 }]
    );
    assert_eq!(of_port.get(), 2, "ports are told too");
    // The one that computed has heard of both at once.
    run(&[&b], || b.restarts(2) == Ok(1));
    assert_eq!(
        b.barrier().unwrap_err(),
        DEAD,
        "it must know that others begin anew"
    );
    for _ in 0..5 {
        assert_eq!(together(&[&a, &b, &c]), [Ok(()); 3]);
    }
    for endpoint in [&a, &b, &c] {
        assert_eq!(
            [0, 1, 2].map(|rank| endpoint.restarts(rank)),
            [Ok(0), Ok(0), Ok(1)]
        );
        assert_eq!(endpoint.restarts(3), Err(Misuse::BadRank));
    }
    assert_eq!(a.lane(2).unwrap(), ("udp", "started again".to_owned()));
    // Whoever tries again and again needs no other call.
    job.died(2, &[]);
    let (second, returned) = job.again(2);
    drop(c_heard);
    std::mem::forget(c);
    thread::scope(|s| {
        s.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            job.back(&returned, &[]);
        });
        for endpoint in [&a, &b, &second] {
            s.spawn(|| while endpoint.barrier().is_err() {});
        }
    });
    let c = second;
    let c_heard = texts(&c);
    // The first life was only cut off: nobody listens to it.
    let _ = old.try_send(0, 1, b"late");
    a.send(2, 1, b"hello").unwrap();
    run(&[&c], || c_heard.lock().unwrap().len() == 1);
    c.send(0, 1, b"thanks").unwrap();
    run(&[&a], || !heard.lock().unwrap().is_empty());
    settle(&[&a, &b, &c]);
    assert_eq!(c_heard.lock().unwrap()[..], ["hello from 0"]);
    assert_eq!(heard.lock().unwrap()[..], ["thanks from 2"]);
    // Once more.
    job.died(2, &[]);
    run(&[&a, &b], || {
        [&a, &b].iter().all(|e| e.lane(2).unwrap().0 == "dead")
    });
    let (d, returned) = job.again(2);
    job.back(&returned, &[]);
    run(&[&a, &b], || {
        [&a, &b].iter().all(|e| e.restarts(2) == Ok(3))
    });
    assert_eq!(together(&[&a, &b]), [Err(DEAD); 2]);
    assert_eq!(together(&[&a, &b, &d]), [Ok(()); 3]);
    drop(watchdog.0);
    // Those that are over have nobody to say farewell to.
    std::mem::forget((old, c));
}

#[test]
fn what_the_old_life_said_and_nobody_took_is_not_the_new_ones() {
    let (mut job, all) = Job::start(2, config());
    let [a, old] = <[_; 2]>::try_from(all).unwrap();
    old.try_send(0, 1, b"old").unwrap();
    run(&[&a, &old], || a.counters().unwrap().kept == 1);
    job.died(1, &[]);
    let (b, returned) = job.again(1);
    job.back(&returned, &[]);
    run(&[&a], || a.restarts(1) == Ok(1));
    run(&[&a, &b], || b.try_send(0, 1, b"new").is_ok());
    run(&[&a, &b], || a.counters().unwrap().kept == 2);
    let heard = texts(&a);
    run(&[&a, &b], || !heard.lock().unwrap().is_empty());
    settle(&[&a, &b]);
    assert_eq!(heard.lock().unwrap()[..], ["new from 1"]);
    std::mem::forget(old);
}

#[test]
fn memory_that_was_given_to_a_message_of_the_old_life_comes_back_empty() {
    const PLACED: u16 = 4;
    const LONG: usize = 8 << 20;
    let (mut job, all) = Job::start(2, helped());
    let [a, old] = <[_; 2]>::try_from(all).unwrap();
    let asked = Count::default();
    let log = asked.clone();
    let place = Binding::to(|_, _| panic!("its thread makes no calls")).placing(move |_| {
        log.add();
        Placement::Into(vec![0; LONG].into())
    });
    a.bind(PLACED, place).unwrap();
    let o = SendOptions::default();
    let long = old.post_message(0, PLACED, &o, vec![1; LONG]).unwrap();
    run(&[&a], || asked.get() == 1);
    // From here on the helper thread makes all progress, and the whole message waits.
    let until = |done: &dyn Fn() -> bool| {
        while !done() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    until(&|| old.has_ended(long).unwrap());
    job.died(1, &[]);
    let (_b, returned) = job.again(1);
    job.back(&returned, &[]);
    until(&|| a.restarts(1) == Ok(1));
    let (buffer, filled) = a.take_buffer(PLACED).unwrap().expect("it is ours again");
    assert_eq!((buffer.len(), filled), (LONG, 0));
    std::mem::forget(old);
}

#[test]
fn a_broadcast_reaches_the_lives_that_its_root_knew_of() {
    // From rank 0 it goes to 5 by way of 3.
    let (mut job, mut all) = Job::start(6, config());
    let old = all.pop().unwrap();
    job.died(5, &[]);
    let (new, returned) = job.again(5);
    all.push(new);
    let heard: Vec<_> = all.iter().map(texts).collect();
    let each: Vec<&Space> = all.iter().collect();
    let knows = |rank: usize| all[rank].restarts(5) == Ok(1);
    // All know of it but the root: it means the one that has died.
    job.back(&returned, &[0]);
    run(&each, || (1..5).all(knows));
    let o = SendOptions::default();
    let to = [1, 2, 3, 4, 5];
    all[0].broadcast(&to, 1, &o, b"old").unwrap();
    run(&each, || {
        (1..5).all(|rank| heard[rank].lock().unwrap().len() == 1)
    });
    settle(&each);
    assert_eq!(heard[5].lock().unwrap().len(), 0);
    job.feeds[0].tell(Notice::Back(Box::new(returned)));
    run(&each, || knows(0));
    // The next one: now the one on the way has not heard of it.
    job.died(5, &[]);
    run(&each, || {
        (0..5).all(|rank| all[rank].lane(5).unwrap().0 == "dead")
    });
    let (third, returned) = job.again(5);
    let third_heard = texts(&third);
    job.back(&returned, &[3]);
    let each: Vec<&Space> = all[..5].iter().chain([&third]).collect();
    run(&each, || all[0].restarts(5) == Ok(2));
    all[0].broadcast(&to, 1, &o, b"new").unwrap();
    run(&each, || heard[2].lock().unwrap().len() == 2);
    settle(&each);
    assert_eq!(
        heard[3].lock().unwrap().len(),
        1,
        "it cannot pass it on yet"
    );
    job.feeds[3].tell(Notice::Back(Box::new(returned)));
    run(&each, || third_heard.lock().unwrap().len() == 1);
    run(&each, || {
        (1..5).all(|rank| heard[rank].lock().unwrap().len() == 2)
    });
    assert_eq!(third_heard.lock().unwrap()[..], ["new from 0"]);
    drop(each);
    std::mem::forget((old, all.pop()));
}

#[test]
fn who_comes_later_knows_the_dead_and_who_has_left() {
    let (mut job, all) = Job::start(3, config());
    let [a, b, old] = <[_; 3]>::try_from(all).unwrap();
    job.returns = 1;
    let opening = Job::opening(&job.config, 2, 2001);
    let (feed, watch) = Feed::new();
    // Told before it has opened its endpoint.
    feed.tell(Notice::Died(0, Death::Killed(9)));
    feed.tell(Notice::Left(1));
    (job.table[2].restarts, job.table[2].since) = (1, 1);
    let c = opening.finish(&job.table, None, Some(watch)).unwrap();
    assert_eq!(c.restarts(2), Ok(1));
    for (rank, why) in [(0, Death::Killed(9)), (1, Death::Closed)] {
        let refused = SendError::PeerDead { rank, why };
        assert_eq!(c.try_send(rank, 1, b"x").unwrap_err(), refused);
    }
    std::mem::forget((a, b, old));
}

#[test]
fn the_launcher_may_take_its_time_to_report_how_a_rank_ended() {
    let (mut job, all) = Job::start(2, config());
    drop(all);
    let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
    job.table[1].pid = process.id();
    let (feed, watch) = Feed::new();
    let opening = Job::opening(&job.config, 0, 2000);
    job.table[0] = crate::common::peer(&opening, None);
    let a = opening.finish(&job.table, None, Some(watch)).unwrap();
    let told = events(&a);
    process.kill().unwrap();
    process.wait().unwrap();
    let launcher = thread::spawn(move || {
        // As long as a busy host may keep it from its core.
        thread::sleep(Duration::from_millis(30));
        feed.tell(Notice::Died(1, Death::Exited(3)));
    });
    run(&[&a], || !told.lock().unwrap().is_empty());
    let dead = Event::PeerDead {
        rank: 1,
        why: Death::Exited(3),
        lost: 0,
    };
    assert_eq!(told.lock().unwrap()[..], [dead]);
    launcher.join().unwrap();
}

/// Opens a job, with a feed for each of its ranks.
fn job_with_feeds(by: By, size: u32, config: &Config) -> (Vec<Feed>, Vec<Space>) {
    let mut feeds = Vec::new();
    let all = job_watched(by, size, config, |_| {
        let (feed, watch) = Feed::new();
        feeds.push(feed);
        Some(watch)
    });
    (feeds, all)
}

#[test]
fn a_rank_that_is_marked_dead_in_shared_memory_ended_as_the_launcher_reports() {
    let (feeds, all) = job_with_feeds(By::Shm, 3, &config());
    let told = events(&all[0]);
    let tell = |to: &Feed| to.tell(Notice::Died(1, Death::Exited(3)));
    // The launcher tells one rank after the other: the first of them marks it.
    tell(&feeds[2]);
    run(&[&all[2]], || all[2].death(1).unwrap().is_some());
    thread::scope(|s| {
        s.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            tell(&feeds[0]);
        });
        run(&[&all[0]], || !told.lock().unwrap().is_empty());
    });
    assert_eq!(all[0].death(1), Ok(Some(Death::Exited(3))));
}

#[test]
fn a_barrier_that_another_reports_failed_tells_how_the_rank_ended() {
    let (feeds, all) = job_with_feeds(By::Udp, 4, &helped());
    let why = Death::Killed(9);
    let tell = |to: usize| feeds[to].tell(Notice::Died(2, why));
    let dead = Err(WaitError::PeerDead { rank: 2, why });
    thread::scope(|s| {
        let [first, second] = [0, 1].map(|rank| {
            let me = &all[rank];
            s.spawn(move || me.barrier())
        });
        // Rank 3 waits for the dead rank in the first round, and rank 1 for rank 3 in the second.
        tell(3);
        assert_eq!(all[3].barrier(), dead);
        thread::sleep(Duration::from_millis(30));
        tell(1);
        let second = second.join().unwrap();
        tell(0);
        assert_eq!([first.join().unwrap(), second], [dead; 2]);
    });
}
