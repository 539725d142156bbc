//! Another implementation of the protocol, written from `docs/protocol.md`
//! alone (`interop/peer.py`), and a real rank exchange messages over UDP, while
//! packets are lost, repeated and delayed in both directions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::pmi::PmiServer;
use crate::common::{CLOSES_LATE, LIMIT, Said, finish, none_left, probe};

/// Debian's, whose packages `make test` installs.
const PYTHON: &str = "/usr/bin/python3";
const CRYPTOGRAPHY: &str = "/usr/lib/python3/dist-packages/cryptography";
const AGENT: &str = env!("CARGO_BIN_EXE_portolan");
const MESSAGES: &str = "200";
/// No process is taken for dead because it does not get the processor.
const PATIENT: [(&str, &str); 3] = [
    CLOSES_LATE,
    ("PORTOLAN_SILENCE_MS", "60000"),
    ("PORTOLAN_JOIN_MS", "110000"),
];

fn python(script: &str) -> Command {
    for (path, package) in [(PYTHON, "python3"), (CRYPTOGRAPHY, "python3-cryptography")] {
        assert!(
            Path::new(path).exists(),
            "{path} is missing: install {package}, as `make test` does"
        );
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop");
    let mut command = Command::new("timeout");
    command.args([LIMIT, PYTHON, "-B"]).arg(folder.join(script));
    command
}

/// An exchange between the two.
struct Exchange<'a> {
    mark: &'a str,
    /// Of the other implementation.
    rank: usize,
    peer: &'a [&'a str],
    /// Settings and words of the real rank.
    settings: &'a [(&'a str, &'a str)],
    words: &'a [&'a str],
}

impl Exchange<'_> {
    /// What the real rank and the other implementation said in the end.
    fn run(&self) -> [Said; 2] {
        let server = PmiServer::start(2);
        let mut real = Command::new("timeout");
        real.args([LIMIT, &probe().replace("probe", "interop"), MESSAGES])
            .args(self.words)
            .envs(PATIENT)
            .envs([
                ("PORTOLAN_LINK", "udp"),
                ("PORTOLAN_ADDRESS", "127.0.0.1"),
                ("PORTOLAN_AGENT", ""),
                ("PORTOLAN_TUNED", ""),
                ("RUST_BACKTRACE", "0"),
            ])
            .envs(self.settings.iter().copied());
        let mut peer = python("exchange.py");
        let release = env!("CARGO_PKG_VERSION");
        peer.args(["--release", release, "--messages", MESSAGES])
            .args(self.peer);
        let real = server.spawn(1 - self.rank, self.mark, &mut real);
        let peer = server.spawn(self.rank, self.mark, &mut peer);
        let said = [real, peer].map(finish);
        none_left(self.mark);
        said
    }

    fn succeeds(&self) {
        let [real, peer] = self.run();
        let all = format!("all {MESSAGES} messages came, each once and as it was sent");
        for said in [&real, &peer] {
            assert!(
                said.code == 0 && said.out.contains(&all),
                "{real:#?} {peer:#?}"
            );
        }
        for way in ["out", "in"] {
            let lines = peer.out.lines();
            let line = lines.clone().find_map(|line| line.strip_prefix(way));
            let words: Vec<&str> = line.unwrap().split_whitespace().collect();
            for (what, count) in ["lost", "repeated", "delayed"].iter().zip(words.chunks(2)) {
                assert_eq!(*what, count[0]);
                assert_ne!(count[1], "0", "nothing was {what}: {peer:#?}");
            }
        }
    }
}

/// Checks P3.2, P3.3, P5.2.
#[test]
fn messages_come_once_and_unchanged_over_a_rough_network() {
    for (seed, faults, rank, agent) in [
        ("1", "10", 1, ""),
        ("2", "20", 0, ""),
        ("3", "30", 1, ""),
        // Then its address has 34 bytes more.
        ("4", "10", 1, AGENT),
    ] {
        Exchange {
            mark: &format!("interop-{seed}"),
            rank,
            peer: &["--seed", seed, "--faults", faults],
            settings: &[("PORTOLAN_AGENT", agent)],
            words: &[],
        }
        .succeeds();
    }
}

#[test]
fn other_suites_and_a_secret_of_the_job_are_the_same_to_both() {
    let secret = PathBuf::from(format!("/tmp/portolan-interop-{}", std::process::id()));
    fs::write(&secret, "sesame".repeat(20)).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let file = secret.to_str().unwrap();
    let [chacha, gcm] = ["chacha20-poly1305", "aes-128-gcm"];
    for (seed, peer, setting) in [
        ("5", ["--suite", chacha], ("PORTOLAN_SUITE", chacha)),
        ("8", ["--suite", gcm], ("PORTOLAN_SUITE", gcm)),
        ("6", ["--suite", "none"], ("PORTOLAN_SECURITY", "none")),
        (
            "7",
            ["--secret-file", file],
            ("PORTOLAN_JOB_SECRET_FILE", file),
        ),
    ] {
        Exchange {
            mark: &format!("interop-{seed}"),
            rank: 1,
            peer: &[&["--seed", seed], &peer[..]].concat(),
            settings: &[setting],
            words: &[],
        }
        .succeeds();
    }
    fs::remove_file(&secret).unwrap();
}

/// That the exchange can fail: one message of either side is broken.
#[test]
fn a_message_that_is_lost_repeated_or_changed_is_noticed() {
    let exchange = |how: &str, peer: &[&str], words: &[&str]| {
        Exchange {
            mark: &format!("interop-{how}"),
            rank: 1,
            peer,
            settings: &[],
            words,
        }
        .run()
    };
    for how in ["lose", "repeat", "change"] {
        let noticed = |said: &Said, by: &str| {
            let says = format!("{by}not message 4");
            assert!(
                said.code == 1 && said.err.starts_with(&says),
                "{how} {said:#?}"
            );
        };
        let [real, _] = exchange(how, &["--spoil", how], &[]);
        noticed(&real, "interop: ");
        let [_, peer] = exchange(how, &[], &[how]);
        noticed(&peer, "");
    }
}

#[test]
fn the_vectors_are_what_the_other_implementation_makes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol-vectors.txt");
    let said = Said::from(python("vectors.py").arg(file).output().unwrap()).expect(0);
    assert!(said.out.contains("values are as"), "{said:#?}");
}
