//! Jobs whose hosts do not all reach each other: who is left agrees who is
//! dead. Needs root.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, iter};

use crate::common::pmi::PmiServer;
use crate::common::{
    PATIENCE, Rounds, Said, TestLab, finish, marked, none_left, portolan, probe, read_until, say,
    signal, start,
};
use rustix::process::Signal;

/// Loses all packets from one host to another, or takes that back.
fn cut(lab: &TestLab, from: &str, to: &str, percent: &str) {
    let words = ["--loss", percent, "--from", from, "--to", to];
    say(&[&["lab", "impair", lab.0], &words[..]].concat()).expect(0);
}

fn together() -> String {
    probe().replace("probe", "together")
}

/// What each rank that has come to its end knows: its number, who is dead.
fn known(said: &Said) -> Vec<(u32, String)> {
    let line = |line: &str| {
        let (_, rest) = line.split_once("] rank ")?;
        let (rank, rest) = rest.split_once(" knows dead ")?;
        let (dead, _) = rest.split_once(", met ")?;
        Some((rank.parse().unwrap(), dead.to_owned()))
    };
    let mut known: Vec<_> = said.out.lines().filter_map(line).collect();
    known.sort_unstable();
    known
}

/// A job of a rank on each of so many hosts, which goes on until something. Of
/// its hosts `from` no longer reaches `to` after its beginning.
fn job(name: &str, hosts: &str, (from, to): (&str, &str), until: &str, options: &[&str]) -> Said {
    let lab = TestLab::up(TestLab::own(name), hosts);
    let program = together();
    let words = [
        &["run", "-n", hosts, "--lab", lab.0],
        options,
        &["--", &program, until],
    ]
    .concat();
    let mut child = start(name, &words);
    read_until(&mut child, "all are here", hosts.parse().unwrap());
    cut(&lab, from, to, "100");
    let said = finish(child);
    none_left(name);
    said
}

/// How long a call may wait for one that it hears and that does not hear it, twice
/// `silence_ms`, until it is decided who leaves, a second later, and that is told.
const CALL_MAX: Duration = Duration::from_secs(8);

/// The longest call of a rank that has come to its end.
fn longest(said: &Said) -> Duration {
    let of = |line: &str| line.rsplit_once(", longest ")?.1.parse().ok();
    let all = said.out.lines().filter_map(of);
    Duration::from_millis(all.max().unwrap())
}

/// What lasts longer where others have the processors is tried again.
#[test]
fn one_side_of_a_cut_leaves_and_all_others_agree() {
    let options = ["--on-death", "notify", "--link", "udp"];
    let begun = Instant::now();
    loop {
        let said = job("t-part-tell", "3", ("h0", "h1"), "8", &options).expect(1);
        assert_eq!(known(&said), [0, 2].map(|rank| (rank, "[1]".to_owned())));
        let longest = longest(&said);
        said.complains(&["host h1 is cut off: packets between it and h0 do not arrive"]);
        if longest <= CALL_MAX {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "calls take {longest:?}");
    }
}

#[test]
fn a_job_whose_hosts_do_not_reach_each_other_ends() {
    let said = job("t-part-end", "3", ("h0", "h1"), "8", &[]).expect(1);
    said.complains(&[
        "host h1 is cut off",
        "ending the job: not all hosts reach each other (h1)",
    ]);
}

/// Its ranks end at once, each with 0, when one does not hear the other.
#[test]
fn a_job_that_ends_before_it_is_decided_who_leaves_has_failed() {
    let said = job("t-part-soon", "2", ("h0", "h1"), "death", &[]).expect(1);
    said.complains(&["between", "h0", "do not arrive"]);
}

/// Those that do not hear each other have ended with 0, each for itself; the
/// third would wait for ever.
#[test]
fn a_job_ends_whose_ranks_gave_up_and_left() {
    let said = job("t-part-left", "3", ("h1", "h2"), "silence", &[]).expect(1);
    said.complains(&["ending the job: packets between hosts", "do not arrive"]);
}

/// Two that do not hear each other have ended, and the third goes on. The report
/// does not wait for its end, and says of no job that it is ended.
#[test]
fn a_job_that_goes_on_reports_at_once_that_ranks_gave_up_and_left() {
    let name = "t-part-note";
    let end = Rounds::new(name);
    let lab = TestLab::up(TestLab::own(name), "3");
    let program = together();
    // It ends where nothing is told.
    let bound = ["--timeout", "120"];
    let notify = ["run", "--on-death", "notify", "--lab", lab.0];
    let leaves = ["-n", "1", "--", &program, "silence", ":"];
    let stays = ["-n", "1", "--", &program, &end.file];
    let mut child = start(
        name,
        &[&notify[..], &bound, &leaves, &leaves, &stays].concat(),
    );
    read_until(&mut child, "all are here", 3);
    cut(&lab, "h0", "h1", "100");
    let mut told = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let cut = told.find(|line| line.as_ref().unwrap().contains("do not arrive"));
    let cut = cut.expect("nothing was told of the cut").unwrap();
    assert!(cut.starts_with("portolan: packets between hosts"), "{cut}");
    assert!(cut.contains("got no core"), "{cut}");
    fs::write(&end.file, "").unwrap();
    let rest: Vec<String> = told.map(Result::unwrap).collect();
    let again = |line: &String| line.contains("do not arrive") || line.contains("ending the job");
    assert!(!rest.iter().any(again), "{rest:#?}");
    finish(child).expect(1);
    none_left(name);
}

