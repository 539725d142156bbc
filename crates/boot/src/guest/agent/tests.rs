//! Agents in threads of this process, which is the first watched rank of each; the
//! others are processes that sleep.

use std::net::Ipv4Addr;
use std::process::Child;

use super::call::{Called, Present, meet};
use super::*;
use crate::codec::decode;
use crate::job::fill_random;
use crate::message::{GaveUp, ToLauncher};
use portolan_sys::socket;
use rustix::net::socketpair;

/// An agent for this process as one rank and a sleeping one as the next.
struct Here {
    control: OwnedFd,
    agent: Option<Present>,
    sleeper: Child,
    card: HostCard,
}

impl Here {
    fn start(host: u16, mix: Option<[u8; 32]>) -> Self {
        let mut command = std::process::Command::new("sleep");
        let sleeper = command.arg("100").spawn().unwrap();
        let first = 2 * u32::from(host);
        // Hosts share this machine's names.
        let job_id = u64::from(std::process::id()) << 32 | rand_word();
        let brief = Brief {
            versions: Versions::ours(),
            job_id,
            host,
            watched: vec![(first, std::process::id()), (first + 1, sleeper.id())],
            has_mix: mix.is_some(),
            silence: Duration::from_secs(1),
        };
        let (ours, theirs) = stream();
        std::thread::spawn(move || serve_guests(theirs));
        let agent = Called::told(ours, &brief, mix.as_ref()).wait().unwrap();
        let (control, pulse) = meet(job_id, 0).unwrap();
        assert!(pulse.is_some());
        let card = HostCard {
            host,
            ip: Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
            port: agent.port,
            key: agent.key,
            ranks: vec![first, first + 1],
        };
        Self {
            control,
            agent: Some(agent),
            sleeper,
            card,
        }
    }

    fn introduce(&mut self, others: &[HostCard]) {
        let agent = self.agent.take().unwrap();
        agent.introduce(others).unwrap();
    }

    /// Returns the next message, except those that report nothing new.
    fn hears(&self, limit: Duration) -> Option<ToRank> {
        call::wait(&self.control, Instant::now() + limit).ok()?;
        let got = socket::receive(self.control.as_fd(), false).unwrap()?;
        match decode(&got.bytes).expect("an agent says only so much") {
            ToRank::Doubted { .. } => self.hears(limit),
            said => Some(said),
        }
    }

