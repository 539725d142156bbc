//! `bspcc`, `bspcxx` and `bsprun` in a folder as `make build` leaves it, and
//! `portolan bench bsp`, which uses them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::common::figures::{check_rows, figures, set, texts, turn, until_undisturbed};
use crate::common::{
    CLOSES_LATE, Said, TestLab, built, executable, finish, job_id, need_root, say, start,
    static_library, until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The folder with the command, the libraries, and what compiles and starts.
static TOOLS: LazyLock<PathBuf> = LazyLock::new(|| {
    let name = "libportolan_library.a";
    built(&scratch("tree"), "library", &static_library(), name)
});

/// An empty folder of a test's own.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bsp-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a command says.
fn heard(command: &mut Command) -> Said {
    Said::from(command.output().unwrap())
}

/// One of the commands, where nothing says where the library is.
fn tool(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(TOOLS.join(name));
    command.args(arguments).stdin(Stdio::null());
    command.envs([("PORTOLAN_TUNED", ""), CLOSES_LATE]);
    for variable in [
        "PKG_CONFIG_PATH",
        "LD_LIBRARY_PATH",
        "BSPCC_CC",
        "BSPCXX_CXX",
    ] {
        command.env_remove(variable);
    }
    command
}

/// What a command shows that it would run, word by word.
fn shown(name: &str, arguments: &[&str]) -> Vec<String> {
    let arguments = [&["--show"], arguments].concat();
    let said = heard(&mut tool(name, &arguments)).expect(0);
    said.out.split_whitespace().map(ToOwned::to_owned).collect()
}

#[test]
fn compilers_are_shown_with_what_they_need() {
    let compiles = shown("bspcc", &["--unsigned", "-c", "a.c"]);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("bsp/include");
    let include = format!("-I{}", include.display());
    assert_eq!(compiles, ["cc", &include, "-DBSP_UNSIGNED", "-c", "a.c"]);
    let links = shown("bspcxx", &["a.o", "-o", "a b"]);
    let folder = TOOLS.display();
    let (search, path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let words = [
        "c++",
        &include,
        "a.o",
        "-o",
        "'a",
        "b'",
        &search,
        "-lportolan",
        &path,
    ];
    assert_eq!(links, words);
    // Nothing is linked where there is no file.
    assert_eq!(shown("bspcc", &["-v"]), ["cc", &include, "-v"]);
    let mut other = tool("bspcc", &["--show", "-E", "a.c"]);
    let said = heard(other.env("BSPCC_CC", "ccache gcc")).expect(0);
    assert!(said.out.starts_with("ccache gcc -I"), "{said:?}");
    let mut missing = tool("bspcxx", &["a.cc"]);
    let said = heard(missing.env("BSPCXX_CXX", "no-such-compiler"));
    assert_eq!(said.code, 127, "{said:?}");
    assert!(said.err.contains("BSPCXX_CXX"), "{said:?}");
}

#[test]
fn what_starts_programs_is_shown() {
    let run = |arguments: &[&str]| {
        let words = shown("bsprun", arguments);
        assert_eq!(
            words[..2],
            [TOOLS.join("portolan").to_str().unwrap(), "run"]
        );
        words[2..].join(" ")
    };
    assert_eq!(run(&["-n", "4", "prog"]), "-n 4 -- prog");
    assert_eq!(run(&["-npes", "4", "prog", "-n"]), "-n 4 -- prog -n");
    assert_eq!(run(&["-n4", "--", "-prog"]), "-n4 -- -prog");
    let asked = [
        "--hosts",
        "a,b",
        "--transport=udp",
        "prog",
        "--transport",
        "x",
    ];
    assert_eq!(run(&asked), "--hosts a,b --link udp -- prog --transport x");
    let asked = ["--transport", "tcp", "-n", "2", "--profile", "/a b", "prog"];
    let words = "-n 2 -x BSP_TRANSPORT=tcp -x 'BSP_PROFILE=/a b' -- prog";
    assert_eq!(run(&asked), words);
}

/// Where the program begins is seen behind any option of `portolan run`.
#[test]
fn options_of_run_are_known_by_whether_they_have_a_value() {
    let help = say(&["run", "--help"]).expect(0).out;
    let (_, options) = help.split_once("Options:\n").unwrap();
    let is_option = |line: &&str| line.trim_start().starts_with('-') && line.contains("--");
    let mut options_seen = 0;
    for line in options.lines().filter(is_option) {
        let mut words = line.split_whitespace();
        let Some(name) = words.find(|it| it.starts_with("--") && it.len() > 2) else {
            continue;
        };
        if name == "--help" {
            continue;
        }
        options_seen += 1;
        let given = match words.next() {
            Some(_) => vec![name, "VALUE"],
            None => vec![name],
        };
        let shown = shown("bsprun", &[&given[..], &["prog", "--show"]].concat());
        let expected = [&given[..], &["--", "prog", "--show"]].concat();
        assert_eq!(shown[2..], expected, "{line}");
    }
    assert!(options_seen > 20, "{options_seen}");
}

#[test]
fn wrong_arguments_are_named() {
    let cases: [(&str, &[&str], &str); 11] = [
        ("bsprun", &["-n", "./x"], "give the number of processes"),
        ("bsprun", &["--profile", "-n", "2", "x"], "give the folder"),
        ("bsprun", &["--transprt", "shm", "x"], "--transport"),
        ("bsprun", &["--profil=/x", "x"], "no such option"),
        (
            "bsprun",
            &["--transport", "ib", "-n", "2", "x"],
            "shm, udp, xdp or tcp",
        ),
        ("bsprun", &["--transport=", "x"], "shm, udp, xdp or tcp"),
        ("bsprun", &["--profile=", "x"], "folder"),
        ("bsprun", &["-n"], "-n: give its value"),
        ("bsprun", &["-n", "2"], "no program"),
        ("bspcc", &[], "nothing to compile"),
        ("bspcxx", &["--show"], "nothing to compile"),
    ];
    for (name, arguments, words) in cases {
        let said = heard(&mut tool(name, arguments));
        assert_eq!(said.code, 2, "{name} {arguments:?}: {said:?}");
        assert!(said.err.contains(words), "{name} {arguments:?}: {said:?}");
    }
    for name in ["bspcc", "bspcxx", "bsprun"] {
        let help = heard(&mut tool(name, &["--help"])).expect(0).out;
        assert!(help.contains(&format!("Usage: {name} ")), "{help}");
        let version = heard(&mut tool(name, &["--version"])).expect(0).out;
        assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    }
}

/// Of MulticoreBSP's header, in C and C++.
const PROGRAM: &str = r#"
#include <mcbsp.h>
#include <stdio.h>

int main(void)
{
    unsigned self, heard = 7;

    bsp_begin(bsp_nprocs());
    self = bsp_pid();
    bsp_hpsend((self + 1) % bsp_nprocs(), NULL, &self, sizeof self);
    bsp_sync();
    bsp_move(&heard, sizeof heard);
    printf("%u heard %u\n", self, heard);
    bsp_end();
    return 0;
}
"#;

#[test]
fn programs_are_compiled_and_run() {
    let folder = scratch("programs");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let source = path("heard.c");
    fs::write(&source, PROGRAM).unwrap();
    let warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
    for (compiler, language) in [("bspcc", "c"), ("bspcxx", "c++")] {
        let (object, program) = (path(&format!("{compiler}.o")), path(compiler));
        let compile = ["-x", language, "-c", &source, "-o", &object];
        heard(&mut tool(compiler, &[&warnings[..], &compile].concat())).expect(0);
        heard(&mut tool(compiler, &[&object, "-o", &program])).expect(0);
        for transport in ["shm", "udp"] {
            let arguments = ["--transport", transport, "-npes", "2", &program];
            let said = heard(&mut tool("bsprun", &arguments)).expect(0);
            for line in ["0 heard 1\n", "1 heard 0\n"] {
                assert!(said.out.contains(line), "{compiler}: {said:?}");
            }
        }
    }
    // The code is that of the program.
    let said = heard(&mut tool("bsprun", &["-n", "2", "sh", "-c", "exit 7"]));
    assert_eq!(said.code, 7, "{said:?}");
}

#[test]
fn the_environment_says_what_the_library_is_to_do() {
    let folder = scratch("environment");
    let script = r#"echo "<$BSP_TRANSPORT $BSP_PROFILE>""#;
    let print = ["--no-prefix", "-n", "1", "sh", "-c", script];
    let run = |options: &[&str]| {
        let mut command = tool("bsprun", &[options, &print].concat());
        command.current_dir(&folder).env("BSP_TRANSPORT", "tcp");
        heard(&mut command).expect(0).out
    };
    let profile = format!("<tcp {}/found>\n", folder.display());
    assert_eq!(run(&["--transport", "tcp", "--profile", "found"]), profile);
    // What was asked for counts more than what is set.
    assert_eq!(run(&["--transport", "shm"]), "< >\n");
    assert_eq!(run(&[]), "<tcp >\n");
}

/// Waits in its first life, and begins in the next.
const RESTARTED: &str = r#"
#define _POSIX_C_SOURCE 200809L
#include <bsp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char *argv[])
{
    char path[4096];
    FILE *file;

    (void)argc;
    bsp_nprocs();
    snprintf(path, sizeof path, "%s/life-of-%s", argv[1], getenv("PORTOLAN_RANK"));
    if (access(path, F_OK) != 0) {
        file = fopen(path, "w");
        if (file == NULL || fclose(file) != 0)
            return 3;
        for (;;)
            pause();
    }
    bsp_begin(2);
    bsp_end();
    return 0;
}
"#;

/// The others do not begin again with it.
#[test]
fn a_process_that_was_started_again_is_refused() {
    need_root();
    let lab = TestLab::up(TestLab::own("t-bsprsp"), "3");
    let folder = scratch("restarted");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (source, program, room) = (path("restarted.c"), path("restarted"), path(""));
    fs::write(&source, RESTARTED).unwrap();
    heard(&mut tool("bspcc", &[&source, "-o", &program])).expect(0);
    let options = [
        "--respawn",
        "1",
        "--lab",
        lab.0,
        "--hosts",
        "h0:1,h1:1,h2:1",
    ];
    let words = [
        &["run", "-v"],
        &options[..],
        &["-n", "2", "--", &program, &room],
    ]
    .concat();
    let mut job = start("bsp-restarted", &words);
    let id = job_id(&mut job);
    let lives = || (0..2).all(|rank| folder.join(format!("life-of-{rank}")).exists());
    until(|| format!("{:?}", job.try_wait()), lives);
    say(&["job", &id, "exclude", "h1"]).expect(0);
    let said = finish(job).expect(1);
    let why = "bsp_begin: this process was started again, and the others do not begin again with \
               it: run without --respawn";
    assert!(said.err.contains(why), "{said:?}");
}

/// A bench with a few short slices, which keeps its figures, and all that it makes
/// meanwhile, in `room`.
fn bench(room: &Path, arguments: &[&str]) -> Said {
    let _turn = turn();
    let short = ["bench", "bsp", "--slices", "2", "--slice-ms", "2"];
    let temporary = room.join("temporary");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = tool("portolan", &[&short[..], arguments].concat());
    command
        .env("XDG_CACHE_HOME", room)
        .env("TMPDIR", &temporary);
    let said = heard(&mut command);
    let left = fs::read_dir(&temporary).unwrap().count();
    assert_eq!(left, 0, "it leaves files behind: {said:?}");
    said
}

/// Whether the library minds the name of its transport, as one with TCP does. Without it
/// TCP cannot be measured, and the bench refuses to.
static WITH_TCP: LazyLock<bool> = LazyLock::new(|| {
    let program = scratch("transport").join("probe");
    let program = program.to_str().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bsp/probe.c");
    heard(&mut tool("bspcc", &["-O2", "-o", program, source])).expect(0);
    let none = ["-x", "BSP_TRANSPORT=none-such", "-n", "2", program, "1"];
    heard(&mut tool("bsprun", &none)).code != 0
});

const METRICS: [&str; 9] = [
    "r_mflop_s",
    "l_us",
    "exchange_us",
    "g_word_us",
    "g_mb_s",
    "g_hp_mb_s",
    "total_exchange_us",
    "scattered_us",
    "whole_us",
];

/// What the library says of the machine.
const TOLD: &str = r#"
#include <bsp.h>

int main(void)
{
    bsp_begin(bsp_nprocs());
    if (bsp_pid() == 0)
        printf("%f %f %f\n", bsp_s(), bsp_l(), bsp_g());
    bsp_end();
    return 0;
}
"#;

#[test]
fn a_superstep_stands_beside_others_and_is_kept() {
    let room = scratch("bench");
    let json = room.join("bench.json");
    // Ours again, as if it were another.
    let (tcp, count) = if *WITH_TCP { ("tcp,", 3) } else { ("", 2) };
    let vs = format!("{tcp}again={}", TOOLS.display());
    let arguments = [
        "--link",
        "shm",
        "--vs",
        &vs,
        "--json",
        json.to_str().unwrap(),
    ];
    let run = || {
        let said = bench(&room, &arguments).expect(0);
        let json = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        (json, said.out)
    };
    // A disturbed superstep may seem longer than one with puts: then they cost nothing.
    let all_cost = |json: &Value| figures(json, "g_word_us").iter().all(|(_, us)| *us > 0.0);
    let (json, table) = until_undisturbed(run, all_cost);
    check_rows(&json);
    assert_eq!(json["bench"], "bsp");
    let systems = ["portolan-shm", "again", "bsp-tcp"];
    assert_eq!(texts(&json, "rows", "system"), set(&systems[..count]));
    let references = ["round_trip_us", "barrier_us", "matched_mb_s"];
    let all = [&METRICS[..], &references].concat();
    assert_eq!(texts(&json, "rows", "metric"), set(&all));
    let over = [
        "round-trip",
        "barrier",
        "matched",
        "one-put",
        "again",
        "bsp-tcp",
    ];
    assert_eq!(texts(&json, "ratios", "over"), set(&over[..count + 3]));
    for metric in METRICS {
        assert_eq!(figures(&json, metric).len(), count, "{metric}: {json}");
    }
    let ours = |metric| figures(&json, metric)[0].1;
    // Units are right: many puts take longer than one, and nothing is faster than any
    // machine.
    assert!(ours("scattered_us") > ours("g_word_us"), "{json}");
    assert!(ours("r_mflop_s") < 1e6 && ours("g_mb_s") < 1e6, "{json}");
    let kept = fs::read_to_string(room.join("portolan/bsp")).unwrap();
    let links: Vec<&str> = kept.lines().map(|line| &line[..6]).collect();
    assert_eq!(links, ["shm 2 ", "tcp 2 "][..count - 1]);
    let shm = kept.lines().next().unwrap();
    let numbers = shm.strip_prefix("shm 2 ").unwrap().split(' ');
    let numbers: Vec<f64> = numbers.map(|it| it.parse().unwrap()).collect();
    let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    for (number, metric) in numbers
        .iter()
        .zip(["r_mflop_s", "l_us", "g_word_us", "g_mb_s"])
    {
        assert!(close(*number, ours(metric)), "{metric}: {kept}");
    }
    // Programs are told.
    let (source, program) = (room.join("told.c"), room.join("told"));
    fs::write(&source, TOLD).unwrap();
    let [source, program] = [&source, &program].map(|path| path.to_str().unwrap());
    heard(&mut tool("bspcc", &["-o", program, source])).expect(0);
    let arguments = ["--transport", "shm", "--no-prefix", "-n", "2", program];
    let told = heard(tool("bsprun", &arguments).env("XDG_CACHE_HOME", &room)).expect(0);
    let told: Vec<f64> = (told.out.split_whitespace())
        .map(|it| it.parse().unwrap())
        .collect();
    let [r, l, g, _] = numbers[..] else {
        panic!("{kept}");
    };
    for (told, kept) in told.iter().zip([r, l * r, g * r]) {
        assert!(close(*told, kept), "{told} and {kept}");
    }
    assert_eq!(told.len(), 3);
    assert!(
        table.contains("shm with 2 processes are kept in"),
        "{table}"
    );
}

#[test]
fn a_bench_of_what_is_not_there_is_refused() {
    let room = scratch("refused");
    let ours = TOOLS.display();
    let twice = format!("a={ours},a={ours}");
    for (arguments, word) in [
        (&["-n", "1"][..], "2 to 4096"),
        (&["-n", "5000"], "2 to 4096"),
        (&["--vs", "udp"], "NAME=DIR"),
        (&["--vs", &twice], "give each its own"),
        (
            &["--vs", "a=/nonexistent"],
            "there is no bspcc in /nonexistent",
        ),
        (&["--link", "xdp"], "--lab"),
        (&["--lab", "t-none"], "does not exist"),
    ] {
        let said = bench(&room, arguments);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(word), "{arguments:?}: {said:?}");
    }
    if !*WITH_TCP {
        let said = bench(&room, &["--vs", "tcp"]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("has no kernel TCP"), "{said:?}");
    }
    // One that compiles and does not run.
    let other = room.join("other");
    fs::create_dir(&other).unwrap();
    symlink(TOOLS.join("bspcc"), other.join("bspcc")).unwrap();
    symlink("/bin/false", other.join("bsprun")).unwrap();
    let said = bench(&room, &["--vs", &format!("broken={}", other.display())]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.contains("broken: the probe with 2 processes"),
        "{said:?}"
    );
    assert!(!room.join("portolan").exists(), "nothing was measured");
}

/// Also while the bench has no job of its own, and only waits for the program.
#[test]
fn a_bench_that_is_to_end_ends() {
    let room = scratch("ended");
    let long = ["bench", "bsp", "--link", "shm", "--slices", "10000"];
    let mut command = tool("portolan", &long);
    command.env("XDG_CACHE_HOME", &room).env("TMPDIR", &room);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = command.spawn().unwrap();
    let program = format!("/proc/{}/fd/", bench.id());
    let runs = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let words = all.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        words
            .map(|it| String::from_utf8_lossy(&it).into_owned())
            .any(|it| it.contains(&program))
    };
    until(|| "the program never runs".to_owned(), runs);
    kill_process(Pid::from_child(&bench), Signal::TERM).unwrap();
    until(
        || "the bench goes on".to_owned(),
        || bench.try_wait().unwrap().is_some(),
    );
    let said = Said::from(bench.wait_with_output().unwrap());
    assert_eq!(said.code, 128 + 15, "{said:?}");
    assert!(said.err.contains("terminated"), "{said:?}");
    until(|| "the program goes on".to_owned(), || !runs());
    assert_eq!(
        fs::read_dir(&room).unwrap().count(),
        0,
        "it leaves files behind"
    );
}

