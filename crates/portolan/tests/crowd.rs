//! Processes without a launcher that come and go, many at a time, a third of them killed: each
//! message arrives once, and nothing of them stays. `CROWD` says how many come
//! (`make soak`: 1,000).

use std::collections::BTreeMap;
use std::env;
use std::fs::{read_dir, read_to_string};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use portolan::{Binding, Config, Endpoint, Priority, SendOptions};

const PORT: u16 = 7;
const CHILD: &str = "PORTOLAN_TEST_CROWD";
/// How many come if nothing else is said, and at a time.
const COMING: u64 = 64;
const AT_ONCE: usize = 16;
/// What each says, and is answered.
const MESSAGES: u64 = 20;
/// Of the hub, kB: what may be taken for good once some have come.
const GROWTH_KB: u64 = 16 << 10;

fn open(link: &str) -> Endpoint {
    let config = Config::default().set("interface", "lo").set("link", link);
    Endpoint::open_standalone(config).unwrap()
}

/// Not a test: one that comes.
#[test]
fn as_child() {
    let Ok(told) = env::var(CHILD) else { return };
    let mut words = told.split(' ');
    let (number, link) = (words.next().unwrap().parse::<u64>().unwrap(), words.next());
    let address: Vec<u8> = words.map(|byte| byte.parse().unwrap()).collect();
    let ep = open(link.unwrap());
    let answers = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answers);
    ep.bind(
        PORT,
        Binding::to(move |_, m| {
            assert_eq!(m.payload, number.to_le_bytes());
            count.fetch_add(1, Ordering::Relaxed);
        }),
    )
    .unwrap();
    let hub = ep.add_peer(&address.try_into().unwrap()).unwrap();
    for n in 0..MESSAGES {
        let bytes = [number, n].map(u64::to_le_bytes).concat();
        ep.send(hub, PORT, &bytes).unwrap();
        ep.wait_until(|| answers.load(Ordering::Relaxed) > n)
            .unwrap();
    }
    ep.close().unwrap();
}

struct Coming {
    number: u64,
    process: Child,
    /// When it is killed.
    killed_at: Option<Instant>,
}

fn start(number: u64, link: &str, hub: &Endpoint) -> Coming {
    let address: Vec<String> = hub.address().iter().map(u8::to_string).collect();
    let process = Command::new(env::current_exe().unwrap())
        .args(["--exact", "as_child"])
        .env(CHILD, format!("{number} {link} {}", address.join(" ")))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // At any of its steps.
    let after = Duration::from_millis(number * 7 % 40);
    let killed_at = number.is_multiple_of(3).then(|| Instant::now() + after);
    Coming {
        number,
        process,
        killed_at,
    }
}

fn descriptors() -> usize {
    read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kb() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let kb = line.unwrap().split_whitespace().nth(1).unwrap();
    kb.parse().unwrap()
}

fn come_and_go(link: &str) {
    // Descriptors and memory are counted of the whole process.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let coming = env::var("CROWD").map_or(COMING, |n| n.parse().unwrap());
    let hub = open(link);
    let heard: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let to = Arc::clone(&heard);
    let binding = Binding::to(move |context, m| {
        let word = |at: usize| u64::from_le_bytes(m.payload[at..at + 8].try_into().unwrap());
        let (number, n) = (word(0), word(8));
        let mut heard = to.lock().unwrap();
        let next = heard.entry(number).or_default();
        assert_eq!(*next, n, "of {number}: none is lost, none comes twice");
        *next += 1;
        let options = SendOptions {
            priority: Priority::Reply,
            ..SendOptions::default()
        };
        // One that was killed hears nothing any more.
        let _ = context.send_with(m.from, PORT, &options, &number.to_le_bytes());
    });
    hub.bind(PORT, binding).unwrap();
    let (mut here, mut next, mut done): (Vec<Coming>, _, _) = (Vec::new(), 0, 0);
    let mut after_some = None;
    let end = Instant::now() + Duration::from_secs(120 + coming);
    while done < coming {
        assert!(
            Instant::now() < end,
            "{done} of {coming} have come and gone"
        );
        while next < coming && here.len() < AT_ONCE {
            here.push(start(next, link, &hub));
            next += 1;
        }
        hub.progress().unwrap();
        here.retain_mut(|it| {
            if it.killed_at.is_some_and(|at| at <= Instant::now()) {
                let _ = it.process.kill();
            }
            let Some(status) = it.process.try_wait().unwrap() else {
                return true;
            };
            let said = heard.lock().unwrap().get(&it.number).copied();
            if it.killed_at.is_none() {
                assert!(status.success(), "{}: {status}", it.number);
                assert_eq!(said, Some(MESSAGES), "of {}", it.number);
            }
            done += 1;
            false
        });
        if done >= coming / 4 && after_some.is_none() {
            after_some = Some((descriptors(), resident_kb()));
        }
    }
    let (some_descriptors, some_kb) = after_some.unwrap();
    // Shared memory is given back within a look or two.
    while descriptors() > some_descriptors {
        assert!(Instant::now() < end, "descriptors that stay");
        hub.progress().unwrap();
    }
    let kb = resident_kb();
    assert!(kb < some_kb + GROWTH_KB, "{kb} kB after {some_kb} kB");
}

#[test]
fn by_shared_memory() {
    come_and_go("auto");
}

#[test]
fn by_udp() {
    come_and_go("udp");
}
