//! Endpoints outside of a job that share memory: with processes that are killed, and with
//! whoever listens or calls in another's place.

use std::env;
use std::fs::{File, read_dir, read_to_string};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::{Binding, Config, Death, Endpoint, Event, SendError};
use portolan_seal::identity;
use portolan_sys::memory::SharedMemory;
use portolan_sys::process::{Pidfd, own_pid};
use portolan_sys::shared_doorbell::SharedDoorbell;
use portolan_sys::socket;
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use rustix::time::{ClockId, clock_gettime};

const PORT: u16 = 7;
/// A child of these tests runs with it.
const CHILD: &str = "PORTOLAN_TEST_CHILD";

fn open() -> Endpoint {
    Endpoint::open_standalone(Config::default().set("interface", "lo")).unwrap()
}

/// Makes progress until `done`; fails after a minute.
#[track_caller]
fn until(ep: &Endpoint, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "it did not come to that");
        if ep.progress().unwrap() == 0 {
            std::thread::yield_now();
        }
    }
}

fn count(ep: &Endpoint) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let to = Arc::clone(&count);
    let binding = Binding::to(move |_, _| {
        to.fetch_add(1, Ordering::Relaxed);
    });
    ep.bind(PORT, binding).unwrap();
    count
}

/// Where the endpoint at an address listens.
fn name_of(address: &[u8; 64]) -> String {
    let key = portolan_runtime::KeyAddress::parse(address).unwrap().key;
    let (id, life) = identity(&key);
    format!("portolan-endpoint-{id:016x}{life:016x}")
}

/// The address of an endpoint that has ended, and a socket in its place.
fn squatter() -> ([u8; 64], OwnedFd) {
    let address = open().address();
    loop {
        match socket::listen(&name_of(&address), 4) {
            Ok(listener) => return (address, listener),
            // A child that another test starts has it until it is another program.
            Err(e) => assert_eq!(e.kind(), ErrorKind::AddrInUse),
        }
    }
}

/// Sends until the lane is chosen; gives which.
fn lane_to(ep: &Endpoint, there: u32, mut meanwhile: impl FnMut()) -> &'static str {
    until(ep, || {
        meanwhile();
        match ep.try_send(there, PORT, &[1]) {
            Ok(_) | Err(SendError::NoCredit) => {}
            Err(e) => panic!("{e}"),
        }
        ep.lane(there).unwrap().0 != "undecided"
    });
    ep.lane(there).unwrap().0
}

#[test]
fn who_listens_and_says_nothing_is_reached_by_udp() {
    let ep = open();
    let (address, listener) = squatter();
    let there = ep.add_peer(&address).unwrap();
    let mut held = Vec::new();
    let lane = lane_to(&ep, there, || {
        held.extend(socket::accept(listener.as_fd()).unwrap())
    });
    assert_eq!((lane, held.len()), ("udp", 1));
    // One whose queue is full is not even accepted.
    let (address, listener) = squatter();
    let name = name_of(&address);
    let fill: Vec<_> = std::iter::from_fn(|| socket::call(&name).ok()).collect();
    assert!(!fill.is_empty());
    let there = ep.add_peer(&address).unwrap();
    assert_eq!(lane_to(&ep, there, || ()), "udp");
    drop(listener);
}

const READY: &[u8] = b"R\x02";
const ANSWER: &[u8] = b"A\x02\x01\x00";

/// Accepts who connects, and says that it may call.
fn accepted(listener: &OwnedFd) -> Option<OwnedFd> {
    let call = socket::accept(listener.as_fd()).unwrap()?;
    let _ = socket::admit_descriptors(call.as_fd());
    socket::send(call.as_fd(), READY, &[], false).unwrap();
    Some(call)
}

fn null() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