/// One whose launcher is MPICH's, which reaches both hosts.
#[test]
fn in_a_lab_others_are_told_of_the_hosts() {
    need_root();
    let lab = TestLab::up(TestLab::own("t-bsp"), "2");
    let room = scratch("lab");
    let other = room.join("other");
    fs::create_dir(&other).unwrap();
    symlink(TOOLS.join("bspcc"), other.join("bspcc")).unwrap();
    let hosts = room.join("hosts");
    let script = format!(
        "mpiexec.hydra -n 2 hostname > {}\nexec mpiexec.hydra \"$@\"",
        hosts.display()
    );
    executable(other.join("bsprun"), &script);
    let tcp = if *WITH_TCP { "tcp," } else { "" };
    let vs = format!("{tcp}again={}", other.display());
    let said = bench(&room, &["--lab", lab.0, "--vs", &vs]).expect(0);
    for words in ["portolan-udp", "portolan-udp / again"] {
        assert!(said.out.contains(words), "{words}: {said:?}");
    }
    assert_eq!(said.out.contains("bsp-tcp"), *WITH_TCP, "{said:?}");
    let named = fs::read_to_string(hosts).unwrap();
    let mut named: Vec<&str> = named.lines().collect();
    named.sort_unstable();
    assert_eq!(named, ["h0", "h1"]);
}

