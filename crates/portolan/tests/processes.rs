//! What needs processes of its own: fork, sudden death, and the examples.
//!
//! This program starts itself as the ranks of jobs; the variable says which
//! part a rank plays.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use portolan::{
    Binding, Config, Death, Endpoint, Event, Misuse, SendError, SendOptions, WaitError,
};
use portolan_boot::launch::{
    Event as Told, JobSpec, OnDeath, RankPlace, Running, SharedMemory, Starter, Wanted,
};
use portolan_boot::{HostPort, How, LinkChoice};
use portolan_link::shm::{Segment, SegmentConfig};

const PART: &str = "PORTOLAN_TEST_PART";
/// Of a segment for three ranks: pair rings, at its end, and lines of each.
const RINGS: usize = 12;
const RING_LINES: usize = 1 + 128 + (2 << 20) / 64;
/// Neither a plausible number of a slot nor of how far a ring was read.
const GARBAGE: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// Messages by which a sender comes to use a ring.
const MESSAGES: u64 = 50;
const LINKS: [LinkChoice; 2] = [LinkChoice::Auto, LinkChoice::Udp];

/// Ends a test that would hang: nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The exit code of rank 0 where the launcher does not say in time how rank 1
/// ended.
const TOO_LATE: i32 = 9;

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

