//! Wrong command lines, files and environments of all commands, as processes:
//! one sentence with a remedy, an exit code that is not 0, little memory, and
//! no panic, also with output that nobody reads or a full disk.

mod chosen;
mod random;

use std::fs::{self, File};
use std::io::pipe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Said, say};
use chosen::WRONG;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

const OWN: &str = env!("CARGO_BIN_EXE_portolan");

/// Address space, kilobytes, and seconds of processor time that a wrong call may
/// take; that is more than what it takes is said of.
const BOUNDS: &str = "ulimit -v 65536 && ulimit -t 1 && exec \"$0\" \"$@\"";

/// Files that are wrong, in a folder of the test's own.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(crate::common::own_mark(name));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("reports")).unwrap();
        for (file, bytes) in [
            ("empty", &b""[..]),
            ("comment", b"# nothing\n"),
            ("words", b"a b c\n"),
            ("slots", b"a slots=many\n"),
            ("node.conf", b"\xef\xbb\xbfports = 0\n"),
            ("twice", b"a\na\n"),
            ("bracket", b"[fd00::1\n"),
            ("binary", b"\xff\xfe\x00a\n"),
            ("reports/a.json", b"{\"bench\":"),
            ("none.conf", b"no_such_setting = 1\n"),
            ("value.conf", b"port = seven\n"),
            ("line.conf", b"port seven\n"),
            ("program", b"#!/bin/sh\nexit 0\n"),
        ] {
            fs::write(folder.join(file), bytes).unwrap();
        }
        // Nobody ever writes into it.
        let pipe = Command::new("mkfifo").arg(folder.join("pipe")).status();
        assert!(pipe.unwrap().success());
        Self(folder)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Words as a shell would cut them; `@` is the folder of wrong files, `''` an
/// empty word.
fn words(line: &str, files: &Files) -> Vec<String> {
    let folder = files.0.to_str().unwrap();
    let word = |word: &str| match word {
        "''" => String::new(),
        word => word.replace('@', folder),
    };
    line.split(' ').map(word).collect()
}

/// The command under bounds. Words before `portolan` are variables.
fn bounded(line: &str, files: &Files) -> Command {
    let all = words(line, files);
    let at = all.iter().position(|word| word == "portolan").unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", BOUNDS, OWN]).args(&all[at + 1..]);
    for variable in &all[..at] {
        let (name, value) = variable.split_once('=').unwrap();
        command.env(name, value);
    }
    command.env("PORTOLAN_TUNED", "").stdin(Stdio::null());
    command
}

/// Output that nobody reads, or of a full disk.
fn without_reader(full: bool) -> Stdio {
    if full {
        Stdio::from(File::options().write(true).open("/dev/full").unwrap())
    } else {
        Stdio::from(pipe().unwrap().1)
    }
}

/// Processor time that a wrong call may take.
const TIME_MAX: Duration = Duration::from_millis(100);

/// What the kernel tells processor time in (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// Waits for a process to end; its exit code, and its processor time with that of
/// the processes that it has waited for, in steps of a clock tick.
fn outcome(mut child: Child) -> (i32, Duration) {
    let pid = Pid::from_child(&child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).unwrap();
    // Until it is waited for, the kernel tells of it (proc_pid_stat(5)).
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let times = fields.split(' ').skip(11).take(4);
    let ticks: u64 = times.map(|it| it.parse::<u64>().unwrap()).sum();
    let time = TICK * u32::try_from(ticks).unwrap();
    (child.wait().unwrap().code().unwrap_or(-1), time)
}

/// What must hold of an answer, whatever was wrong.
fn is_good(said: &Said) -> bool {
    said.code > 0 && said.code != 101 && !said.err.contains("panicked")
}

#[test]
fn what_is_wrong_is_said_in_one_sentence_with_a_remedy() {
    let files = Files::new("chosen");
    let folder = files.0.to_str().unwrap();
    let mut bad = Vec::new();
    for (line, part) in WRONG {
        let said = Said::from(bounded(line, &files).output().unwrap());
        let part = part.replace('@', folder);
        let shows_help = said.err.contains("\nUsage: portolan") || said.err.starts_with("Usage");
        let sentence = said.err.lines().count() == 1 && said.err.starts_with("portolan: ");
        if !(is_good(&said)
            && said.err.contains(&part)
            && (sentence || shows_help && part == "--help"))
        {
            bad.push(format!(
                "{line}: no {part:?} in {:?} ({})",
                said.err, said.code
            ));
        }
    }
    assert!(bad.is_empty(), "{} of {}: {bad:#?}", bad.len(), WRONG.len());
    assert!(WRONG.len() >= 200, "{}", WRONG.len());
}