fn ringer() -> OwnedFd {
    let (_, ringer) = SharedDoorbell::new().unwrap();
    ringer.as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn who_answers_nonsense_is_reached_by_udp() {
    let memory = |bytes| SharedMemory::create("test", bytes).unwrap().into_parts().1;
    let process = || Pidfd::open(own_pid()).unwrap();
    let process = || process().as_fd().try_clone_to_owned().unwrap();
    let answers: Vec<(&[u8], Vec<OwnedFd>)> = vec![
        (b"?", vec![]),
        (b"A", vec![]),
        (b"A\x01\x01\x00", vec![]),
        (READY, vec![]),
        (ANSWER, vec![]),
        (ANSWER, vec![null(), null(), null()]),
        (ANSWER, vec![null(), ringer(), process()]),
        (ANSWER, vec![memory(100), ringer(), process()]),
        (ANSWER, vec![memory(1 << 20), ringer(), process()]),
        (ANSWER, vec![memory(1 << 20), ringer(), null()]),
        (ANSWER, vec![memory(1 << 20), ringer()]),
        (b"C\x02\x01\x00", vec![memory(1 << 20), ringer(), process()]),
    ];
    let ep = open();
    for (bytes, descriptors) in answers {
        let (address, listener) = squatter();
        let there = ep.add_peer(&address).unwrap();
        let fds: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut held = Vec::new();
        let lane = lane_to(&ep, there, || {
            if let Some(call) = accepted(&listener) {
                let _ = socket::send(call.as_fd(), bytes, &fds, false);
                held.push(call);
            }
        });
        assert_eq!(lane, "udp", "{bytes:?}");
    }
}

/// A peer that hands over the right memory and process, and as doorbell what it likes.
#[test]
fn a_doorbell_that_would_block_or_end_us_is_refused() {
    let path = env::temp_dir().join(format!("portolan-bell-{}", own_pid()));
    let file = File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let full = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let bells = [
        ("shm", ringer()),
        ("udp", std::io::pipe().unwrap().1.into()),
        ("udp", file.try_clone().unwrap().into()),
        ("udp", full),
        ("udp", socket::pair().unwrap().0),
    ];
    let ep = open();
    for (expected, bell) in bells {
        let (address, listener) = squatter();
        let there = ep.add_peer(&address).unwrap();
        let mut call = None;
        let lane = lane_to(&ep, there, || {
            call = call.take().or_else(|| accepted(&listener));
            let Some(socket) = &call else { return };
            if let Ok(Some(called)) = socket::receive(socket.as_fd(), false)
                && let [memory, _, process] = &called.descriptors[..]
            {
                // Its own memory has the right form.
                let fds = [memory.as_fd(), bell.as_fd(), process.as_fd()];
                socket::send(socket.as_fd(), ANSWER, &fds, false).unwrap();
            }
        });
        assert_eq!(lane, expected);
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn callers_that_make_no_sense_keep_nobody_out() {
    let ep = open();
    let heard = count(&ep);
    let name = name_of(&ep.address());
    let call = || loop {
        match socket::call(&name) {
            Ok(socket) => return socket,
            // It is busy with the others.
            Err(e) if e.kind() == ErrorKind::WouldBlock => drop(ep.progress().unwrap()),
            Err(e) => panic!("{e}"),
        }
    };
    let (null, ringer) = (null(), ringer());
    let memory = SharedMemory::create("test", 1 << 20).unwrap();
    let process = Pidfd::open(own_pid()).unwrap();
    let mut wrong = vec![b'C', 2, 9, 0];
    wrong.extend([0; 8]);
    wrong.extend(open().address());
    let mut held: Vec<OwnedFd> = (0..3_000).map(|_| call()).collect();
    for bytes in [&b"?"[..], b"C\x02", &[0; 2_000], &wrong] {
        let all = [
            vec![],
            vec![null.as_fd(); 3],
            vec![null.as_fd(); 40],
            vec![null.as_fd(), ringer.as_fd(), process.as_fd()],
            vec![memory.as_fd(), ringer.as_fd(), process.as_fd()],
        ];
        for descriptors in all {
            let socket = call();
            let _ = socket::send(socket.as_fd(), bytes, &descriptors, false);
            held.push(socket);
        }
    }
    // On a busy machine one may not be answered in time, and is reached by udp.
    let is_near = |_| {
        let (other, before) = (open(), heard.load(Ordering::Relaxed));
        let there = other.add_peer(&ep.address()).unwrap();
        until(&ep, || {
            let _ = other.try_send(there, PORT, &[1]);
            other.progress().unwrap();
            heard.load(Ordering::Relaxed) > before
        });
        other.lane(there).unwrap().0 == "shm"
    };
    assert!((0..5).any(is_near), "nobody gets in");
}

/// A child of [`another_user_who_connects_without_end_keeps_nobody`] runs with the name to
/// connect to.
const FLOOD: &str = "PORTOLAN_TEST_FLOOD";
/// How often it tries before it says so.
const FLOOD_STEP: usize = 5_000;
/// Processor time that a pass takes at most.
const PASS_MAX: Duration = Duration::from_millis(5);
/// Nobody.
const ANOTHER: u32 = 65_534;

/// Not a test: another user who connects while there is room, and else looks for some 5,000
/// times a second.
#[test]
fn as_flood() {
    let Ok(name) = env::var(FLOOD) else { return };
    if let Err(errno) = set_thread_uid(Uid::from_raw(ANOTHER)) {
        say(&format!("DID NOT RUN: another user needs root: {errno}"));
        return;
    }
    loop {
        for _ in 0..FLOOD_STEP {
            while socket::call(&name).is_ok() {}
            std::thread::sleep(Duration::from_micros(150));
        }
        say("flooded");
    }
}

/// Processor time of the calling thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Ends with the test.
struct Flood(Child);

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pass(ep: &Endpoint) {
    let _ = ep.progress().unwrap();
}

/// The lane that a new endpoint of this user comes by.
fn newcomer(to: &Endpoint) -> &'static str {
    let late = open();
    let there = late.add_peer(&to.address()).unwrap();
    lane_to(&late, there, || pass(to))
}

#[test]
fn another_user_who_connects_without_end_keeps_nobody() {
    let (ep, other) = (open(), open());
    let heard = [count(&ep), count(&other)];
    let there = other.add_peer(&ep.address()).unwrap();
    assert_eq!(lane_to(&other, there, || pass(&ep)), "shm");
    let back = ep.add_peer(&other.address()).unwrap();
    let mut flood = Flood(
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "as_flood", "--nocapture"])
            .env(FLOOD, name_of(&ep.address()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut said = BufReader::new(flood.0.stdout.take().unwrap());
    let steps = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&steps);
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        while said.read_line(&mut line).unwrap() > 0 && !line.contains("DID NOT RUN") {
            told.fetch_add(u64::from(line.contains("flooded")), Ordering::Relaxed);
            line.clear();
        }
        line
    });
    // The longest pass of each round; something else may have hit one of them.
    let mut longest = Vec::new();
    while longest.len() < 4 && !reader.is_finished() {
        let step = steps.load(Ordering::Relaxed);
        let before = heard.each_ref().map(|it| it.load(Ordering::Relaxed));
        let mut most = Duration::ZERO;
        while steps.load(Ordering::Relaxed) == step && !reader.is_finished() {
            for (from, to) in [(&other, there), (&ep, back)] {
                let _ = from.try_send(to, PORT, &[1]);
            }
            let start = thread_time();
            ep.progress().unwrap();
            most = most.max(thread_time() - start);
            other.progress().unwrap();
        }
        longest.push(most);
        if !reader.is_finished() {
            let after = heard.each_ref().map(|it| it.load(Ordering::Relaxed));
            assert!(after[0] > before[0] && after[1] > before[1]);
        }
    }
    if reader.is_finished() {
        eprintln!("{}", reader.join().unwrap());
        return;
    }
    let shortest = longest.iter().min().unwrap();
    assert!(*shortest < PASS_MAX, "{longest:?}");
    // Whoever comes now is let in when its turn is, or goes by the network.
    let lane = newcomer(&ep);
    assert!(lane == "shm" || lane == "udp", "{lane}");
    drop(flood);
    reader.join().unwrap();
    until(&ep, || newcomer(&ep) == "shm");
}