unsafe extern "C" {
    fn fork() -> i32;
    fn getppid() -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

fn main() {
    match std::env::var(PART).as_deref() {
        Err(_) => launch(),
        Ok("fork") => forks(),
        Ok("death") => dies(),
        Ok("kill") => ends(Death::Killed(SIGKILL)),
        Ok("abort") => ends(Death::Killed(SIGABRT)),
        Ok("exit") => ends(Death::Exited(7)),
        Ok("exec") => ends(Death::Replaced),
        Ok("stop") => stops(),
        Ok("leave") => leaves_one_that_is_stopped(),
        Ok("apart") => apart(),
        Ok("scribble") => scribbled(),
        Ok(other) => panic!("no part {other}"),
    }
}

/// Starts ranks of one program.
struct Ranks {
    program: PathBuf,
    part: &'static str,
    /// Whose host ports were asked for, call by call.
    asked: Vec<Vec<u32>>,
}

impl Starter for Ranks {
    fn segment(&mut self, _host: u16, ranks: u32) -> io::Result<SharedMemory> {
        let made = Segment::create(ranks, &SegmentConfig::default())
            .and_then(|segment| Ok((segment.duplicate_fd()?, segment)));
        let (descriptor, segment) = made.map_err(|e| io::Error::other(e.to_string()))?;
        Ok(SharedMemory {
            descriptor,
            mark_dead: Box::new(move |index| segment.mark_dead(index)),
        })
    }

    fn command(&mut self, _place: &RankPlace) -> Command {
        let mut command = Command::new(&self.program);
        command.env(PART, self.part).stdin(Stdio::null());
        // On a busy machine a close may take long.
        command.env("PORTOLAN_CLOSE_MS", "60000");
        command
    }

    fn started(&mut self, _place: &RankPlace, _pid: u32) {}

    fn host_ports(&mut self, wanted: &[Wanted]) -> Vec<Result<HostPort, String>> {
        self.asked
            .push(wanted.iter().map(|it| it.place.rank).collect());
        wanted.iter().map(|_| Err("none here".to_owned())).collect()
    }
}

/// Runs two ranks; gives the job's exit code and what the launcher told.
fn job(program: PathBuf, part: &'static str, link: LinkChoice) -> (i32, String) {
    let (code, told) = events(of_two(link), program, part);
    (code, format!("{told:?}"))
}

fn of_two(link: LinkChoice) -> JobSpec {
    JobSpec {
        link,
        on_death: OnDeath::Notify,
        ..JobSpec::new(vec![2])
    }
}

fn run(spec: JobSpec, program: PathBuf, part: &'static str) -> (i32, String) {
    let (code, told) = events(spec, program, part);
    (code, format!("{told:?}"))
}

fn events(spec: JobSpec, program: PathBuf, part: &'static str) -> (i32, Vec<Told>) {
    // Of several hosts those of all, in one call.
    let wanted = if spec.hosts.len() > 1 {
        (0..spec.size()).collect()
    } else {
        Vec::new()
    };
    let mut starter = Ranks {
        program,
        part,
        asked: Vec::new(),
    };
    let mut told = Vec::new();
    let mut tell = |event| told.push(event);
    let job = Running::start(spec, &mut starter, Vec::new(), &mut tell).unwrap();
    let code = job.wait(&mut starter, &mut tell).unwrap();
    assert_eq!(starter.asked, [wanted]);
    (code, told)
}

/// Runs a part in which rank 1 ends and rank 0 hears how, until it hears it in
/// time.
fn hears(program: &Path, part: &'static str, link: LinkChoice, wanted: i32) {
    loop {
        let (code, told) = events(of_two(link), program.to_owned(), part);
        let how = told.iter().find_map(|event| match event {
            Told::Ended { place, how, .. } if place.rank == 0 => Some(*how),
            _ => None,
        });
        if how != Some(How::Exited(TOO_LATE)) {
            let both = (code, how);
            return assert_eq!(
                both,
                (wanted, Some(How::Exited(0))),
                "{part} over {link:?}: {told:?}"
            );
        }
    }
}

fn launch() {
    let itself = std::env::current_exe().unwrap();
    let spec = JobSpec {
        partitions: vec![0, 1, 0],
        ..JobSpec::new(vec![1, 1, 1])
    };
    let (code, told) = run(spec, itself.clone(), "apart");
    assert_eq!(code, 0, "partitions: {told}");
    let spec = JobSpec {
        on_death: OnDeath::Notify,
        ..JobSpec::new(vec![3])
    };
    let (code, told) = run(spec, itself.clone(), "scribble");
    // Its ranks go on without each other, and end well; the job did not.
    assert_eq!(code, 1, "scribbled memory: {told}");
    let examples = itself.parent().unwrap().with_file_name("examples");
    let tokio = examples.join("tokio");
    assert!(
        tokio.exists(),
        "{} is missing: cargo build -p portolan --examples",
        tokio.display()
    );
    for link in LINKS {
        let (code, told) = job(itself.clone(), "fork", link);
        assert_eq!(code, 0, "fork over {link:?}: {told}");
        // The rank that was killed is the job's failure, and the only one.
        let (code, told) = job(itself.clone(), "death", link);
        assert_eq!(code, 128 + SIGKILL, "death over {link:?}: {told}");
        for (part, wanted) in [
            ("kill", 128 + SIGKILL),
            ("abort", 128 + SIGABRT),
            ("exit", 7),
            ("exec", 0),
        ] {
            hears(&itself, part, link, wanted);
        }
        for part in ["stop", "leave"] {
            let (code, told) = job(itself.clone(), part, link);
            assert_eq!(code, 0, "{part} over {link:?}: {told}");
        }
        let (code, told) = job(tokio.clone(), "none", link);
        assert_eq!(code, 0, "examples/tokio over {link:?}: {told}");
        println!("fork, deaths, stop and examples/tokio over {link:?}: ok");
    }
}

/// A rank that counts what comes to port 1, and its endpoint.
fn counting() -> (Endpoint, Arc<AtomicU64>) {
    let ep = Endpoint::open(Config::default()).unwrap();
    let got = Arc::new(AtomicU64::new(0));
    let log = Arc::clone(&got);
    let count = Binding::to(move |_, m| _ = log.fetch_add(m.arg(0), Ordering::Relaxed));
    ep.bind(1, count).unwrap();
    ep.barrier().unwrap();
    (ep, got)
}

fn say(ep: &Endpoint, word: u64, bytes: usize) {
    let options = SendOptions {
        args: &[word],
        ..Default::default()
    };
    let to = 1 - ep.rank();
    ep.send_with(to, 1, &options, &vec![7; bytes]).unwrap();
}

/// Rank 2 scribbles over the rings by which rank 1 sends to rank 0, which finds
/// that. Rank 1 only waits by then, and hears of it from the launcher.
fn scribbled() {
    let (ep, got) = counting();
    let is_dead = |rank| ep.death(rank).unwrap();
    let wait = |millis| _ = ep.wait_timeout(Duration::from_millis(millis), || false);
    match ep.rank() {
        0 => {
            while is_dead(1).is_none() {
                if got.load(Ordering::Relaxed) == MESSAGES {
                    // Each time, should the ring have been given back before.
                    let word = SendOptions {
                        args: &[1],
                        ..Default::default()
                    };
                    let _ = ep.send_with(2, 1, &word, b"");
                }
                wait(20);
            }
            assert_eq!(is_dead(1), Some(Death::Corrupt));
        }
        1 => {
            (0..MESSAGES).for_each(|_| say(&ep, 1, 20_000));
            while is_dead(0).is_none() {
                wait(1000);
            }
            assert_eq!(is_dead(0), Some(Death::Corrupt));
        }
        _ => {
            ep.wait_until(|| got.load(Ordering::Relaxed) > 0).unwrap();
            let words = segment_here();
            while is_dead(0).is_none() || is_dead(1).is_none() {
                for word in &words[words.len() - RINGS * RING_LINES * 8..] {
                    word.store(GARBAGE, Ordering::Relaxed);
                }
                wait(50);
            }
        }
    }
    // Not in good order: who closes looks at what is left.
    std::process::exit(0);
}

/// The memory that the ranks of this host share, where the endpoint has mapped it.
fn segment_here() -> &'static [AtomicU64] {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|line| line.ends_with("/memfd:portolan (deleted)"));
    let (range, _) = line.unwrap().split_once(' ').unwrap();
    let (start, end) = range.split_once('-').unwrap();
    let [start, end] = [start, end].map(|it| usize::from_str_radix(it, 16).unwrap());
    // SAFETY: it is mapped as long as the endpoint is open, which this process never closes,
    // and all that is in it are words that others may write.
    unsafe { std::slice::from_raw_parts(start as *const AtomicU64, (end - start) / 8) }
}

