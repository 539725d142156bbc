//! What commands find and print, where nobody reads it or nothing can be written.
//! The lab needs root.

use std::fs::{self, File};
use std::io::pipe;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{
    Said, TestLab, finish, job_id, measuring, own_mark, portolan, probe, read_until, signal, start,
};
use rustix::process::Signal;

/// What the command says to `out`.
fn said_to(command: &mut Command, out: Stdio) -> Said {
    let started = command.stdout(out).stderr(Stdio::piped()).spawn();
    finish(started.unwrap())
}

#[test]
fn what_is_right_ends_silently_without_a_reader_and_says_why_on_a_full_disk() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own_mark("closed"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let name = folder.to_str().unwrap();
    // So that there is a lab and a job to tell of.
    let lab = TestLab::up("closed", "2");
    let mut job = start("closed", &["run", "-v", "-n", "2", "--", &probe(), "wait"]);
    let id = job_id(&mut job);
    read_until(&mut job, "waiting", 2);
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
        &["top", "--once", &id],
        &["top", "--dump", &id],
        &["top", "--dump", "--json", &id],
        &["node", "--check"],
        &measuring(&format!("{name}/latency.json")),
        &["report", name],
        // It prints as it does when it has measured for a while.
        &["tune", "--forget"],
    ] {
        let prints = said_to(&mut portolan(words), Stdio::piped());
        assert!(!prints.out.is_empty(), "{words:?}: {prints:#?}");
        // Its reader is gone before it writes.
        let closed = Stdio::from(pipe().unwrap().1);
        let unread = said_to(&mut portolan(words), closed);
        assert_eq!(unread.code, prints.code, "{words:?}: {unread:#?}");
        assert_eq!(unread.err, prints.err, "{words:?}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let said = said_to(&mut portolan(words), full.into());
        let said = said.expect(1).complains(&["No space left", "elsewhere"]);
        assert_eq!(said.err.lines().count(), 1, "{words:?}: {said:#?}");
    }
    let lists = said_to(&mut portolan(&["lab", "list"]), Stdio::piped());
    assert!(lists.out.contains(lab.0), "{lists:#?}");
    let lists = said_to(&mut portolan(&["top", "--list"]), Stdio::piped());
    assert!(lists.out.contains(&id), "{lists:#?}");
    signal(job.id(), Signal::TERM);
    finish(job);
    fs::remove_dir_all(&folder).unwrap();
}