/// `examples/bsp/tables`, with small problems. No figure is judged.
#[test]
fn tables_of_programs_are_made_over_each_link() {
    need_root();
    let lab = TestLab::up(TestLab::own("t-bsptab"), "2");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bsp/tables");
    let path = std::env::var("PATH").unwrap();
    let tables = |arguments: &[&str]| {
        let mut command = Command::new(script);
        command.args(arguments).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", TOOLS.display()));
        command.envs([("PORTOLAN_TUNED", ""), CLOSES_LATE]);
        heard(&mut command)
    };
    let other = format!("other={}", TOOLS.display());
    let said = tables(&["-q", "-p", "2", "--vs", &other, "--lab", lab.0]).expect(0);
    let table = said.out.split("Table 1").nth(1).expect("there is one");
    for (row, program) in table.lines().skip(2).zip(["lu", "fft", "psrs", "cg"]) {
        let fields: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(fields[..2], [program, "2"], "{}", said.out);
        assert_eq!(fields.len(), 10, "{row}");
        let figures = fields[2..].iter().map(|it| it.parse::<f64>().unwrap());
        assert!(figures.into_iter().all(|it| it > 0.0), "{row}");
    }
    tables(&["--vs", "other"])
        .expect(2)
        .complains(&["NAME=DIR"]);
    assert!(tables(&["--help"]).expect(0).out.contains("--vs NAME=DIR"));
    tables(&["-p"]).expect(2).complains(&["give its value"]);
}
