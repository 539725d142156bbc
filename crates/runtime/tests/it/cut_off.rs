//! Packets that the kernel refuses here: whoever they were for is not said to
//! be silent.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{By, config, job, opening, peer, run};
use portolan_runtime::{Binding, Config, Death, Event, Failure, Space};

/// Says to a process of this program which scene it is to play.
const SCENE: &str = "PORTOLAN_TEST_CUT_OFF";

/// Rank 0, which knows of a rank 1 that it cannot send to.
fn without_a_way() -> Space {
    let mut config = config();
    config.proto.silence_ns = 20_000_000;
    config.proto.connect_ns = 40_000_000;
    let [zero, one] = [0, 1].map(|rank| opening(By::Udp, rank, &config));
    let mut peers = [peer(&zero, None), peer(&one, None)];
    // The socket has a loopback address: nothing leaves from there for another
    // host. That needs no privilege, unlike an interface that is down.
    peers[1].address.ip = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
    zero.finish(&peers, None, None).unwrap()
}

#[test]
fn who_cannot_be_sent_to_is_cut_off_and_the_error_is_named() {
    let zero = without_a_way();
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    zero.on_error(move |_, event| log.lock().unwrap().push(*event))
        .unwrap();
    zero.try_send(1, 1, b"data").unwrap();
    run(&[&zero], || told.lock().unwrap().len() == 2);
    let [
        Event::PeerSilent {
            rank: 1,
            failure: Some(failure),
        },
        Event::PeerDead {
            rank: 1,
            why,
            lost: 0,
        },
    ] = told.lock().unwrap()[..]
    else {
        panic!("{:?}", told.lock().unwrap());
    };
    assert_eq!(why, Death::CutOff(failure));
    // `EINVAL`, or without a route for it `ENETUNREACH`.
    assert!(
        matches!(failure, Failure::Send(22 | 101)),
        "{failure:?} is not what the kernel says"
    );
    let text = why.to_string();
    assert!(text.starts_with("packets to it cannot be sent: "), "{text}");
    assert!(text.contains("(os error "), "{text}");
    assert!(zero.counters().unwrap().tx_failed > 0);
}

/// Three ranks of which the first two have met.
fn met() -> [Space; 3] {
    let mut config: Config = config();
    config.proto.silence_ns = 300_000_000;
    config.proto.connect_ns = 600_000_000;
    let all: [Space; 3] = job(By::Udp, 3, &config).try_into().unwrap();
    let came = crate::common::Count::default();
    for endpoint in &all {
        let log = came.clone();
        endpoint
            .bind(1, Binding::to(move |_, _| log.add()))
            .unwrap();
    }
    all[0].try_send(1, 1, b"data").unwrap();
    all[1].try_send(0, 1, b"data").unwrap();
    run(&[&all[0], &all[1]], || came.get() == 2);
    all
}

/// The kernel lets this thread read no packet from now on.
#[cfg(target_arch = "x86_64")]
fn grow_deaf() {
    use portolan_sys::raw::{number, syscall};

    #[repr(C)]
    struct Instruction {
        code: u16,
        yes: u8,
        no: u8,
        value: u32,
    }
    #[repr(C)]
    struct Program {
        len: u16,
        code: *const Instruction,
    }
    const SECCOMP: usize = 317;
    const SET_MODE_FILTER: usize = 1;
    const LOAD: u16 = 0x20;
    const EQUALS: u16 = 0x15;
    const ANSWER: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    let calls = [number::RECVFROM, number::RECVMSG, number::RECVMMSG];
    let step = |code, yes, value| Instruction {
        code,
        yes,
        no: 0,
        value,
    };
    let mut code = vec![step(LOAD, 0, 0)];
    for (at, call) in calls.iter().enumerate() {
        code.push(step(EQUALS, (calls.len() - at) as u8, *call as u32));
    }
    code.extend([step(ANSWER, 0, ALLOW), step(ANSWER, 0, EPERM)]);
    let program = Program {
        len: code.len() as u16,
        code: code.as_ptr(),
    };
    rustix::thread::set_no_new_privs(true).unwrap();
    let arguments = [SET_MODE_FILTER, 0, (&raw const program).addr(), 0, 0, 0];
    // SAFETY: the kernel reads the program and its instructions, which are there.
    unsafe { syscall(SECCOMP, arguments) }.unwrap();
}

