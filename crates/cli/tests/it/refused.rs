//! Calls that a filter (seccomp) refuses, as containers' profiles do.

use crate::common::{Said, example, portolan, say};

// Numbers of the calls on x86-64.
const MADVISE: u32 = 28;
const IOCTL: u32 = 16;
const SOCKETPAIR: u32 = 53;
const WAIT4: u32 = 61;
const FCNTL: u32 = 72;
const FTRUNCATE: u32 = 77;
const READLINK: u32 = 89;
const FUTEX: u32 = 202;
const EPOLL_CTL: u32 = 233;
const WAITID: u32 = 247;
const EPOLL_PWAIT: u32 = 281;
const FALLOCATE: u32 = 285;
const PRLIMIT64: u32 = 302;
const CLONE: u32 = 56;
const PRCTL: u32 = 157;
const TIMERFD_CREATE: u32 = 283;
const EVENTFD2: u32 = 290;
const EPOLL_CREATE1: u32 = 291;
const DUP2: u32 = 33;
const PPOLL: u32 = 271;
const GETRANDOM: u32 = 318;
const CLONE3: u32 = 435;
const RECVFROM: u32 = 45;
const SENDMSG: u32 = 46;
const RECVMSG: u32 = 47;
const RECVMMSG: u32 = 299;
const SENDMMSG: u32 = 307;
const MEMFD_CREATE: u32 = 319;
const BPF: u32 = 321;
const PIDFD_OPEN: u32 = 434;

/// A command that runs the one after it, and refuses these calls to it: with
/// EPERM, as docker does.
fn refusing(calls: &[u32]) -> [String; 3] {
    let script = format!(
        "my @calls = ({}); my $n = @calls; \
         my $code = pack('SCCL', 0x20, 0, 0, 0); \
         $code .= pack('SCCL', 0x15, --$n + 1, 0, $_) for @calls; \
         $code .= pack('SCCL', 0x06, 0, 0, 0x7fff0000) . pack('SCCL', 0x06, 0, 0, 0x00050001); \
         my $program = pack('S x6 p', @calls + 3, $code); \
         syscall(157, 38, 1, 0, 0, 0) == 0 or die 'no_new_privs'; \
         syscall(157, 22, 2, $program) == 0 or die 'seccomp'; \
         exec @ARGV or die",
        calls
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(",")
    );
    ["perl".to_owned(), "-e".to_owned(), script]
}

fn run(calls: &[u32], program: &[&str]) -> Said {
    let filter = refusing(calls);
    let filter = filter.each_ref().map(String::as_str);
    let words = ["run", "-n", "2", "--link", "udp", "--"];
    say(&[&words[..], &filter, program].concat())
}

#[test]
fn without_calls_for_several_messages_single_ones_do() {
    let ring = example("ring");
    // Long messages, so that packets are dense.
    let heat = example("heat");
    for calls in [&[RECVMMSG][..], &[SENDMMSG], &[SENDMMSG, RECVMMSG]] {
        let said = run(calls, &[&ring, "200"]).expect(0);
        assert!(said.out.contains("the sum is right"), "{said:#?}");
        run(calls, &[&heat, "1000", "50"]).expect(0);
    }
}

#[test]
fn who_cannot_receive_says_so_and_why() {
    let ring = example("ring");
    let said = run(&[RECVFROM, RECVMSG, RECVMMSG], &[&ring, "10"]);
    assert_ne!(said.code, 0, "{said:#?}");
    // Without `recvmsg` a rank does not even hear its launcher.
    said.complains(&["listening to the launcher: Operation not permitted"]);
}

#[test]
fn who_may_start_no_thread_is_told_to_do_without_the_helper() {
    let filter = refusing(&[CLONE, CLONE3]);
    let filter = filter.each_ref().map(String::as_str);
    let ring = example("ring");
    let run = |options: &[&str]| {
        let program = [&["--"][..], &filter, &[&ring, "10"]].concat();
        say(&[&["run", "-n", "2"][..], options, &program].concat())
    };
    let said = run(&[]);
    assert_ne!(said.code, 0, "{said:#?}");
    said.complains(&["the helper thread cannot be started", "helper=off"]);
    let said = run(&["--set", "helper=off"]).expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
}

/// `portolan` itself, to which these calls are refused.
fn refused(calls: &[u32], words: &[&str]) -> Said {
    let [perl, option, script] = refusing(calls);
    let itself = portolan(words);
    let output = std::process::Command::new(perl)
        .args([&option, &script])
        .arg(itself.get_program())
        .args(itself.get_args())
        .output();
    Said::from(output.unwrap())
}

#[test]
fn a_launcher_without_memory_files_starts_jobs_by_udp() {
    let ring = example("ring");
    let run = |link| {
        refused(
            &[MEMFD_CREATE],
            &["run", "-n", "2", "--link", link, "--", &ring, "20"],
        )
    };
    run("auto")
        .expect(1)
        .complains(&["memfd_create", "use --link udp"]);
    let said = run("udp").expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
}

#[test]
fn a_launcher_that_cannot_watch_processes_says_so() {
    refused(&[PIDFD_OPEN], &["run", "-n", "2", "--", "true"])
        .expect(1)
        .complains(&["allow pidfd_open"]);
    let said = refused(&[PIDFD_OPEN], &["doctor"]).expect(1);
    assert!(said.out.contains("missing  pidfd"), "{said:#?}");
}

#[test]
fn doctor_names_the_calls() {
    let doctor = |calls: &[u32]| refused(calls, &["doctor"]).out;
    let line = |said: &str, subject: &str| {
        let found = said.lines().find(|line| line.contains(subject));
        found
            .unwrap_or_else(|| panic!("no {subject} in {said}"))
            .to_owned()
    };
    let said = doctor(&[RECVMMSG]);
    assert!(line(&said, " mmsg ").starts_with("slower"), "{said}");
    let said = doctor(&[RECVMSG]);
    assert!(line(&said, " mmsg ").starts_with("ok "), "{said}");
    let refused = line(&said, "recvmsg is refused");
    assert!(refused.starts_with("missing"), "{refused}");
}