/// Rank 0 forks, again and again, with messages under way in both directions.
fn forks() {
    let (ep, got) = counting();
    let mut ep = Some(ep);
    for round in 1..=20 {
        let mine = ep.as_ref().unwrap();
        say(mine, 1, 20_000);
        if mine.rank() == 0 {
            // SAFETY: the child makes calls of the endpoint, which are
            // refused before they touch a lock, and leaves without cleaning up.
            let child = unsafe { fork() };
            if child == 0 {
                let code = forked(ep.take().unwrap(), round % 2 == 0);
                // SAFETY: nothing is left to be done here.
                unsafe { _exit(code) }
            }
            let mut status = -1;
            // SAFETY: the status is a place to write to.
            assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child in round {round}");
        }
        let mine = ep.as_ref().unwrap();
        mine.wait_until(|| got.load(Ordering::Relaxed) >= round)
            .unwrap();
    }
    let ep = ep.unwrap();
    ep.barrier().unwrap();
    assert_eq!(got.load(Ordering::Relaxed), 20);
    ep.close().unwrap();
}

/// The child; gives 0 if every call was refused.
fn forked(ep: Endpoint, drops: bool) -> i32 {
    let no = Misuse::Forked;
    let checks = [
        ep.progress() == Err(no),
        ep.try_send(1, 1, b"no") == Err(SendError::Misuse(no)),
        ep.send(1, 1, &[0; 100_000]) == Err(SendError::Misuse(no)),
        ep.bind(2, Binding::default()) == Err(no),
        ep.arm() == Err(no),
        matches!(ep.arrival(), Err(m) if m == no),
        ep.barrier() == Err(WaitError::Misuse(no)),
        ep.close() == Err(WaitError::Misuse(no)),
        ep.wait_until(|| true) == Err(WaitError::Misuse(no)),
        ep.rank() == 0,
    ];
    if drops {
        drop(ep);
    } else {
        std::mem::forget(ep);
    }
    checks
        .iter()
        .position(|ok| !ok)
        .map_or(0, |at| at as i32 + 1)
}

/// The launcher, stopped until this is dropped: it can tell nobody.
struct Stopped(i32);

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: a system call without memory.
        unsafe { kill(self.0, SIGCONT) };
    }
}

/// Rank 1 ends without a word; rank 0 hears from the launcher how.
fn ends(how: Death) {
    let (ep, got) = counting();
    if ep.rank() == 1 {
        say(&ep, u64::from(std::process::id()), 0);
        // Only after that has left.
        ep.wait_until(|| got.load(Ordering::Relaxed) != 0).unwrap();
        match how {
            Death::Exited(code) => std::process::exit(code),
            Death::Killed(SIGABRT) => std::process::abort(),
            Death::Replaced => panic!("{}", Command::new("sleep").arg("1").exec()),
            _ => std::thread::sleep(Duration::from_secs(1000)),
        }
    }
    ep.wait_until(|| got.load(Ordering::Relaxed) != 0).unwrap();
    say(&ep, 1, 0);
    if how == Death::Killed(SIGKILL) {
        let victim = got.load(Ordering::Relaxed) as i32;
        // SAFETY: a system call without memory.
        assert_eq!(unsafe { kill(victim, SIGKILL) }, 0);
    }
    let ended = |why| Err(WaitError::PeerDead { rank: 1, why });
    let waited = ep.wait_timeout(PATIENCE, || false);
    ep.close().unwrap();
    if waited == ended(Death::Ended) {
        // The launcher had 5 ms.
        std::process::exit(TOO_LATE);
    }
    assert_eq!(waited, ended(how));
}

/// Rank 1 is in another partition than the two others.
fn apart() {
    let ep = Endpoint::open(Config::default()).unwrap();
    let got = Arc::new(AtomicU64::new(0));
    let log = Arc::clone(&got);
    let count = Binding::to(move |_, m| _ = log.fetch_add(m.arg(0), Ordering::Relaxed));
    ep.bind(1, count).unwrap();
    let others: &[u32] = if ep.rank() == 1 { &[0, 2] } else { &[1] };
    for &rank in others {
        let refused = SendError::PeerDead {
            rank,
            why: Death::Unreachable,
        };
        assert_eq!(ep.try_send(rank, 1, b"anybody?"), Err(refused));
    }
    if ep.rank() != 1 {
        let options = SendOptions {
            args: &[7],
            ..Default::default()
        };
        ep.send_with(2 - ep.rank(), 1, &options, &[]).unwrap();
        ep.wait_until(|| got.load(Ordering::Relaxed) == 7).unwrap();
    }
    ep.close().unwrap();
}