/// A limit of file sizes is told of by whoever meets it.
#[test]
fn files_that_may_not_grow_end_nobody_without_a_word() {
    let files = Files::new("limit");
    for line in [
        "portolan run -n 2 -- true",
        "portolan doctor --json @/doctor.json",
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 0 && exec \"$0\" \"$@\"", OWN]);
        command.args(&words(line, &files)[1..]);
        let said = Said::from(command.output().unwrap());
        assert!(is_good(&said), "{line}: {said:#?}");
        assert!(said.err.contains("File too large"), "{line}: {said:#?}");
    }
}

/// Other limits as well, with what to do.
#[test]
fn limits_are_told_with_their_remedy() {
    let files = Files::new("limits");
    let within = |limit: &str| {
        let script = format!("{limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, OWN]);
        command.args(&words("portolan run -n 2 -- true", &files)[1..]);
        Said::from(command.output().unwrap())
    };
    // The least memory in which kernel and loader start the program: it grows with the program.
    let starts = |limit: &String| !matches!(within(limit).code, ..0 | 127);
    let memory = (10_000..100_000).step_by(2_000);
    let memory = memory.map(|kib| format!("ulimit -v {kib}")).find(starts);
    for (limit, part) in [
        ("ulimit -n 8", "ulimit -n 1024"),
        ("ulimit -n 30", "ulimit -Hn"),
        ("ulimit -s 64", "ulimit -s 8192"),
        (&memory.expect("a program of less than 100 MB"), "ulimit -v"),
    ] {
        let said = within(limit);
        assert!(
            is_good(&said) && said.err.lines().count() == 1,
            "{limit}: {said:#?}"
        );
        assert!(said.err.contains(part), "{limit}: {said:#?}");
    }
}

/// What is told back of a long word is short.
#[test]
fn long_words_do_not_come_back_whole() {
    let long = "x".repeat(100_000);
    for words in [
        &["run", "-n", "1", "--host", &long, "--", "true"][..],
        &["run", "-n", "1", "--", &long],
        &["run", "-n", &long, "--", "true"],
        &["run", &format!("--{long}")],
        &["lab", "up", &long],
        &["top", &format!("--interval={long}")],
        &["report", &long],
        &[&long],
    ] {
        let said = say(words);
        assert!(
            is_good(&said) && said.err.len() < 6_000,
            "{}",
            said.err.len()
        );
        assert!(said.err.lines().count() <= 3, "{said:#?}");
    }
}

/// As long as the kernel lets a word be.
#[test]
fn a_name_that_is_too_long_is_told_in_short() {
    let name = "a".repeat(70_000);
    let said = say(&["doctor", "--to", &name]).expect(1);
    assert!(said.out.contains("no host has a name of 70000 bytes"));
    assert!(said.out.len() < 20_000 && !said.err.contains("panicked"));
}

/// The same answer where nobody reads it, and where nothing can be written; within
/// little time, in the best of a few tries: others use the same processors.
#[test]
fn what_is_wrong_panics_without_readers_neither_and_takes_little_time() {
    let files = Files::new("unread");
    let each = |line: &str| {
        let mut best = Duration::MAX;
        let mut codes = Vec::new();
        for (out, err) in [
            (None, None),
            (Some(false), Some(false)),
            (Some(true), Some(true)),
        ] {
            let mut command = bounded(line, &files);
            command.stdout(out.map_or_else(Stdio::null, without_reader));
            command.stderr(err.map_or_else(Stdio::null, without_reader));
            let (code, time) = outcome(command.spawn().unwrap());
            codes.push(code);
            best = best.min(time);
        }
        let same = codes.iter().all(|code| *code == codes[0]);
        let good = same && codes[0] > 0 && codes[0] != 101 && best < TIME_MAX;
        (!good).then(|| format!("{line}: {codes:?}, {best:?}"))
    };
    let (first, second) = WRONG.split_at(WRONG.len() / 2);
    let all = |lines: &[(&str, &str)]| -> Vec<String> {
        lines.iter().filter_map(|(line, _)| each(line)).collect()
    };
    let bad = std::thread::scope(|scope| {
        let beside = scope.spawn(|| all(second));
        [all(first), beside.join().unwrap()].concat()
    });
    assert!(bad.is_empty(), "{bad:#?}");
}

/// A program's output in the place of a hostfile, as a shell has it.
#[test]
fn hosts_may_come_from_a_command() {
    let script = "exec \"$0\" run --hostfile <(echo h0; sleep 0.1; echo a b c) -- true";
    let output = Command::new("bash").args(["-c", script, OWN]).output();
    let said = Said::from(output.unwrap()).expect(2);
    assert!(
        said.err.contains(":2:3: \"b\" is not understood"),
        "{said:#?}"
    );
}