    fn hears_of_death(&self) -> (u32, How) {
        match self.hears(TIMEOUT) {
            Some(ToRank::Died { rank, how }) => (rank, how),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}

fn stream() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

fn rand_word() -> u64 {
    let mut bytes = [0; 4];
    fill_random(&mut bytes).unwrap();
    u32::from_le_bytes(bytes).into()
}

const SOON: Duration = Duration::from_millis(300);
/// Ends a test that would hang: nothing is measured by it.
const TIMEOUT: Duration = Duration::from_secs(120);

#[test]
fn a_death_is_told_here_and_on_other_hosts() {
    let (mut a, mut b) = (Here::start(0, Some([3; 32])), Here::start(1, Some([3; 32])));
    a.introduce(&[b.card.clone()]);
    b.introduce(&[a.card.clone()]);
    a.sleeper.kill().unwrap();
    assert_eq!(a.hears_of_death(), (1, How::Killed(9)));
    assert_eq!(b.hears_of_death(), (1, How::Killed(9)));
    // A rank that leaves is not reported dead.
    let leave = crate::message::ToLauncher::Leave.encode();
    socket::send(b.control.as_fd(), &leave, &[], true).unwrap();
    b.sleeper.kill().unwrap();
    assert_eq!(a.hears_of_death(), (3, How::Killed(9)));
    assert_eq!(b.hears_of_death(), (3, How::Killed(9)));
    assert!(a.hears(SOON).is_none() && b.hears(SOON).is_none());
}

#[test]
fn what_ended_before_the_others_were_known_is_told_too() {
    let (mut a, mut b) = (Here::start(0, None), Here::start(1, None));
    a.sleeper.kill().unwrap();
    assert_eq!(a.hears_of_death(), (1, How::Killed(9)));
    a.introduce(&[b.card.clone()]);
    b.introduce(&[a.card.clone()]);
    assert_eq!(b.hears_of_death(), (1, How::Killed(9)));
}

#[test]
fn the_stopped_are_vouched_for() {
    let (mut a, mut b) = (Here::start(0, None), Here::start(1, None));
    a.introduce(&[b.card.clone()]);
    b.introduce(&[a.card.clone()]);
    let pid = rustix::process::Pid::from_child(&a.sleeper);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    for at in [&a, &b, &b] {
        let said = at.hears(TIMEOUT);
        assert!(
            matches!(said, Some(ToRank::Stopped { rank: 1 })),
            "{said:?}"
        );
    }
}

#[test]
fn who_is_given_up_for_corrupt_memory_hears_of_it() {
    let a = Here::start(0, None);
    // Only this process is connected: it names itself, and a rank elsewhere.
    for why in [GaveUp::Silent, GaveUp::Corrupt] {
        let ranks = vec![(9, 0), (0, 0)];
        let said = ToLauncher::GaveUp { ranks, why }.encode();
        socket::send(a.control.as_fd(), &said, &[], true).unwrap();
    }
    let heard = a.hears(Duration::from_secs(30));
    assert!(
        matches!(heard, Some(ToRank::GivenUp { by: 0 })),
        "{heard:?}"
    );
}

#[test]
fn who_is_given_up_for_refused_packets_is_not_killed() {
    let a = Here::start(0, None);
    let say = |why| {
        let ranks = vec![(1, 0), (0, 0)];
        let said = ToLauncher::GaveUp { ranks, why }.encode();
        socket::send(a.control.as_fd(), &said, &[], true).unwrap();
    };
    say(GaveUp::NotSent { errno: 101 });
    say(GaveUp::NotReceived { errno: 1 });
    // This is answered, so the reports before it have been received.
    say(GaveUp::Corrupt);
    let heard = a.hears(Duration::from_secs(30));
    assert!(
        matches!(heard, Some(ToRank::GivenUp { by: 0 })),
        "{heard:?}"
    );
    // An agent kills by another signal, and would have been first.
    let pid = rustix::process::Pid::from_child(&a.sleeper);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(a.hears_of_death(), (1, How::Killed(15)));
}

#[test]
fn the_ranks_of_a_silent_host_are_dead() {
    let mut a = Here::start(0, None);
    // This test is the other host's agent.
    let private = [9; 32];
    let network = udp(None).unwrap();
    let port = SocketAddr::try_from(getsockname(&network).unwrap()).unwrap();
    let card = HostCard {
        host: 1,
        ip: a.card.ip,
        port: port.port(),
        key: public_key(&private),
        ranks: vec![7, 8],
    };
    a.introduce(&[card]);
    assert!(a.hears(2 * SOON).is_none(), "it was never heard");
    let own = Identity {
        host: 1,
        private: &private,
        public: public_key(&private),
        mix: None,
    };
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), a.card.port);
    let start = Instant::now();
    let mut events = EventLog::new(&own, vec![a.card.clone()], Duration::from_secs(1), start);
    let (_, bytes) = events.next(start).unwrap();
    connect(&network, &to).unwrap();
    send(&network, &bytes, SendFlags::empty()).unwrap();
    assert_eq!(a.hears_of_death(), (7, How::Lost));
    assert_eq!(a.hears_of_death(), (8, How::Lost));
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn an_agent_of_another_version_says_so() {
    let (ours, theirs) = stream();
    let served = std::thread::spawn(move || serve_guests(theirs));
    let mut versions = Versions::ours();
    versions.boot += 1;
    let brief = Brief {
        versions,
        job_id: rand_word(),
        host: 0,
        watched: Vec::new(),
        has_mix: false,
        silence: Duration::from_secs(1),
    };
    let why = Called::told(ours, &brief, None).wait().unwrap_err();
    assert!(why.contains("was built with Portolan"), "{why}");
    assert!(served.join().unwrap().is_err());
}

#[test]
fn nobody_else_is_let_in() {
    let job_id = rand_word();
    let (ours, theirs) = stream();
    let mut sleeper = std::process::Command::new("sleep")
        .arg("100")
        .spawn()
        .unwrap();
    let served = std::thread::spawn(move || serve_guests(theirs));
    let brief = Brief {
        versions: Versions::ours(),
        job_id,
        host: 0,
        watched: vec![(0, sleeper.id())],
        has_mix: false,
        silence: Duration::from_secs(1),
    };
    let agent = Called::told(ours, &brief, None).wait().unwrap();
    let why = meet(job_id, 0).unwrap_err();
    assert!(why.contains("does not know this process"), "{why}");
    // The agent ends when all ranks have.
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    served.join().unwrap().unwrap();
    // A process that another test is just starting holds all descriptors that
    // are open here until its exec.
    let nobody_is_reached = || {
        let gone = meet(job_id, 0).unwrap_err().contains("reaching");
        std::thread::sleep(Duration::from_millis(if gone { 0 } else { 10 }));
        gone
    };
    let limit = Instant::now() + TIMEOUT;
    while !nobody_is_reached() {
        assert!(Instant::now() < limit, "somebody is reached");
    }
    drop(agent);
}
