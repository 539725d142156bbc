//! `portolan run` on this host.

use std::fs;
use std::process::Stdio;

use crate::common::{
    Said, example, finish, job_id, marked, none_left, own_name, portolan, probe, read_until, say,
    signal, start, until,
};
use rustix::process::Signal;

#[test]
fn ranks_learn_who_they_are() {
    let said = say(&[
        "run",
        "-n",
        "3",
        "--bind",
        "none",
        "--set",
        "port=7",
        "--",
        &probe(),
        "table",
    ]);
    let said = said.expect(0);
    for rank in 0..3 {
        let about = format!(
            "[{rank}] rank {rank} of 3 host 0 of 1 local {rank} of [0, 1, 2] core None \
             segment true doorbells 4"
        );
        assert!(said.lines().contains(&about.as_str()), "{said:#?}");
        // `--join-timeout` is one of them.
        let settings = format!("[{rank}] settings {{\"join_ms\": \"60000\", \"port\": \"7\"}}");
        assert!(said.lines().contains(&settings.as_str()), "{said:#?}");
    }
    assert_eq!(said.err, "");
}

#[test]
fn more_ranks_than_descriptors_fit_a_message() {
    let said = say(&["run", "-n", "230", "--", &probe(), "table"]).expect(0);
    assert_eq!(
        said.lines()
            .iter()
            .filter(|line| line.contains("doorbells 231"))
            .count(),
        230
    );
}

#[test]
fn udp_only_needs_no_segment() {
    let said = say(&["run", "-n", "2", "--link", "udp", "--", &probe(), "table"]).expect(0);
    assert_eq!(
        said.lines()
            .iter()
            .filter(|l| l.contains("segment false doorbells 0"))
            .count(),
        2
    );
}

#[test]
fn ranks_are_bound_to_cores_in_turn() {
    let command = "grep Cpus_allowed_list /proc/self/status";
    let said = say(&["run", "-n", "3", "--", "sh", "-c", command]).expect(0);
    let cores: Vec<&str> = said
        .lines()
        .iter()
        .map(|l| l.rsplit('\t').next().unwrap())
        .collect();
    assert!(
        cores.iter().all(|core| core.parse::<u32>().is_ok()),
        "{cores:?}"
    );
    let allowed = std::thread::available_parallelism().unwrap().get();
    if allowed == 2 {
        assert_eq!(cores[0], cores[2]);
        assert_ne!(cores[0], cores[1]);
    }
}

#[test]
fn a_program_without_a_launcher_is_a_job_of_one() {
    let output = std::process::Command::new(probe())
        .arg("table")
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(
        out.starts_with("rank 0 of 1 host 0 of 1 local 0 of [0]"),
        "{out}"
    );
}

#[test]
fn the_exit_code_is_that_of_the_first_rank_that_fails() {
    say(&["run", "-n", "2", "--", "true"]).expect(0);
    say(&["run", "-n", "2", "--", "sh", "-c", "exit 7"])
        .expect(7)
        .complains(&["exit code 7"]);
    let said = say(&["run", "-n", "1", "--", "sh", "-c", "kill -SEGV $$"]).expect(139);
    said.complains(&["rank 0", "signal 11 (SIGSEGV)"]);
}

#[test]
fn the_others_are_told_of_a_death_and_ended() {
    let said = say(&["run", "-n", "3", "--", &probe(), "die", "1", "abort"]).expect(134);
    for rank in [0, 2] {
        let told = format!("[{rank}] died: rank 1, signal 6 (SIGABRT)");
        assert!(said.lines().contains(&told.as_str()), "{said:#?}");
    }
    said.complains(&["rank 1", "signal 6 (SIGABRT)", "ending the job"]);
}

#[test]
fn a_failure_is_blamed_on_the_rank_that_died_first() {
    for on_death in ["end", "notify"] {
        let args = [
            "run",
            "-n",
            "3",
            "--on-death",
            on_death,
            "--",
            &probe(),
            "large",
        ];
        let said = say(&args).expect(137);
        let said = said.complains(&["rank 2", "without leaving the job: signal 9 (SIGKILL)"]);
        let others = |line: &&str| !line.contains("rank 2");
        let mut others = said.err.lines().filter(others);
        // They have left in good order before they failed.
        let wrong =
            |line: &str| line.contains("ending the job") || line.contains("without leaving");
        assert!(!others.any(wrong), "{said:#?}");
    }
}

