//! Wrong command lines, files and environments of all commands, as processes:
//! one sentence with a remedy, an exit code that is not 0, little memory, and
//! no panic, also with output that nobody reads or a full disk.

mod common;

use std::fs::{self, File};
use std::io::pipe;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Said, measuring, say};

const OWN: &str = env!("CARGO_BIN_EXE_portolan");

/// Address space, kilobytes, and seconds of processor time that a wrong call may
/// take; that is more than what it takes is said of.
const BOUNDS: &str = "ulimit -v 65536 && ulimit -t 1 && exec \"$0\" \"$@\"";

/// Files that are wrong, in a folder of the test's own.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(common::own_mark(name));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("reports")).unwrap();
        for (file, bytes) in [
            ("empty", &b""[..]),
            ("comment", b"# nothing\n"),
            ("words", b"a b c\n"),
            ("slots", b"a slots=many\n"),
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

/// Wrong command lines, environments and files; a part of what must be said.
const WRONG: &[(&str, &str)] = &[
    // portolan itself
    ("portolan rum -n 2 ./x", "'run'"),
    ("portolan --verbos", "--help"),
    ("portolan -n 2 ./x", "--help"),
    ("portolan ''", "--help"),
    ("portolan lab uo x", "'uo'"),
    ("portolan lab status a b c", "'b'"),
    ("portolan completions fsh", "fish"),
    ("portolan completions", "SHELL"),
    ("portolan man", "DIR"),
    ("portolan man /dev/null/x", "/dev/null/x"),
    // run: options
    ("portolan run", "PROG"),
    ("portolan run ./x", "how many ranks"),
    ("portolan run -n 2", "PROG"),
    ("portolan run -n 2 --", "PROG"),
    ("portolan run -n 2 -- ''", "name is empty"),
    ("portolan run -n 0 -- true", "-n 1 or more"),
    ("portolan run -n 4097 -- true", "a smaller -n"),
    ("portolan run -n 99999999999999999999 -- true", "--help"),
    ("portolan run -n -1 -- true", "--help"),
    ("portolan run -n two -- true", "'two'"),
    ("portolan run -n 1.5 -- true", "'1.5'"),
    ("portolan run -np two true", "'two'"),
    ("portolan run --ranks= -- true", "--ranks"),
    ("portolan run -n 2 -n 3 -- true", "multiple times"),
    ("portolan run -n 2 --host a,b -- ./x", "'--hosts'"),
    ("portolan run -n 2 --hostfil @/empty -- ./x", "'--hostfile'"),
    ("portolan run -n 2 -hosts a,b -- ./x", "two dashes"),
    ("portolan run -n 2 --oversubscribe ./x", "--help"),
    ("portolan run -n 2 --bind-to core ./x", "--bind"),
    ("portolan run -n 2 -ppn 1 ./x", "--help"),
    ("portolan run -n 2 --mca btl self ./x", "--help"),
    (
        "portolan run -n 2 --link tcp -- true",
        "auto, shm, udp, xdp",
    ),
    ("portolan run -n 2 --link= -- true", "--link"),
    ("portolan run -n 2 --security on -- true", "encrypt, none"),
    (
        "portolan run -n 2 --congestion wan -- true",
        "auto, lan, shared",
    ),
    ("portolan run -n 2 --bind socket -- true", "core, none"),
    ("portolan run -n 2 --on-death ignore -- true", "end, notify"),
    ("portolan run -n 2 --timeout 0 -- true", "--timeout"),
    ("portolan run -n 2 --timeout 1h -- true", "'1h'"),
    ("portolan run -n 2 --timeout -5 -- true", "--help"),
    ("portolan run -n 2 --connect-timeout 0 -- true", "1..=3600"),
    (
        "portolan run -n 2 --connect-timeout 4000 -- true",
        "1..=3600",
    ),
    ("portolan run -n 2 --fan-out 0 -- true", "1..=4096"),
    ("portolan run -n 2 --host-silence 10 -- true", "1000..="),
    ("portolan run -n 2 --respawn 1001 -- true", "0..=1000"),
    ("portolan run -n 2 --respawn 1 -- true", "only one"),
    (
        "portolan run -n 2 --respawn 1 --link shm --hosts a,b -- true",
        "--link auto",
    ),
    ("portolan run -n 2 --join-timeout never -- true", "'never'"),
    ("portolan run -n 2 --stopped-limit x -- true", "'x'"),
    ("portolan run -n 2 --set port -- true", "NAME=VALUE"),
    ("portolan run -n 2 --set -- true", "--help"),
    ("portolan run -n 2 -x -- true", "--help"),
    ("portolan run -n 2 -x =1 -- true", "NAME=VALUE"),
    (
        "portolan run -n 2 -x NOT_SET_ANYWHERE_AT_ALL -- true",
        "set it",
    ),
    (
        "portolan run -n 2 -x PORTOLAN_JOB=fd:3 -- true",
        "set for each rank",
    ),
    ("portolan run -n 2 --output @/words/x -- true", "--output"),
    ("portolan run -n 2 --trace @/words/x -- true", "@/words/x"),
    // run: programs
    ("portolan run -n 2 -- /no/such/program", "not found"),
    ("portolan run -n 2 -- no-such-program-anywhere", "PATH"),
    ("portolan run -n 2 -- @", "is a folder"),
    ("portolan run -n 2 -- /", "is a folder"),
    ("portolan run -n 2 -- @/program", "chmod +x"),
    ("portolan run -n 2 -- @/program/below", "cannot be executed"),
    ("PATH=/no/such portolan run -n 2 -- true", "not found"),
    ("portolan run -n 2 -- true :", "nothing"),
    ("portolan run -n 2 -- true : true", "begin with -n"),
    (
        "portolan run -n 2 -- true : -n",
        "number of ranks and the program",
    ),
    ("portolan run -n 2 -- true : -n 3", "no program"),
    ("portolan run -n 2 -- true : -n x true", "no number"),
    ("portolan run -n 2 -- true : -n 0 true", "-n 1 or more"),
    (
        "portolan run -n 2 -- true : --host a -n 1 true",
        "begin with -n",
    ),
    (
        "portolan run -- true : -n 3 true",
        "number of ranks of each",
    ),
    ("portolan run -n 4096 -- true : -n 1 true", "a smaller -n"),
    // run: hosts
    ("portolan run --hosts a: -- true", "slots"),
    ("portolan run --hosts a:0 -- true", "1 to 4096"),
    ("portolan run --hosts a:x -- true", "column 3"),
    ("portolan run --hosts a,,b -- true", "column 3"),
    ("portolan run --hosts '' -- true", "--hosts"),
    ("portolan run --hosts , -- true", "column 1"),
    ("portolan run --hosts a,a -- true", "second time"),
    ("portolan run --hosts [fd00::1 -- true", "bracket"),
    ("portolan run --hosts [fd00::1]x -- true", "--hosts"),
    ("portolan run --hosts -a -- true", "'-a'"),
    ("portolan run --hosts a:99999999999 -- true", "1 to 4096"),
    ("portolan run --hosts a:4000,b:4000 -- true", "a smaller -n"),
    (
        "portolan run --hosts a --hostfile @/words -- true",
        "cannot be used with",
    ),
    ("portolan run --hosts a,b -n 3 -- true", "more slots"),
    (
        "portolan run --hosts a --exclude a -- true",
        "leaves no host",
    ),
    ("portolan run --hosts a --exclude b -- true", "no such host"),
    ("portolan run -n 2 --exclude a -- true", "--hosts"),
    (
        "portolan run --hosts a,b --partition a -- true",
        "NAME=HOST",
    ),
    (
        "portolan run --hosts a,b --partition x= -- true",
        "NAME=HOST",
    ),
    (
        "portolan run --hosts a,b --partition =a -- true",
        "NAME=HOST",
    ),
    ("portolan run --hosts a,b --partition x=c -- true", "a, b"),
    (
        "portolan run --hosts a,b --partition x=a --partition x=b -- true",
        "before",
    ),
    (
        "portolan run --hosts a,b --partition x=a --partition y=a -- true",
        "another partition",
    ),
    ("portolan run -n 2 --lab no-such-lab -- true", "no-such-lab"),
    ("portolan run -n 2 --lab ../x -- true", "../x"),
    ("portolan run -n 2 --lab '' -- true", "lab"),
    // run: files
    ("portolan run --hostfile /no/such -- true", "--hostfile"),
    ("portolan run --hostfile / -- true", "--hostfile"),
    (
        "portolan run --hostfile /dev/null -- true",
        "no host stands here",
    ),
    ("portolan run --hostfile /dev/zero -- true", "4 MiB"),
    (
        "portolan run --hostfile @/empty -- true",
        "no host stands here",
    ),
    (
        "portolan run --hostfile @/comment -- true",
        "no host stands here",
    ),
    ("portolan run --hostfile @/words -- true", "slots=N"),
    ("portolan run --hostfile @/slots -- true", "1 to 4096"),
    ("portolan run --hostfile @/twice -- true", "second time"),
    ("portolan run --hostfile @/bracket -- true", "bracket"),
    ("portolan run --hostfile @/binary -- true", "text file"),
    (
        "portolan run --hostfile @/words/below -- true",
        "--hostfile",
    ),
    // run: networks
    (
        "portolan run -n 2 --interface 10.0.0.0/99 -- true",
        "10.2.0.0/16",
    ),
    (
        "portolan run -n 2 --interface ,,, -- true",
        "a name is missing",
    ),
    (
        "portolan run -n 2 --interface '' -- true",
        "a name is missing",
    ),
    (
        "portolan run -n 2 --interface eth0, -- true",
        "a name is missing",
    ),
    (
        "portolan run -n 2 --interface fd00::/x -- true",
        "is no network",
    ),
    (
        "portolan run -n 2 --interface eth0/24 -- true",
        "is no network",
    ),
    // environments
    (
        "PORTOLAN_DISABLE=gsso portolan run -n 2 -- true",
        "membarrier",
    ),
    (
        "PORTOLAN_DISABLE=gso;cma portolan run -n 2 -- true",
        "known are",
    ),
    ("PORTOLAN_DISABLE=all portolan doctor", "known are"),
    ("PORTOLAN_DISABLE=GSO portolan node --check", "known are"),
    // lab
    ("portolan lab", "--help"),
    ("portolan lab up", "NAME"),
    ("portolan lab up x --hosts 0", "--hosts 1 to"),
    ("portolan lab up x --hosts 251", "--hosts 1 to"),
    ("portolan lab up x --hosts -1", "--help"),
    ("portolan lab up x --hosts many", "'many'"),
    ("portolan lab up x --mtu 0", "--mtu"),
    ("portolan lab up x --mtu 70000", "--mtu"),
    ("portolan lab up x --queues 0", "--queues"),
    ("portolan lab up x --queues 65", "--queues"),
    ("portolan lab up x --switches 3", "--switches"),
    ("portolan lab up x --rate fast", "--rate"),
    ("portolan lab up x --rate 1kbit", "kbit"),
    ("portolan lab up x --rate 0", "--rate"),
    ("portolan lab up x --rate 400gbit", "gbit"),
    ("portolan lab up x --buffer 64k", "--rate"),
    ("portolan lab up x --ecn 16k", "--rate"),
    ("portolan lab up x --rate 1mbit --buffer 1", "--buffer"),
    ("portolan lab up x --rate 1mbit --buffer 1Q", "64K"),
    (
        "portolan lab up x --rate 1mbit --buffer 64k --ecn 64k",
        "--ecn",
    ),
    ("portolan lab up ../x", "name"),
    ("portolan lab up /", "name"),
    ("portolan lab up ''", "name"),
    (
        "portolan lab up averyveryveryveryveryveryverylongname",
        "name",
    ),
    ("portolan lab exec", "NAME"),
    ("portolan lab exec x", "HOST"),
    ("portolan lab exec x h0", "CMD"),
    ("portolan lab exec no-such-lab h0 -- true", "no-such-lab"),
    ("portolan lab exec no-such-lab h0 --rot true", "--help"),
    ("portolan lab link no-such-lab h0 sideways", "down, up"),
    ("portolan lab link no-such-lab h0 up", "no-such-lab"),
    ("portolan lab link no-such-lab h0 up --switch x", "'x'"),
    ("portolan lab status no-such-lab", "no-such-lab"),
    ("portolan lab status --jsn", "'--json'"),
    ("portolan lab list x", "'x'"),
    ("portolan lab impair no-such-lab --loss 5", "no-such-lab"),
    ("portolan lab impair no-such-lab --loss x", "'x'"),
    ("portolan lab impair no-such-lab --burst 3", "--loss"),
    ("portolan lab impair no-such-lab --los 5", "'--loss'"),
    // bench
    ("portolan bench", "--help"),
    ("portolan bench latancy", "'latency'"),
    ("portolan bench latency --size 1Q", "64K, 1M, 3G"),
    ("portolan bench latency --size ''", "64K, 1M, 3G"),
    ("portolan bench latency --size -8", "--help"),
    ("portolan bench latency --size 99999999999G", "64K, 1M, 3G"),
    ("portolan bench stalled --size 1Q", "64K, 1M, 3G"),
    ("portolan bench bandwidth --size x", "64K, 1M, 3G"),
    ("portolan bench latency --vs gamma", "udp, tcp"),
    (
        "portolan bench latency --link infiniband",
        "auto, shm, udp, xdp",
    ),
    ("portolan bench latency --link xdp", "--lab"),
    ("portolan bench latency --lab no-such-lab", "no-such-lab"),
    ("portolan bench latency --slices 0", "--slices"),
    ("portolan bench latency --slices many", "--slices"),
    (
        "portolan bench latency --json /no/such/x.json",
        "/no/such/x.json",
    ),
    ("portolan bench bandwidth --loss 1,200", "--loss"),
    ("portolan bench barrier -n 0", "-n"),
    ("portolan bench forged --size 5", "28 to 1232"),
    // doctor, tune, node, report, top, job
    ("portolan doctor x", "'x'"),
    ("portolan doctor --setting", "'--settings'"),
    ("portolan doctor --json", "--json"),
    ("portolan tune --link shm --hosts a,b", "leave out"),
    ("portolan tune --link xdp", "--lab"),
    ("portolan tune --rounds 0", "1..=1000"),
    ("portolan tune --dry-run --forget", "cannot be used with"),
    ("portolan tune --lab no-such-lab", "no-such-lab"),
    ("portolan tune --lab a --hosts b", "cannot be used with"),
    ("portolan tune --ssh x", "--hosts"),
    ("portolan tune --json /no/such/x.json", "/no/such/x.json"),
    ("portolan node --config /no/such", "/no/such"),
    (
        "portolan node --check --config @/none.conf",
        "no_such_setting",
    ),
    ("portolan node --check --config @/line.conf", "line"),
    ("portolan node --check --clean", "cannot be used with"),
    ("portolan node --chek", "'--check'"),
    ("portolan report", "DIR"),
    ("portolan report /no/such", "/no/such"),
    ("portolan report @", "portolan bench"),
    ("portolan report @/reports", "a.json"),
    ("portolan report @/words", "@/words"),
    ("portolan top no-such-job", "no-such-job"),
    ("portolan top --list --once", "cannot be used with"),
    ("portolan top --dump --prometheus x", "cannot be used with"),
    ("portolan top --interval 0", "1..=3600"),
    ("portolan top --interval x", "'x'"),
    ("portolan top ffffffffffffffff", "ffffffffffffffff"),
    ("portolan top zzzz --once", "zzzz"),
    ("portolan job", "--help"),
    ("portolan job x", "--help"),
    ("portolan job x exclude", "HOST"),
    (
        "portolan job ffffffffffffffff exclude h0",
        "ffffffffffffffff",
    ),
    ("portolan job x exclud h0", "'exclude'"),
];

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
    for (limit, part) in [
        ("ulimit -n 8", "ulimit -n 1024"),
        ("ulimit -n 30", "ulimit -Hn"),
        ("ulimit -s 64", "ulimit -s 8192"),
    ] {
        let script = format!("{limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, OWN]);
        command.args(&words("portolan run -n 2 -- true", &files)[1..]);
        let said = Said::from(command.output().unwrap());
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
fn a_long_name_is_a_name() {
    let name = "a".repeat(70_000);
    let said = say(&["doctor", "--to", &name]).expect(1);
    assert!(said.out.contains(&name) && !said.err.contains("panicked"));
}

/// The same answer where nobody reads it, and where nothing can be written.
#[test]
fn what_is_wrong_panics_without_readers_neither() {
    let files = Files::new("unread");
    for (line, _) in WRONG.iter().step_by(5) {
        let expected = bounded(line, &files).output().unwrap().status.code();
        for full in [false, true] {
            let end = || match full {
                true => Stdio::from(File::options().write(true).open("/dev/full").unwrap()),
                false => Stdio::from(pipe().unwrap().1),
            };
            let mut command = bounded(line, &files);
            let code = command.stdout(end()).stderr(end()).status().unwrap().code();
            assert_eq!(code, expected, "{line}, full: {full}");
        }
    }
}

/// Random calls that cannot be right, as there is a word that nothing knows.
#[test]
fn random_calls_with_an_unknown_word_are_refused() {
    let files = Files::new("random");
    let commands = [
        "run",
        "lab",
        "lab up",
        "lab exec",
        "lab down",
        "lab status",
        "bench",
        "bench latency",
        "bench incast",
        "doctor",
        "tune",
        "node",
        "report",
        "top",
        "job",
        "man",
        "completions",
    ];
    let values: [&[u8]; 12] = [
        b"-n",
        b"2",
        b"--hosts",
        b"a:2,b",
        b"--link",
        b"\xff\xfe",
        b"",
        b"--",
        b"=",
        b"--set=a=b",
        b"\x1b[2J",
        b"a\nb",
    ];
    let variables = [
        ("PORTOLAN_LOG", "nonsense=x/y/z"),
        ("PORTOLAN_NOSUCH", "1"),
        ("PORTOLAN_DISABLE", "everything"),
        ("PORTOLAN_CONFIG", "/dev/null/x"),
    ];
    let mut seed = 1_u32;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % limit
    };
    for round in 0..400 {
        let line = format!("portolan {} --zzyzx", commands[below(commands.len())]);
        let mut command = bounded(&line, &files);
        for _ in 0..below(6) {
            command.arg(std::ffi::OsStr::from_bytes(values[below(values.len())]));
        }
        let (name, value) = variables[below(variables.len())];
        command.env(name, value);
        let said = match round % 4 {
            0 => command.stdout(pipe().unwrap().1).stderr(Stdio::piped()),
            1 => command
                .stdout(File::options().write(true).open("/dev/full").unwrap())
                .stderr(Stdio::piped()),
            _ => command.stdout(Stdio::piped()).stderr(Stdio::piped()),
        };
        let said = Said::from(said.spawn().unwrap().wait_with_output().unwrap());
        assert!(is_good(&said), "{line}: {said:#?}");
        assert_eq!(said.code, 2, "{line}: {said:#?}");
        assert!(said.err.lines().count() == 1, "{line}: {said:#?}");
        assert!(said.err.contains("--help"), "{line}: {said:#?}");
    }
}

/// What commands find and print, where nobody reads it or nothing can be written.
#[test]
fn what_is_right_ends_silently_without_a_reader_and_says_why_on_a_full_disk() {
    let folder = Files::new("right");
    let folder = folder.0.to_str().unwrap();
    for words in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["completions", "bash"],
        &["doctor"],
        &["lab", "status"],
        &["lab", "status", "--json"],
        &["lab", "list"],
        &["lab", "list", "--json"],
        &["top", "--list"],
        &["node", "--check"],
        &measuring(&format!("{folder}/latency.json")),
        &["report", folder],
        &["tune", "--dry-run", "--rounds", "1"],
    ] {
        // As far as a lab or a job of others is there.
        let prints = Said::from(common::portolan(words).output().unwrap());
        let mut unread = common::portolan(words);
        let unread = unread.stdout(pipe().unwrap().1).stderr(Stdio::piped());
        let unread = Said::from(unread.spawn().unwrap().wait_with_output().unwrap());
        assert_eq!(unread.code, prints.code, "{words:?}: {unread:#?}");
        assert_eq!(unread.err, prints.err, "{words:?}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut full_disk = common::portolan(words);
        let full_disk = full_disk.stdout(full).stderr(Stdio::piped());
        let said = Said::from(full_disk.spawn().unwrap().wait_with_output().unwrap());
        if prints.out.is_empty() {
            continue;
        }
        let said = said.expect(1).complains(&["No space left", "elsewhere"]);
        assert_eq!(said.err.lines().count(), 1, "{words:?}: {said:#?}");
    }
}
