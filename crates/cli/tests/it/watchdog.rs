//! `scripts/bounded.sh`, under which the modules and steps of `make test` run, `scripts/results.sh`,
//! which tells what came of them, and `scripts/left.sh`, which finds what they leave.

use std::fs;
use std::process::{Command, Output};

use crate::common::{executable, need_root};

fn bash(script: &str) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new("bash")
        .args(["-c", script])
        .env_remove("PORTOLAN_TEST_BOUND")
        .current_dir(root)
        .output()
        .unwrap()
}

fn bounded(seconds: u32, script: &str) -> (i32, String) {
    let output = bash(&format!(
        "source scripts/bounded.sh; bounded {seconds} 'the step' {script}"
    ));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

/// Processes with this argument.
fn running(argument: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter(|entry| {
            let path = entry.as_ref().unwrap().path().join("cmdline");
            let line = std::fs::read(path).unwrap_or_default();
            line.split(|&b| b == 0).any(|a| a == argument.as_bytes())
        })
        .count()
}

#[test]
fn a_step_that_ends_keeps_its_code() {
    assert_eq!(bounded(60, "true"), (0, String::new()));
    assert_eq!(bounded(60, "sh -c 'exit 3'").0, 3);
}

#[test]
fn a_step_that_hangs_is_named_and_ended() {
    // A number that is nobody else's argument.
    let number = format!("8653{}", std::process::id());
    let hang = format!(
        "sh -c 'setsid tail -f /dev/null --pid=1 -s {number} & tail -f /dev/null -s {number}'"
    );
    let (code, said) = bounded(5, &hang);
    assert_eq!(code, 124, "{said}");
    assert!(
        said.contains("HUNG: \"the step\"") && said.contains(&format!("/dev/null -s {number}")),
        "{said}"
    );
    // A stack, or at least what the kernel says of it.
    assert!(said.contains("#0") || said.contains("waits in"), "{said}");
    assert_eq!(running(&number), 0);
}

#[test]
fn a_step_that_leaves_a_process_fails() {
    let number = format!("8654{}", std::process::id());
    let (code, said) = bounded(
        60,
        &format!("sh -c 'setsid sleep {number} >/dev/null 2>&1 & true'"),
    );
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("left processes behind") && said.contains(&format!("sleep {number}")),
        "{said}"
    );
    assert_eq!(running(&number), 0);
}

/// Nobody runs the traps of whoever is bounded, before it ends itself.
#[test]
fn a_step_that_ends_at_once_leaves_traps_alone() {
    let script = "source scripts/bounded.sh
        trap 'echo trapped' EXIT
        for i in $(seq 20); do bounded 60 step true; done
        echo done";
    let output = bash(script);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "done\ntrapped\n");
}

/// What programs say in the words of Rust's test harness.
const PROGRAMS: [(&str, &str); 4] = [
    ("well", "echo 'test result: ok. 3 passed; 0 failed;'"),
    (
        "badly",
        "echo '---- two stdout ----'; echo 'it panicked at a.rs:1:2:'; echo 'since it is wrong'
         echo 'test result: FAILED. 1 passed; 1 failed;'; exit 101",
    ),
    ("never", "tail -f /dev/null"),
    ("alone", "exit 0"),
];