/// Rank 1 is stopped for longer than a silent peer is waited for, and goes on
/// as if nothing had been.
fn stops() {
    let ep = Endpoint::open(Config::default().set("silence_ms", 1500)).unwrap();
    let got = Arc::new(AtomicU64::new(0));
    let log = Arc::clone(&got);
    let count = Binding::to(move |_, m| _ = log.fetch_add(m.arg(0), Ordering::Relaxed));
    ep.bind(1, count).unwrap();
    ep.barrier().unwrap();
    if ep.rank() == 1 {
        say(&ep, u64::from(std::process::id()), 0);
        ep.wait_until(|| got.load(Ordering::Relaxed) == 2).unwrap();
        say(&ep, 1, 0);
        ep.close().unwrap();
        return;
    }
    ep.wait_until(|| got.load(Ordering::Relaxed) != 0).unwrap();
    let sleeper = got.load(Ordering::Relaxed);
    // SAFETY: system calls without memory; `Stopped` lets it go on.
    assert_eq!(unsafe { kill(sleeper as i32, SIGSTOP) }, 0);
    let stopped = Stopped(sleeper as i32);
    // Short: for more the sleeper must give credit.
    say(&ep, 1, 100);
    let early = ep.wait_timeout(Duration::from_millis(3500), || {
        got.load(Ordering::Relaxed) != sleeper
    });
    assert_eq!(early, Err(WaitError::TimedOut));
    drop(stopped);
    say(&ep, 1, 0);
    ep.wait_until(|| got.load(Ordering::Relaxed) == sleeper + 1)
        .unwrap();
    ep.close().unwrap();
}

/// Rank 0 closes while rank 1 is stopped, which later goes on all the same.
fn leaves_one_that_is_stopped() {
    let (ep, got) = counting();
    if ep.rank() == 1 {
        say(&ep, u64::from(std::process::id()), 0);
        std::thread::sleep(Duration::from_secs(1));
        ep.close().unwrap();
        return;
    }
    ep.wait_until(|| got.load(Ordering::Relaxed) != 0).unwrap();
    let sleeper = got.load(Ordering::Relaxed) as i32;
    // SAFETY: system calls without memory; `Stopped` lets it go on.
    assert_eq!(unsafe { kill(sleeper, SIGSTOP) }, 0);
    let stopped = Stopped(sleeper);
    ep.close().unwrap();
    // Whoever would end it does so by now.
    std::thread::sleep(Duration::from_secs(1));
    drop(stopped);
}

/// Rank 1 is killed and cannot say goodbye, nor can the launcher tell: rank 0
/// sees it by the process's descriptor.
fn dies() {
    let (ep, got) = counting();
    if ep.rank() == 1 {
        say(&ep, u64::from(std::process::id()), 0);
        loop {
            // A program that computes: only its helper answers.
            std::thread::sleep(Duration::from_secs(1000));
        }
    }
    let dead = Arc::new(AtomicBool::new(false));
    let log = Arc::clone(&dead);
    ep.on_error(move |_, event| {
        let wanted = Event::PeerDead {
            rank: 1,
            why: Death::Ended,
            lost: 0,
        };
        assert_eq!(*event, wanted);
        log.store(true, Ordering::Relaxed);
    })
    .unwrap();
    ep.wait_until(|| got.load(Ordering::Relaxed) != 0).unwrap();
    let victim = got.load(Ordering::Relaxed) as i32;
    // SAFETY: system calls without memory.
    let launcher = unsafe { getppid() };
    // SAFETY: as above; `Stopped` lets it go on.
    assert_eq!(unsafe { kill(launcher, SIGSTOP) }, 0);
    let stopped = Stopped(launcher);
    // SAFETY: as above.
    assert_eq!(unsafe { kill(victim, SIGKILL) }, 0);
    let ended = WaitError::PeerDead {
        rank: 1,
        why: Death::Ended,
    };
    // Whichever comes first, the handler or the end of the wait. By the process's
    // descriptor: silence would be another reason.
    let waited = ep.wait_timeout(PATIENCE, || dead.load(Ordering::Relaxed));
    assert!(waited.is_ok() || waited == Err(ended), "{waited:?}");
    drop(stopped);
    let refused = ep.try_send(1, 1, b"anybody?");
    assert!(matches!(
        refused,
        Err(SendError::PeerDead {
            rank: 1,
            why: Death::Ended
        })
    ));
    ep.close().unwrap();
}