/// Ranks on as many hosts, each with what it goes on until, which a PMI server on
/// one more host joins: their agents decide.
struct Guests {
    lab: TestLab,
    mark: &'static str,
    _server: PmiServer,
    ranks: Vec<Child>,
}

impl Guests {
    fn start(mark: &'static str, until: &[&str], settings: &[(&str, &str)]) -> Self {
        let size = until.len();
        let lab = TestLab::up(TestLab::own(mark), &(size + 1).to_string());
        let at = lab.address(size, "ipv4");
        let listener = lab.within(&format!("h{size}"), || TcpListener::bind((at, 0)));
        let server = PmiServer::on(listener.unwrap(), size);
        let program = together();
        let each = until.iter().enumerate().map(|(rank, until)| {
            let host = format!("h{rank}");
            let mut command = portolan(&["lab", "exec", lab.0, &host, "--", &program, until]);
            command.env("PORTOLAN_AGENT", env!("CARGO_BIN_EXE_portolan"));
            command.envs(settings.iter().copied());
            server.spawn(rank, mark, &mut command)
        });
        let mut ranks: Vec<Child> = each.collect();
        for child in &mut ranks {
            read_until(child, "all are here", 1);
        }
        // Agents miss only whom they have heard, and speak twice a second.
        sleep(Duration::from_secs(3));
        Self {
            lab,
            mark,
            _server: server,
            ranks,
        }
    }

    /// The process of the agent of a host.
    fn agent(&self, host: &str) -> u32 {
        let is_agent = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(b"internal-agent")
        };
        let network = |path: String| fs::read_link(path).unwrap_or_default();
        let there = self
            .lab
            .within(host, || network("/proc/thread-self/ns/net".to_owned()));
        let is_there = |pid: &u32| network(format!("/proc/{pid}/ns/net")) == there;
        let all = marked(self.mark).into_iter();
        let agents: Vec<u32> = all.filter(is_agent).filter(is_there).collect();
        let [agent] = agents[..] else {
            panic!("{host}: {agents:?}");
        };
        agent
    }

    /// What they say in the end.
    fn finish(self) -> Vec<Said> {
        let said = self.ranks.into_iter().map(finish).collect();
        none_left(self.mark);
        said
    }
}

/// Those that go on end well, and know these dead.
fn goes_on(said: &Said, dead: &str) {
    assert_eq!(said.code, 0, "{said:#?}");
    let known = format!("knows dead {dead}, met");
    assert!(said.out.contains(&known), "{said:#?}");
}

/// Those that leave are ended.
fn leaves(said: &Said) {
    assert_ne!(said.code, 0, "{said:#?}");
    assert!(!said.out.contains("knows dead"), "{said:#?}");
}

#[test]
fn under_another_launcher_the_agents_end_one_side() {
    let guests = Guests::start("t-part-pmi", &["12"; 3], &[]);
    cut(&guests.lab, "h0", "h1", "100");
    let said = guests.finish();
    leaves(&said[1]);
    goes_on(&said[0], "[1]");
    goes_on(&said[2], "[1]");
}

/// Of two halves the one with the first host goes on.
#[test]
fn under_another_launcher_one_half_lives() {
    // Those that leave do not come to an end by themselves.
    let until = ["dead=2", "dead=2", "600", "600"];
    let guests = Guests::start("t-part-half", &until, &[]);
    let ip = |words: &str| {
        let mut words = words.split(' ');
        assert!(
            Command::new("ip")
                .args(&mut words)
                .status()
                .unwrap()
                .success()
        );
    };
    // The cables of two hosts lead to a switch of their own.
    guests.lab.within("sw", || {
        ip("link add half type bridge");
        ip("link set half up");
        ip("link set h2 master half");
        ip("link set h3 master half");
    });
    let said = guests.finish();
    said[..2].iter().for_each(|said| goes_on(said, "[2, 3]"));
    said[2..].iter().for_each(leaves);
}

/// Neither a cut that is over before `silence_ms` is, nor an agent that is silent
/// for longer, while ranks of its host are heard.
#[test]
fn under_another_launcher_who_is_heard_again_or_by_ranks_is_not_dead() {
    let end = Rounds::new("t-part-heal");
    let until: Vec<&str> = iter::repeat_n(&end.file[..], 3).collect();
    let silence = [("PORTOLAN_SILENCE_MS", "12000")];
    // After which agents give each other up.
    let limit = Duration::from_millis(12_000 * 5 / 6);
    let guests = Guests::start("t-part-heal", &until, &silence);
    let lose = |percent| {
        let words = [
            "lab",
            "impair",
            guests.lab.0,
            "--host",
            "h1",
            "--loss",
            percent,
        ];
        say(&words).expect(0);
    };
    lose("100");
    sleep(Duration::from_secs(2));
    lose("0");
    let agent = guests.agent("h1");
    signal(agent, Signal::STOP);
    sleep(limit + Duration::from_secs(2));
    signal(agent, Signal::CONT);
    fs::write(&end.file, "").unwrap();
    guests.finish().iter().for_each(|said| goes_on(said, "[]"));
}