#[test]
fn all_programs_run_and_what_failed_is_listed_at_the_end() {
    let folder = std::env::temp_dir().join(format!("portolan-results-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    for (name, script) in PROGRAMS {
        let program = folder.join(format!("{name}-0123456789abcdef"));
        executable(&program, script);
    }
    let at = folder.display();
    let names = PROGRAMS.map(|(name, _)| name).join(" ");
    // As cargo runs them, which goes on and fails in the end.
    let output = bash(&format!(
        "source scripts/bounded.sh; source scripts/results.sh
         export PORTOLAN_TEST_RESULTS={at}/results PORTOLAN_TEST_SECONDS=5 CARGO_PKG_NAME=crate
         export PORTOLAN_TEST_TIMES={at}/times
         touch {at}/results
         like_cargo() {{
             local code=0 name
             for name in {names}; do
                 scripts/program.sh {at}/$name-0123456789abcdef || code=101
             done
             return $code
         }}
         part 600 first like_cargo
         part 600 second sh -c 'echo why; exit 4'
         part 600 third sh -c 'echo \"test result: ok. 7 passed; 0 failed;\"'
         tell_results"
    ));
    let times = fs::read_to_string(folder.join("times")).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let kind = |line: &str| line.split('\t').next().map(str::to_owned);
    let kinds: Vec<_> = times.lines().filter_map(kind).collect();
    let first = ["program", "program", "program", "program", "step"];
    assert_eq!(kinds, [&first[..], &["step"; 2]].concat(), "{times}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let (_, end) = said.split_once("=== what ran\n").unwrap();
    let expected = "\
first: 5 tests passed, 2 failed, in 4 programs
second: 0 tests passed, 1 failed, in 1 program
third: 7 tests passed, 0 failed, in 1 program

=== what failed
crate badly: two
crate never: it hung and was ended, see \"HUNG\" above
second: exit code 4, see above
--- why: crate badly
it panicked at a.rs:1:2:
since it is wrong
test result: FAILED. 1 passed; 1 failed;
--- the end of what it said: second
why
";
    assert_eq!(end, expected, "{said}");
}

/// As Rust's test harness, with three tests in two modules. One of the first module ends the
/// process, whether it runs with others or alone.
const CRASHES: &str = "# report-time
case \"$*\" in
*--list*) printf 'first::one: test\\nfirst::two: test\\nsecond::three: test\\n' ;;
*three*) echo 'test result: ok. 1 passed; 0 failed;' ;;
*two*) kill -SEGV $$ ;;
*one*) echo 'test result: ok. 1 passed; 0 failed;' ;;
esac";

#[test]
fn a_module_that_crashes_is_run_again_test_by_test() {
    let folder = std::env::temp_dir().join(format!("portolan-modules-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let program = folder.join("it-0123456789abcdef");
    executable(&program, CRASHES);
    let at = folder.display();
    let output = bash(&format!(
        "source scripts/bounded.sh; source scripts/results.sh; source scripts/groups.sh
         export PORTOLAN_TEST_RESULTS={at}/results
         unset PORTOLAN_TEST_TIMES
         touch {at}/results
         modules() {{
             for module in first second; do
                 printf '%s\t%s\t%s\t%s\n' {at} crate {at}/it-0123456789abcdef $module
             done | run_groups 2
         }}
         part 600 step modules
         tell_results"
    ));
    fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, end) = said.split_once("=== what ran\n").unwrap();
    let expected = "\
step: 2 tests passed, 1 failed, in 2 programs

=== what failed
crate first: first::two
--- why: crate first
panicked at: its process ended with exit code 139
";
    assert_eq!(end, expected, "{said}");
}

#[test]
fn a_lab_that_is_left_is_found() {
    need_root();
    let number = std::process::id();
    let results = std::env::temp_dir().join(format!("portolan-left-{number}"));
    fs::write(results.with_extension("pids"), format!("1\n{number}\n")).unwrap();
    let left = || {
        bash(&format!(
            "source scripts/left.sh; PORTOLAN_TEST_RESULTS={}; nothing_is_left $(date +%s)",
            results.display()
        ))
    };
    let name = format!("ptl-t-left-{number}-h0");
    let netns = |what: &str| {
        let status = Command::new("ip").args(["netns", what, &name]).status();
        assert!(status.unwrap().success(), "{what} {name}");
    };
    netns("add");
    let found = left();
    netns("delete");
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!(
            "labs are up, take them down (portolan lab down NAME): t-left-{number}\n"
        )),
        "{said}"
    );
    let none = labs_of(&left());
    assert!(none.is_empty(), "{none}");
    fs::remove_file(results.with_extension("pids")).unwrap();
}

/// What is said of labs: files of shared memory may be those of tests that run meanwhile.
fn labs_of(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let labs = said.lines().filter(|line| line.starts_with("labs"));
    labs.collect()
}