#[test]
fn the_others_are_told_of_one_that_leaves() {
    for code in [0, 3] {
        let mut args = vec!["run", "-n", "3", "--on-death", "notify", "--"];
        let (probe, shown) = (probe(), code.to_string());
        args.extend([&probe, "leave", "1", &shown]);
        let said = say(&args).expect(code);
        for rank in [0, 2] {
            let told = format!("[{rank}] left: rank 1");
            assert!(said.lines().contains(&told.as_str()), "{said:#?}");
        }
    }
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut child = start("ignore", &["run", "-n", "2", "--", "sh", "-c", script]);
    read_until(&mut child, "ready", 2);
    signal(child.id(), Signal::TERM);
    finish(child).expect(143);
    none_left("ignore");
}

#[test]
fn a_rank_can_end_the_job_with_a_code() {
    let said = say(&["run", "-n", "2", "--", &probe(), "abort", "42"]).expect(42);
    said.complains(&["rank 0 asked for it"]);
}

#[test]
fn a_rank_that_only_notifies_lets_others_live() {
    let job = [
        "run",
        "-n",
        "2",
        "--on-death",
        "notify",
        "--",
        &probe(),
        "die",
        "1",
        "5",
    ];
    let mut child = start("notify", &job);
    read_until(&mut child, "[0] died: rank 1, exit code 5", 1);
    signal(child.id(), Signal::INT);
    finish(child).expect(5);
}

#[test]
fn a_rank_that_ends_before_it_joins_is_named() {
    let said = say(&["run", "-n", "3", "--", &probe(), "skip", "2"]).expect(1);
    assert!(
        said.out
            .contains("rank 2 ended (exit code 0) before it joined"),
        "{said:#?}"
    );
    said.complains(&["rank 2 ended (exit code 0) before it joined"]);
}