/// Who was met before is dead, and who was not is said to be silent first, both
/// for the reason that the kernel names.
#[test]
#[cfg(target_arch = "x86_64")]
fn who_cannot_receive_gives_nobody_up_for_being_silent() {
    let scene = || {
        let [zero, one, _two] = met();
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        zero.on_error(move |_, event| log.lock().unwrap().push(*event))
            .unwrap();
        grow_deaf();
        zero.try_send(1, 1, b"data").unwrap();
        zero.try_send(2, 1, b"data").unwrap();
        run(&[&zero, &one], || told.lock().unwrap().len() == 3);
        let failure = Failure::Receive(1);
        let why = Death::CutOff(failure);
        let told = told.lock().unwrap();
        let of = |rank: u32| {
            let is_of = |event: &&Event| match event {
                Event::PeerSilent { rank: it, .. } | Event::PeerDead { rank: it, .. } => {
                    *it == rank
                }
                _ => panic!("{event:?}"),
            };
            told.iter().filter(is_of).copied().collect::<Vec<_>>()
        };
        let silent = Event::PeerSilent {
            rank: 2,
            failure: Some(failure),
        };
        assert_eq!(
            of(1),
            [Event::PeerDead {
                rank: 1,
                why,
                lost: 0
            }]
        );
        assert_eq!(
            of(2),
            [
                silent,
                Event::PeerDead {
                    rank: 2,
                    why,
                    lost: 0
                }
            ]
        );
        let text = why.to_string();
        assert!(
            text.starts_with("packets cannot be received here: "),
            "{text}"
        );
        assert!(text.contains("(os error 1)"), "{text}");
    };
    // The filter lasts as long as its thread.
    thread::scope(|s| s.spawn(scene).join()).unwrap();
}

/// What a process says that hears of no event, in a scene of its own.
fn said(test: &str, scene: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own)
        .args([test, "--exact", "--nocapture"])
        .env(SCENE, scene)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

/// A program that does not listen would seem to hang.
#[test]
fn without_an_error_handler_a_line_names_the_error() {
    let name = "cut_off::without_an_error_handler_a_line_names_the_error";
    let given_up = |zero: &Space, rank| {
        zero.try_send(rank, 1, b"data").unwrap();
        run(&[zero], || zero.death(rank).unwrap().is_some());
    };
    match std::env::var(SCENE).as_deref() {
        Ok("send") => return given_up(&without_a_way(), 1),
        #[cfg(target_arch = "x86_64")]
        Ok("receive") => {
            let scene = || {
                let [zero, _one, _two] = met();
                grow_deaf();
                given_up(&zero, 2);
            };
            return thread::scope(|s| s.spawn(scene).join()).unwrap();
        }
        _ => {}
    }
    let line = |text: &str, start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let silent = line(
        &said(name, "send"),
        "portolan: rank 0: no answer from rank 1: ",
    );
    let (_, error) = silent.split_once("packets to it cannot be sent: ").unwrap();
    assert!(error.contains("(os error "), "{silent}");
    assert!(error.ends_with("; it is still tried"), "{silent}");
    if cfg!(target_arch = "x86_64") {
        let text = said(name, "receive");
        let at_once = line(&text, "portolan: rank 0: packets cannot be received here: ");
        assert!(at_once.contains("(os error 1). Does a filter"), "{at_once}");
        let silent = line(&text, "portolan: rank 0: no answer from rank 2: ");
        let end = "packets cannot be received here: Operation not permitted (os error 1); it is \
                   still tried";
        assert!(silent.ends_with(end), "{silent}");
    }
}