/// Tells the parent, which may not listen any more.
fn say(how_far: &str) {
    let _ = writeln!(std::io::stdout(), "{how_far}");
}

/// Not a test: what [`child`] starts.
#[test]
fn as_child() {
    let Ok(address) = env::var(CHILD) else { return };
    let bytes: Vec<u8> = address.split(',').map(|b| b.parse().unwrap()).collect();
    let ep = open();
    let heard = count(&ep);
    let there = ep.add_peer(&bytes.try_into().unwrap()).unwrap();
    say("opened");
    let _ = ep.send(there, PORT, &[1]);
    say("sent");
    until(&ep, || heard.load(Ordering::Relaxed) > 0);
    say("heard");
    loop {
        ep.progress().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that sends to `to`, and says how far it is.
fn child(to: &Endpoint) -> (Child, BufReader<ChildStdout>) {
    let address: Vec<String> = to.address().iter().map(u8::to_string).collect();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "as_child", "--nocapture"])
        .env(CHILD, address.join(","))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    (child, said)
}

fn descriptors() -> usize {
    read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_killed_process_that_is_reached_by_udp_is_noticed_by_its_port() {
    let silence = Duration::from_secs(40);
    let config = Config::default().set("interface", "lo").set("link", "udp");
    let silence_ms = silence.as_millis().to_string();
    let ep = Endpoint::open_standalone(config.set("silence_ms", &silence_ms)).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&told);
    ep.on_error(move |_, event: &Event| to.lock().unwrap().push(*event))
        .unwrap();
    let heard = count(&ep);
    let (mut child, _said) = child(&ep);
    until(&ep, || heard.load(Ordering::Relaxed) > 0);
    let come = told.lock().unwrap()[0];
    let Event::PeerCome { rank } = come else {
        panic!("{come:?}");
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    ep.send(rank, PORT, &[1]).unwrap();
    until(&ep, || told.lock().unwrap().len() > 1);
    let why = Death::Silent;
    assert_eq!(
        told.lock().unwrap()[1],
        Event::PeerDead { rank, why, lost: 0 }
    );
    assert!(killed.elapsed() < silence / 2, "{:?}", killed.elapsed());
}

#[test]
fn killed_processes_are_noticed_and_leave_nothing() {
    let ep = open();
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&told);
    ep.on_error(move |_, event: &Event| to.lock().unwrap().push(*event))
        .unwrap();
    let heard = count(&ep);
    let mut after_first = 0;
    for round in 0..12 {
        let before = heard.load(Ordering::Relaxed);
        let (mut child, mut said) = child(&ep);
        let mut lines = String::new();
        let wanted = ["opened", "sent", "heard"][round % 3];
        if wanted == "heard" {
            until(&ep, || heard.load(Ordering::Relaxed) > before);
            let come = |event: &Event| match event {
                Event::PeerCome { rank } => Some(*rank),
                _ => None,
            };
            let rank = told.lock().unwrap().iter().rev().find_map(come).unwrap();
            assert_eq!(ep.lane(rank).unwrap().0, "shm");
            ep.send(rank, PORT, &[1]).unwrap();
        }
        // Its own messages need no progress of ours but for the answer to its call.
        let reader = std::thread::spawn(move || {
            while !lines.contains(wanted) && said.read_line(&mut lines).unwrap() > 0 {}
            lines
        });
        until(&ep, || reader.is_finished());
        assert!(reader.join().unwrap().contains(wanted));
        child.kill().unwrap();
        child.wait().unwrap();
        let come = |it: &&Event| matches!(it, Event::PeerCome { .. });
        let gone = |it: &&Event| {
            matches!(
                it,
                Event::PeerDead {
                    why: Death::Ended,
                    ..
                }
            )
        };
        if wanted == "opened" {
            // It may have called or not.
            until(&ep, || {
                let told = told.lock().unwrap();
                told.iter().filter(come).count() == told.iter().filter(gone).count()
            });
        } else {
            until(&ep, || {
                let told = told.lock().unwrap();
                let came = told.iter().filter(come).count();
                came > round / 3 && came == told.iter().filter(gone).count()
            });
        }
        assert!(ep.progress().is_ok());
        if round == 2 {
            after_first = descriptors();
        }
    }
    // What the last had is given back by then, or is what the first had.
    let end = Instant::now() + Duration::from_secs(30);
    while descriptors() > after_first {
        assert!(Instant::now() < end, "{} > {after_first}", descriptors());
        ep.progress().unwrap();
    }
    let name = name_of(&ep.address());
    let is_taken = || read_to_string("/proc/net/unix").unwrap().contains(&name);
    assert!(is_taken());
    drop(ep);
    while is_taken() {
        assert!(Instant::now() < end, "its name stays");
    }
}
