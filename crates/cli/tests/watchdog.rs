//! `scripts/bounded.sh`, under which the steps of `make test` run.

use std::process::Command;
use std::time::{Duration, Instant};

fn bounded(seconds: u32, script: &str) -> (i32, String) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let source = format!("source scripts/bounded.sh; bounded {seconds} 'the step' {script}");
    let output = Command::new("bash")
        .args(["-c", &source])
        .env_remove("PORTOLAN_STEP")
        .current_dir(root)
        .output()
        .unwrap();
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
    let before = Instant::now();
    let hang = "sh -c 'setsid tail -f /dev/null --pid=1 -s 86531 & tail -f /dev/null -s 86531'";
    let (code, said) = bounded(2, hang);
    assert_eq!(code, 124, "{said}");
    assert!(
        said.contains("HUNG: \"the step\"") && said.contains("/dev/null -s 86531"),
        "{said}"
    );
    // A stack, or at least what the kernel says of it.
    assert!(said.contains("#0") || said.contains("waits in"), "{said}");
    assert!(before.elapsed() < Duration::from_secs(60));
    assert_eq!(running("86531"), 0);
}

#[test]
fn a_step_that_leaves_a_process_fails() {
    let (code, said) = bounded(60, "sh -c 'setsid sleep 86532 >/dev/null 2>&1 & true'");
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("left processes behind") && said.contains("sleep 86532"),
        "{said}"
    );
    assert_eq!(running("86532"), 0);
}