/// As by a kernel whose verifier refuses the program: nothing is loaded.
#[test]
fn where_no_xdp_program_loads_it_is_said_that_udp_is_used() {
    crate::common::need_root();
    let said = refused(&[BPF], &["doctor"]).expect(1);
    let line = said.out.lines().find(|line| line.contains(" host-ports "));
    let line = line.unwrap_or_else(|| panic!("{said:#?}"));
    let found = "none, so that udp is used between hosts: ";
    assert!(line.starts_with("slower") && line.contains(found), "{line}");
    assert!(line.contains("Operation not permitted"), "{line}");
    let said = refused(&[BPF], &["node", "--check"]).expect(1);
    let line = said
        .out
        .lines()
        .find(|line| line.starts_with("missing  kernel "));
    let line = line.unwrap_or_else(|| panic!("{said:#?}"));
    assert!(line.contains("Operation not permitted"), "{line}");
}

#[test]
fn calls_without_which_no_job_runs_are_named() {
    let all = [
        (EPOLL_CREATE1, "epoll"),
        (EVENTFD2, "eventfd"),
        (TIMERFD_CREATE, "timerfd_create"),
        (SOCKETPAIR, "socketpair"),
        (PRCTL, "prctl"),
        (GETRANDOM, "getrandom"),
        (EPOLL_CTL, "epoll_ctl"),
        (EPOLL_PWAIT, "epoll_pwait"),
        (WAIT4, "wait4"),
        (WAITID, "waitid"),
        (FCNTL, "fcntl"),
        (DUP2, "dup2"),
        (READLINK, "readlink"),
        (PRLIMIT64, "prlimit64"),
        (PPOLL, "ppoll"),
        (IOCTL, "ioctl"),
        (MADVISE, "madvise"),
        (RECVMSG, "recvmsg"),
        (SENDMSG, "sendmsg"),
    ];
    for (call, name) in all {
        let said = refused(&[call], &["doctor"]).expect(1);
        let line = said.out.lines().find(|line| line.contains(" calls "));
        let line = line.unwrap_or_else(|| panic!("{said:#?}"));
        assert!(line.starts_with("missing") && line.contains(name), "{line}");
        // A launcher names it, and so does a rank.
        for job in [
            refused(&[call], &["run", "-n", "2", "--", "true"]),
            run(&[call], &[&example("ring"), "10"]),
        ] {
            assert!(job.code == 0 || job.err.contains(name), "{name}: {job:#?}");
        }
    }
}

/// A network without anything else in it, where no packet leaves: a job by udp on
/// this host ends, says what the kernel answers, and kills nobody.
#[test]
fn a_loopback_that_is_down_is_nobodys_silence() {
    crate::common::need_root();
    let ring = example("ring");
    let down_at_first = "exec \"$@\"";
    // Then the kernel names no error, and drops what it was given.
    let down_later = "ip link set lo up; (sleep 1; ip link set lo down) & exec \"$@\"";
    for (script, error) in [
        (down_at_first, "Network is unreachable (os error 101)"),
        (down_later, "Network is down (os error 100)"),
    ] {
        let words = [
            "run",
            "-n",
            "2",
            "--link",
            "udp",
            "--set",
            "join_ms=4000",
            "--",
            &ring,
            "1000000000",
        ];
        let itself = portolan(&words);
        let output = std::process::Command::new("unshare")
            .args(["-n", "sh", "-c", script, "sh"])
            .arg(itself.get_program())
            .args(itself.get_args())
            .output();
        let said = Said::from(output.unwrap()).expect(1);
        assert!(!said.err.contains("it is killed"), "{said:#?}");
        let ending = said
            .err
            .lines()
            .find(|line| line.contains("ending the job: "));
        let ending = ending.unwrap_or_else(|| panic!("{said:#?}"));
        assert!(
            ending.contains("cannot send packets to rank ") && ending.ends_with(error),
            "{ending}"
        );
    }
}

/// Nothing is begun that could not be ended.
#[test]
fn a_lab_is_not_begun_where_calls_are_refused() {
    crate::common::need_root();
    let name = format!("t-refused-{}", std::process::id());
    for calls in [&[CLONE3][..], &[IOCTL], &[RECVFROM], &[CLONE, CLONE3]] {
        let said = refused(calls, &["lab", "up", &name, "--hosts", "2"]).expect(1);
        assert!(
            said.err.contains("a filter (seccomp) refuses "),
            "{said:#?}"
        );
        assert_eq!(said.err.lines().count(), 1, "{said:#?}");
        assert_eq!(crate::common::traces(&name), [""; 0], "{calls:?}");
    }
}

#[test]
fn where_no_thread_can_sleep_it_is_said() {
    for command in [&["doctor"][..], &["run", "-n", "2", "--", "true"]] {
        refused(&[FUTEX], command)
            .expect(1)
            .complains(&["a filter (seccomp) refuses futex"]);
    }
}

#[test]
fn refused_sizes_and_advices_are_no_lack_of_memory() {
    let ring = example("ring");
    for (call, link, why) in [
        (FTRUNCATE, "shm", "allow ftruncate and fallocate"),
        (FALLOCATE, "shm", "allow ftruncate and fallocate"),
        (MADVISE, "udp", "madvise"),
    ] {
        let words = ["run", "-n", "2", "--link", link, "--", &ring, "10"];
        refused(&[call], &words).expect(1).complains(&[why]);
    }
}
