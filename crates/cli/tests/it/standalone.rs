//! The examples that need no launcher, as processes that come, go, and are killed; and what
//! they do with what somebody else sends them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::{Said, c_program, example, own_mark};
use portolan::{ADDRESS_BYTES, Config, Endpoint, SendOptions};

/// A program on this host alone; a peer that is silent for 5 s is dead.
fn command(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    command.envs([
        ("PORTOLAN_INTERFACE", "lo"),
        ("PORTOLAN_SILENCE_MS", "5000"),
    ]);
    command
}

/// Somebody who chats.
struct Person {
    process: Child,
    types: Option<ChildStdin>,
    reads: Receiver<String>,
    address: String,
}

impl Person {
    fn new(joins: &[&str]) -> Self {
        Self::of(&mut command(&example("chat"), joins))
    }

    fn of(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let types = process.stdin.take();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (tell, reads) = channel();
        std::thread::spawn(move || {
            out.lines()
                .map_while(Result::ok)
                .try_for_each(|it| tell.send(it))
        });
        let mut person = Self {
            process,
            types,
            reads,
            address: String::new(),
        };
        let first = person.hears("* chat ");
        person.address = first.rsplit(' ').next().unwrap().to_owned();
        person
    }

    fn says(&mut self, line: &str) {
        writeln!(self.types.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for a line with these words.
    fn hears(&self, words: &str) -> String {
        loop {
            let line = self.reads.recv_timeout(Duration::from_secs(60));
            let line = line.unwrap_or_else(|_| panic!("nothing says {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    fn leaves(mut self) {
        self.types = None;
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn people_chat_without_a_launcher() {
    let mut one = Person::new(&[]);
    let mut two = Person::new(&[&one.address]);
    one.hears("* 1 is here");
    let mut three = Person::new(&[&one.address, &two.address]);
    one.hears("* 2 is here");
    two.hears("* 2 is here");
    one.says("ahoy");
    two.hears("<1> ahoy");
    three.hears("<1> ahoy");
    three.says("aye");
    one.hears("<2> aye");
    two.hears("<2> aye");
    two.says("\u{1b}[31mred");
    one.hears("<1> \u{fffd}[31mred");
    three.hears("<2> \u{fffd}[31mred");

    // One leaves, one is killed: the last is told of both, and others may come.
    two.leaves();
    one.hears("* 1 is gone: ");
    three.process.kill().unwrap();
    one.says("still there?");
    one.hears("* 2 is gone: ");
    let mut four = Person::new(&[&one.address]);
    one.hears("is here");
    four.says("hello");
    one.hears("hello");
    one.says("bye");
    four.hears("<1> bye");
    four.leaves();
    one.leaves();
}

#[test]
fn the_event_log_tells_leavers_from_dead_and_names_no_ranks() {
    let mut command = command(&example("chat"), &[]);
    command.env("PORTOLAN_LOG", "info").stderr(Stdio::piped());
    let mut one = Person::of(&mut command);
    let two = Person::new(&[&one.address]);
    one.hears("* 1 is here");
    two.leaves();
    one.hears("* 1 is gone: ");
    let stderr = one.process.stderr.take().unwrap();
    one.leaves();
    let log = std::io::read_to_string(stderr).unwrap();
    assert!(
        log.contains("peer 1 has left: it closed its endpoint"),
        "{log}"
    );
    assert!(!log.contains("is dead") && !log.contains("rank "), "{log}");
}

#[test]
fn what_is_no_address_is_refused() {
    for wrong in ["", "12", "zz", &"0".repeat(128)] {
        let said = Said::from(command(&example("chat"), &[wrong]).output().unwrap());
        said.expect(1).complains(&["chat: ", "address"]);
    }
}

/// Runs clients of a server.
struct Clients {
    program: String,
    /// Where the server's address is.
    file: String,
}

impl Clients {
    fn run(&self, words: &[&str]) -> Said {
        let words = [&words[..1], &[&self.file], &words[1..]].concat();
        Said::from(command(&self.program, &words).output().unwrap())
    }
}

struct Server {
    process: Child,
    clients: Clients,
}

impl Server {
    fn new(name: &str) -> Self {
        let program = c_program("examples/c/kv.c");
        let file = format!("/tmp/portolan-{}", own_mark(name));
        let _ = fs::remove_file(&file);
        let mut process = command(&program, &["serve", &file]).spawn().unwrap();
        while !fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
            assert!(process.try_wait().unwrap().is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        let clients = Clients { program, file };
        Self { process, clients }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.clients.file);
    }
}

#[test]
fn clients_of_a_server_come_and_go() {
    let mut server = Server::new("kv");
    let put = |key: &str, value: &str| server.clients.run(&["put", key, value]);
    let get = |key: &str| server.clients.run(&["get", key]);
    get("a").expect(1).complains(&["no such key"]);
    for (key, value) in [("a", "1"), ("b", &"x".repeat(4000)), ("a", "three")] {
        put(key, value).expect(0);
        assert_eq!(get(key).expect(0).out, format!("{value}\n"));
    }
    put("c", "\u{1b}[2J").expect(0);
    assert_eq!(get("c").expect(0).out, "?[2J\n");
    put("", "x").expect(1);
    put(&"k".repeat(65), "x").expect(1);
    put("k", &"x".repeat(4001)).expect(1);

    // Somebody sends what no client does; the server goes on.
    let config = Config::default().set("interface", "lo");
    let stranger = Endpoint::open_standalone(config).unwrap();
    let hex = fs::read_to_string(&server.clients.file).unwrap();
    let digits = hex.trim().as_bytes().chunks(2);
    let bytes =
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap());
    let address: [u8; ADDRESS_BYTES] = bytes.collect::<Vec<_>>().try_into().unwrap();
    let there = stranger.add_peer(&address).unwrap();
    for (args, bytes) in [
        (&[][..], 0),
        (&[1, u64::MAX], 8),
        (&[1, 9], 8),
        (&[3, 1], 8),
        (&[2, 0], 8),
        (&[2, 64], 5000),
        (&[2, 1], 200_000),
    ] {
        let options = SendOptions {
            args,
            ..SendOptions::default()
        };
        stranger
            .send_with(there, 1, &options, &vec![b'z'; bytes])
            .unwrap();
        stranger.send(there, 9, b"nobody listens there").unwrap();
    }
    drop(stranger);
    assert_eq!(get("a").expect(0).out, "three\n");

    server.process.kill().unwrap();
    server.process.wait().unwrap();
    get("a").expect(1).complains(&["kv: "]);
}

#[test]
fn a_server_ends_when_it_is_told_to() {
    let mut server = Server::new("kv-end");
    server.clients.run(&["put", "a", "1"]).expect(0);
    crate::common::signal(server.process.id(), rustix::process::Signal::TERM);
    assert!(server.process.wait().unwrap().success());
}