#[test]
fn ranks_that_do_not_join_in_time_are_named() {
    // Rank 0's input is ours; the other's is empty.
    let pick = format!(
        "if read line; then exec {} table; else exec sleep 100; fi",
        probe()
    );
    let mut command = portolan(&[
        "run",
        "-n",
        "2",
        "--join-timeout",
        "1",
        "--",
        "sh",
        "-c",
        &pick,
    ]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    finish(child)
        .expect(1)
        .complains(&["rank 1 did not join within 1 s"]);
}

#[test]
fn attaching_twice_is_an_error() {
    let said = say(&["run", "-n", "1", "--", &probe(), "twice"]).expect(0);
    assert!(
        said.out
            .contains("second: this process has joined its job before"),
        "{said:#?}"
    );
}

#[test]
fn a_child_of_a_rank_is_told_that_it_is_none() {
    let script = format!(
        "{0} table; PORTOLAN_JOB=fd:99 {0} table; PORTOLAN_JOB=x {0} table",
        probe()
    );
    let said = say(&["run", "-n", "1", "--", "sh", "-c", &script]).expect(1);
    said.complains(&[
        "names descriptor 99",
        "unset PORTOLAN_JOB",
        "PORTOLAN_JOB=\"x\" is not",
    ]);
}

#[test]
fn mixed_versions_are_named_on_both_sides() {
    let said = say(&["run", "-n", "1", "--", &probe(), "other-version"]).expect(1);
    assert!(
        said.out.contains("9.8.7") && said.out.contains("Version"),
        "{said:#?}"
    );
    said.complains(&[
        "mixed versions",
        "Portolan 9.8.7",
        concat!("Portolan ", env!("CARGO_PKG_VERSION")),
    ]);
}

#[test]
fn lines_stay_whole() {
    let said = say(&["run", "-n", "4", "--", &probe(), "lines", "500"]).expect(0);
    let mut expected: Vec<String> = (0..4)
        .flat_map(|rank| (0..500).map(move |n| format!("[{rank}] rank {rank} line {n}")))
        .collect();
    expected.sort_unstable();
    assert_eq!(said.lines(), expected);
}

#[test]
fn output_can_do_without_prefix() {
    let script = "printf 'a\\nb'; printf 'c' >&2";
    let said = say(&["run", "-n", "1", "--no-prefix", "--", "sh", "-c", script]).expect(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("a\nb", "c"));
    let said = say(&["run", "-n", "1", "--", "sh", "-c", script]).expect(0);
    assert_eq!(
        (said.out.as_str(), said.err.as_str()),
        ("[0] a\n[0] b\n", "[0] c\n")
    );
}

#[test]
fn a_reader_that_goes_away_ends_the_job() {
    let mut child = start("pipe", &["run", "-n", "2", "--", "sh", "-c", "yes"]);
    read_until(&mut child, "y", 3);
    drop(child.stdout.take());
    finish(child).expect(141);
    none_left("pipe");
}

#[test]
fn a_slow_reader_gets_all() {
    let job = ["run", "-n", "2", "--no-prefix", "--", "sh", "-c"];
    let script = "head -c 300000 /dev/zero; printf end";
    let child = start("slow", &[&job[..], &[script]].concat());
    // All ranks have long ended, and their pipes were emptied.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let said = finish(child).expect(0);
    assert_eq!(said.out.len(), 2 * 300_003);
    none_left("slow");
}

#[test]
fn ctrl_c_ends_a_job_whose_reader_has_stopped() {
    let mut child = start(
        "stuck",
        &["run", "-n", "1", "--", "sh", "-c", "yes | head -c 500000"],
    );
    read_until(&mut child, "y", 1);
    // The rank has ended; only its output is waited for.
    until(|| "the rank runs on".into(), || marked("stuck").len() <= 2);
    signal(child.id(), Signal::INT);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    none_left("stuck");
}

#[test]
fn ctrl_c_ends_all() {
    let mut child = start("ctrl-c", &["run", "-n", "3", "--", &probe(), "wait"]);
    read_until(&mut child, "waiting", 3);
    assert!(marked("ctrl-c").len() >= 4);
    signal(child.id(), Signal::INT);
    finish(child).expect(130).complains(&["interrupted"]);
    none_left("ctrl-c");
}

#[test]
fn a_killed_launcher_leaves_no_process() {
    // The rank is a grandchild: a script started it and waits.
    let script = format!("{} wait; echo unreachable", probe());
    let mut child = start("kill", &["run", "-n", "3", "--", "sh", "-c", &script]);
    read_until(&mut child, "waiting", 3);
    assert!(marked("kill").len() >= 7);
    signal(child.id(), Signal::KILL);
    child.wait().unwrap();
    none_left("kill");
}

#[test]
fn what_a_rank_leaves_running_is_ended() {
    say_marked(
        "orphan",
        &["run", "-n", "2", "--", "sh", "-c", "sleep 1000 & true"],
    );
    none_left("orphan");
}

fn say_marked(mark: &str, arguments: &[&str]) {
    finish(start(mark, arguments)).expect(0);
}

#[test]
fn the_secret_is_in_no_command_line_or_environment() {
    let mut child = start("secret", &["run", "-n", "2", "--", &probe(), "secret"]);
    let lines = read_until(&mut child, "secret", 2);
    let word = |line: &str, n: usize| line.split(' ').nth(n).unwrap().to_owned();
    let secret = word(&lines[0], 2);
    assert_eq!(secret, word(&lines[1], 2));
    assert_eq!(secret.len(), 64);
    assert_ne!(
        word(&lines[0], 4),
        word(&lines[1], 4),
        "lives are each rank's own"
    );
    let bytes: Vec<u8> = (0..32)
        .map(|i| u8::from_str_radix(&secret[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let holds = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|w| w == part);
    for pid in marked("secret") {
        for file in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert!(
                !holds(&text, secret.as_bytes()) && !holds(&text, &bytes),
                "{pid} {file}"
            );
        }
    }
    signal(child.id(), Signal::INT);
    finish(child).expect(130);
}

#[test]
fn what_another_host_says_does_not_steer_the_terminal() {
    let script = format!("/tmp/portolan-{}", crate::common::own_mark("steers"));
    fs::write(&script, "printf '\\033[2Jno\\033[31m way\\n' >&2; exit 255").unwrap();
    let ssh = format!("sh {script}");
    let job = ["run", "-v", "--hosts", "h9", "--ssh", &ssh, "--", "true"];
    let said = say(&job).expect(1);
    fs::remove_file(&script).unwrap();
    assert!(!said.err.contains('\x1b'), "{said:?}");
    said.complains(&[r"\u{1b}[2Jno\u{1b}[31m way"]);
}

#[test]
fn bad_input_is_refused() {
    let run = |arguments: &[&str]| say(&[&["run"], arguments].concat());
    run(&["-n", "0", "--", "true"])
        .expect(2)
        .complains(&["at least one rank", "-n 1"]);
    run(&["-n", "1000000", "--", "true"])
        .expect(2)
        .complains(&["1000000", "at most 4096"]);
    run(&["-n", "99999999999", "--", "true"])
        .expect(2)
        .complains(&["at most 4096"]);
    run(&["-n", "x", "--", "true"])
        .expect(2)
        .complains(&["--ranks"]);
    run(&["-n", "1", "--link", "rdma", "--", "true"])
        .expect(2)
        .complains(&["rdma", "auto, shm, udp"]);
    run(&["-n", "1"]).expect(2).complains(&["PROG"]);
    run(&["-n", "2", "--lab", "nowhere", "--", "true"])
        .expect(2)
        .complains(&[
            "lab nowhere does not exist",
            "portolan lab up NAME --hosts N",
        ]);
    run(&["-n", "2", "--lab", "../x", "--", "true"])
        .expect(2)
        .complains(&["cannot name a lab"]);
    run(&["-n", "2", "--", "no-such-program"])
        .expect(127)
        .complains(&["no-such-program not found"]);
    run(&["-n", "2", "--", "./no-such-program"])
        .expect(127)
        .complains(&["not found"]);
    run(&["-n", "2", "--", "/etc/passwd"])
        .expect(126)
        .complains(&["chmod +x"]);
    run(&["-n", "2", "--", "/etc"])
        .expect(126)
        .complains(&["/etc is a folder"]);
    run(&["-n", "1", "--", ""])
        .expect(2)
        .complains(&["name is empty", "./program"]);
    run(&["-n", "1", "--set", "x", "--", "true"])
        .expect(2)
        .complains(&["NAME=VALUE"]);
    let ring = example("ring");
    for (setting, answer) in [
        ("frames=31", "give 32 to 1048576 (frames)"),
        ("active_peers=0", "give 1 to 65536 (peers)"),
        ("packet_max=5", "give 0 or 1232 to 65507 (bytes)"),
        ("helper=maybe", "give on or off"),
        ("frame=64", "unknown setting frame"),
    ] {
        run(&["-n", "2", "--set", setting, "--", &ring])
            .expect(2)
            .complains(&["(--set)", answer]);
    }
    // What does nothing under this launcher would be believed to.
    run(&["-n", "2", "--set", "security=none", "--", &ring])
        .expect(2)
        .complains(&["use --security"]);
    let long = "a".repeat(33_000);
    for given in [["--set", &format!("trace={long}")], ["--interface", &long]] {
        let said = run(&[&["-n", "2"], &given[..], &["--", &ring]].concat());
        assert!(said.code > 0 && !said.err.contains("panicked"), "{said:#?}");
        assert!(said.err.len() < 6_000, "{said:#?}");
    }
}

#[test]
fn host_lists_with_errors_say_where() {
    let run = |arguments: &[&str]| say(&[&["run"], arguments].concat());
    run(&["--", "true"])
        .expect(2)
        .complains(&["how many ranks", "-n N"]);
    run(&["--hosts", "localhost:2", "-n", "3", "--", "true"])
        .expect(2)
        .complains(&["3 ranks", "2 slots (localhost:2)", "more slots"]);
    run(&["--hosts", "a,-oProxyCommand:2", "--", "true"])
        .expect(2)
        .complains(&["column 3", "begin with -"]);
    run(&["--hosts", "a,b", "--exclude", "c", "--", "true"])
        .expect(2)
        .complains(&["--exclude c", "(a, b)"]);
    run(&["-n", "1", "--exclude", "c", "--", "true"])
        .expect(2)
        .complains(&["--hosts, --hostfile or --lab"]);
    let file = format!("/tmp/portolan-hostfile-{}", std::process::id());
    run(&["--hostfile", &file, "--", "true"])
        .expect(2)
        .complains(&["cannot read the hostfile", &file]);
    fs::write(&file, "# two\nlocalhost:2\nnode slots=many\n").unwrap();
    run(&["--hostfile", &file, "--", "true"])
        .expect(2)
        .complains(&[&format!("{file}:3:12: "), "\"many\""]);
    fs::write(&file, "localhost slots=2 # here\n").unwrap();
    let said = run(&["--hostfile", &file, "--", "echo", "ahoy"]).expect(0);
    fs::remove_file(&file).unwrap();
    assert_eq!(said.lines(), ["[0] ahoy", "[1] ahoy"]);
    let output = portolan(&["run", "--hosts", "node", "--", "true"])
        .env("PORTOLAN_SSH", "no-such-ssh -p 1")
        .output()
        .unwrap();
    crate::common::Said::from(output)
        .expect(1)
        .complains(&["no-such-ssh is not installed", "--ssh"]);
}

#[test]
fn several_programs_make_one_job() {
    let script = "echo $0 $WHO";
    let job = ["run", "-n", "1", "-x", "WHO=me", "--report-bindings"];
    let first = ["--", "sh", "-c", script, "A"];
    let second = [":", "-n", "2", "--", "sh", "-c", script, "B"];
    let said = say(&[&job[..], &first, &second].concat()).expect(0);
    assert_eq!(said.lines(), ["[0] A me", "[1] B me", "[2] B me"]);
    let name = own_name();
    let place = |rank| format!("rank {rank}: host {name}, core ");
    said.complains(&[&place(0), &place(2)]);
    say(&["run", "-n", "1", "--", "true", ":", "true"])
        .expect(2)
        .complains(&["after a lone `:`", "-n 3 B"]);
    say(&["run", "-n", "4096", "--", "true", ":", "-n", "1", "true"])
        .expect(2)
        .complains(&["4097 ranks"]);
    let path = "PORTOLAN_SURELY_NOT_SET";
    say(&["run", "-n", "1", "-x", path, "--", "true"])
        .expect(2)
        .complains(&["is not set here"]);
}

#[test]
fn a_job_ends_when_its_time_is_over() {
    let before = std::time::Instant::now();
    say(&["run", "-n", "2", "--timeout", "1", "--", "sleep", "100"])
        .expect(124)
        .complains(&["its time is over (--timeout 1)"]);
    // Long before its ranks would have ended.
    assert!(before.elapsed() < std::time::Duration::from_secs(90));
}

#[test]
fn a_job_that_is_ended_waits_for_no_reader() {
    let run = |words: &[&str], both: bool| {
        let mut command = portolan(&[&["run", "-n", "2"], words].concat());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let error = if both {
            writer.try_clone().unwrap().into()
        } else {
            Stdio::piped()
        };
        let child = command.stdout(writer).stderr(error).spawn().unwrap();
        // It stays open, and nobody reads it.
        (child, reader)
    };
    // Its time is over, also where it ends for another reason before that.
    let fails = "yes & sleep 0.1; exit 3";
    for (words, both, code) in [
        (&["--timeout", "1", "--", "yes"][..], false, 124),
        (&["--timeout", "1", "--", "yes"], true, 124),
        (&["-v", "--timeout", "1", "--", "yes"], true, 124),
        (&["--timeout", "2", "--", "sh", "-c", fails], false, 3),
    ] {
        let (job, _unread) = run(words, both);
        Said::from(job.wait_with_output().unwrap()).expect(code);
    }
    // One signal is enough.
    let (mut job, unread) = run(&["-v", "--", "yes"], false);
    job_id(&mut job);
    until(
        || "the pipe is not full".into(),
        || rustix::io::ioctl_fionread(&unread).unwrap() > 60_000,
    );
    signal(job.id(), Signal::INT);
    Said::from(job.wait_with_output().unwrap()).expect(130);
}

#[test]
fn output_goes_to_files() {
    let folder = format!("/tmp/portolan-output-{}", std::process::id());
    let script = "printf 'a\\nb'; printf c >&2";
    let job = [
        "run", "-n", "2", "--output", &folder, "--", "sh", "-c", script,
    ];
    let said = say(&job).expect(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    for (file, wanted) in [("0.out", "a\nb"), ("1.out", "a\nb"), ("1.err", "c")] {
        let got = fs::read_to_string(format!("{folder}/{file}")).unwrap();
        assert_eq!(got, wanted, "{file}");
    }
    fs::remove_dir_all(&folder).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = portolan(&["run", "-n", "1", "--", "sh", "-c", "echo x; sleep 100"])
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    finish(output)
        .expect(1)
        .complains(&["No space left", "--output DIR"]);
}

#[test]
fn a_file_is_sorted_as_sort_does_it() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sort");
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (input, output) = (file("in"), file("out"));
    let sort = |ranks: &str, link: &str| {
        say(&[
            "run",
            "-n",
            ranks,
            "--link",
            link,
            "--",
            &example("samplesort"),
            &input,
            &output,
        ])
    };
    let mut word = 1_u64;
    let mut text = String::new();
    for _ in 0..200_000 {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{}\n", (word >> 40) as i64 - (1 << 23)));
    }
    let small = ["", "7", "2\n1\n", "\n3\n\n-5\n3\n"];
    for text in small.into_iter().chain([text.as_str()]) {
        std::fs::write(&input, text).unwrap();
        let mut expected: Vec<i64> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        expected.sort_unstable();
        for (ranks, link) in [("1", "auto"), ("3", "shm"), ("5", "udp")] {
            sort(ranks, link).expect(0);
            let sorted = std::fs::read_to_string(&output).unwrap();
            let sorted: Vec<i64> = sorted.lines().map(|n| n.parse().unwrap()).collect();
            assert!(sorted == expected, "{ranks} ranks over {link}");
        }
    }
    std::fs::write(&input, "1\n2x\n").unwrap();
    sort("2", "auto").expect(1).complains(&["2x", "byte 2"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_plate_cools_as_it_does_alone() {
    let picture = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("heat.png");
    let name = picture.to_str().unwrap();
    for (ranks, link) in [("1", "auto"), ("4", "shm"), ("3", "udp")] {
        let heat = example("heat");
        let said = say(&[
            "run", "-n", ranks, "--link", link, "--", &heat, "65", "50", name,
        ]);
        assert!(said.expect(0).out.contains("as computed alone"));
        let bytes = std::fs::read(&picture).unwrap();
        assert_eq!(&bytes[1..4], b"PNG");
        std::fs::remove_file(&picture).unwrap();
    }
    say(&["run", "-n", "3", "--", &example("heat"), "4"])
        .expect(1)
        .complains(&["too few"]);
}

#[test]
fn the_summary_says_which_lane_and_why() {
    let ring = example("ring");
    let run = |more: &[&str]| {
        let arguments = [&["run", "-n", "3", "-v"], more, &["--", &ring, "3"]].concat();
        say(&arguments).expect(0)
    };
    let lanes = |link: &str, why: &str| {
        [
            format!("lanes of rank 0: {link} to 1-2 ({why})"),
            format!("lanes of rank 1: {link} to 0, 2 ({why})"),
            format!("lanes of rank 2: {link} to 0-1 ({why})"),
            "3 of 3 ranks on 1 host ended, exit code 0".to_owned(),
        ]
    };
    let expect = |said: crate::common::Said, lanes: [String; 4]| {
        said.complains(&lanes.each_ref().map(String::as_str));
    };
    expect(run(&[]), lanes("shm", "same host: shared memory"));
    let udp = lanes("udp", "same host, but the job asks for udp");
    expect(run(&["--link", "udp"]), udp);
    // Without asking nothing is said.
    let quiet = say(&["run", "-n", "2", "--", &ring, "3"]).expect(0);
    assert_eq!(quiet.err, "");
}

#[test]
fn a_job_can_do_without_membarrier() {
    let output = portolan(&["run", "-n", "2", "--", &example("ring"), "100"])
        .env("PORTOLAN_DISABLE", "membarrier")
        .output()
        .unwrap();
    let said = crate::common::Said::from(output).expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
    let output = portolan(&["run", "-n", "1", "--", "true"])
        .env("PORTOLAN_DISABLE", "membarier")
        .output()
        .unwrap();
    crate::common::Said::from(output)
        .expect(2)
        .complains(&["no feature \"membarier\"", "membarrier"]);
}

#[test]
fn a_port_in_use_is_named() {
    let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let setting = format!("port={port}");
    let ring = example("ring");
    let said = say(&[
        "run", "-n", "2", "--link", "udp", "--set", &setting, "--", &ring, "1",
    ]);
    said.expect(1).complains(&[
        &format!("UDP port {port}"),
        "is in use",
        "choose another port",
    ]);
}
