//! Jobs whose hosts do not all reach each other: who is left agrees who is
//! dead. Needs root.

mod common;

use std::net::TcpListener;

use common::pmi::PmiServer;
use common::{Said, TestLab, finish, none_left, portolan, probe, read_until, say, start};

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

#[test]
fn one_side_of_a_cut_leaves_and_all_others_agree() {
    let options = ["--on-death", "notify", "--link", "udp"];
    let said = job("t-part-tell", "3", ("h0", "h1"), "8", &options).expect(1);
    assert_eq!(known(&said), [0, 2].map(|rank| (rank, "[1]".to_owned())));
    said.complains(&["host h1 is cut off: packets between it and h0 do not arrive"]);
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

/// Three ranks on three hosts, which a PMI server on a fourth joins; their
/// agents decide.
#[test]
fn under_another_launcher_the_agents_end_one_side() {
    let lab = TestLab::up(TestLab::own("t-part-pmi"), "4");
    let at = lab.address(3, "ipv4");
    let listener = lab.within("h3", || TcpListener::bind((at, 0)));
    let server = PmiServer::on(listener.unwrap(), 3);
    let (mark, program) = ("t-part-pmi", together());
    let mut all = [0, 1, 2].map(|rank| {
        let host = format!("h{rank}");
        let mut command = portolan(&["lab", "exec", lab.0, &host, "--", &program, "9"]);
        command.env("PORTOLAN_AGENT", env!("CARGO_BIN_EXE_portolan"));
        server.spawn(rank, mark, &mut command)
    });
    for child in &mut all {
        read_until(child, "all are here", 1);
    }
    cut(&lab, "h0", "h1", "100");
    let [first, leaver, third] = all.map(finish);
    assert_ne!(leaver.code, 0, "{leaver:#?}");
    assert!(!leaver.out.contains("knows dead"), "{leaver:#?}");
    for said in [first, third] {
        let said = said.expect(0);
        assert!(said.out.contains("knows dead [1], met"), "{said:#?}");
    }
    none_left(mark);
}
