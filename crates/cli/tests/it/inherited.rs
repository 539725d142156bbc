//! What a job's processes inherit and adopt: ignored signals, the mask, and orphans. One test
//! needs root, for a pid namespace of its own.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{executable, finish, need_root, portolan, read_until, signal};
use rustix::process::Signal;

/// `portolan` as a program starts it that is given first, with its arguments.
fn started_by(program: &[&str], arguments: &[&str]) -> Command {
    let own = portolan(arguments);
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(own.get_program());
    command.args(own.get_args()).stdin(Stdio::null());
    let variables = own.get_envs();
    command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A program that takes the place of ssh, and runs what it is given on this host, by `program`.
fn stands_for_ssh(name: &str, program: &str) -> String {
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let folder = Path::new(env!("CARGO_BIN_EXE_portolan")).parent().unwrap();
    let words = "for it; do command=$it; done";
    let path = format!("PATH={}:$PATH", folder.display());
    executable(
        &script,
        &format!("{words}; export {path}; exec {program} sh -c \"exec $command\""),
    );
    script.into_os_string().into_string().unwrap()
}

/// A set of signals of a process, as the kernel shows it.
fn set_of(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
}

fn bits(signals: &[Signal]) -> u64 {
    let bit = |signal: &Signal| 1 << (signal.as_raw() - 1);
    signals.iter().map(bit).sum()
}

#[test]
fn a_signal_that_was_ignored_at_the_start_ends_no_job() {
    let script = "echo waiting; read line; exit 7";
    let ignores = ["env", "--default-signal", "--ignore-signal=HUP,INT"];
    let job = ["run", "-n", "1", "--", "sh", "-c", script];
    let mut job = started_by(&ignores, &job)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    read_until(&mut job, "waiting", 1);
    let status = fs::read_to_string(format!("/proc/{}/status", job.id())).unwrap();
    let ends = [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT];
    assert_eq!(set_of(&status, "SigIgn:") & bits(&ends), bits(&ends[..2]));
    assert_eq!(set_of(&status, "SigCgt:") & bits(&ends), bits(&ends[2..]));
    signal(job.id(), Signal::HUP);
    signal(job.id(), Signal::INT);
    writeln!(job.stdin.as_mut().unwrap(), "go on").unwrap();
    finish(job).expect(7);
}

#[test]
fn who_does_not_fork_into_a_pid_namespace_is_told_to() {
    need_root();
    let job = ["run", "-n", "1", "--", "true"];
    let job = started_by(&["unshare", "--pid"], &job).spawn().unwrap();
    let said = finish(job).expect(1);
    said.complains(&["starting the job's guard: ", "add --fork"]);
    let job = ["run", "-n", "1", "--", "true"];
    let job = started_by(&["unshare", "--pid", "--fork"], &job).spawn();
    finish(job.unwrap()).expect(0);
}

#[test]
fn ranks_begin_with_the_signals_that_the_caller_ignored_and_no_others() {
    let caller = [
        "env",
        "--default-signal",
        "--ignore-signal=HUP,CHLD,PIPE,XFSZ",
        "--block-signal=USR2",
    ];
    let ssh = stands_for_ssh("ssh-here", "env");
    let elsewhere = ["--ssh", &ssh, "--hosts", "elsewhere"];
    for options in [&[][..], &elsewhere] {
        let job = [&["run", "-n", "1", "--no-prefix"], options].concat();
        let shows = ["--", "cat", "/proc/self/status"];
        let job = started_by(&caller, &[&job[..], &shows].concat());
        let said = finish({ job }.spawn().unwrap()).expect(0);
        // An agent's caller is not told of children that its own caller ignored.
        let ignored = match options.is_empty() {
            true => bits(&[Signal::HUP, Signal::CHILD, Signal::XFSZ]),
            false => bits(&[Signal::HUP, Signal::XFSZ]),
        };
        assert_eq!(set_of(&said.out, "SigIgn:"), ignored, "{said:?}");
        assert_eq!(set_of(&said.out, "SigBlk:"), bits(&[Signal::USR2]));
        assert_eq!(set_of(&said.out, "SigCgt:"), 0);
    }
}

/// Leaves 20 orphans behind, and waits until nothing is left of them: a zombie would be.
const LEAVES_ORPHANS: &str = r#"
orphans=$(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    sh -c 'sleep 0.05 >/dev/null & echo $!'
done)
i=0
while [ $i -lt 300 ]; do
    left=
    for pid in $orphans; do [ -e /proc/$pid ] && left="$left $pid"; done
    [ -z "$left" ] && exit 7
    sleep 0.1
    i=$((i + 1))
done
for pid in $left; do cat /proc/$pid/stat; done"#;

/// Becomes one that orphans of its descendants are given to.
const SUBREAPER: [&str; 3] = [
    "/usr/bin/python3",
    "-c",
    "import ctypes, os, sys\n\
     assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n\
     os.execvp(sys.argv[1], sys.argv[1:])",
];

#[test]
fn a_launcher_or_agent_that_is_given_orphans_collects_them() {
    need_root();
    let first = ["unshare", "--pid", "--fork", "--mount-proc"];
    let ssh = stands_for_ssh("ssh-into-namespace", &first.join(" "));
    let elsewhere = ["--ssh", &ssh, "--hosts", "elsewhere:4"];
    for (program, options) in [
        (&first[..], &["-n", "4"][..]),
        (&SUBREAPER, &["-n", "4"]),
        (&["env"], &elsewhere),
    ] {
        let job = [&["run", "--no-prefix"], options].concat();
        let ranks = ["--", "sh", "-c", LEAVES_ORPHANS];
        let mut job = started_by(program, &[&job[..], &ranks].concat());
        // Ranks that ended are not taken for orphans: their code is known.
        finish(job.spawn().unwrap()).expect(7);
    }
}
