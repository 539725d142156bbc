//! `portolan tune`, and what jobs and `doctor` make of its files. The part in a
//! lab needs root.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Said, TestLab, portolan};
use serde_json::Value;

/// A folder that a test has for itself.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tuned-{name}"));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn say(&self, arguments: &[&str]) -> Said {
        self.say_with(arguments, &[])
    }

    fn say_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Said {
        let mut command = portolan(arguments);
        let command = command.env("PORTOLAN_TUNED", &self.0);
        let output = command.envs(environment.iter().copied()).output();
        Said::from(output.unwrap())
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.0) else {
            return Vec::new();
        };
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The file of a link on this host.
    fn file(&self, link: &str) -> PathBuf {
        let names = rustix::system::uname();
        let host = names.nodename().to_str().unwrap().to_owned();
        let domain = names.domainname().to_str().unwrap();
        let host = match domain {
            "" | "(none)" => host,
            domain => format!("{host}.{domain}"),
        };
        self.0.join(format!("{host}-{link}.conf"))
    }

    fn write(&self, link: &str, text: &str) {
        fs::create_dir_all(&self.0).unwrap();
        fs::write(self.file(link), text).unwrap();
    }

    /// The line of `doctor` about a subject.
    fn doctor(&self, subject: &str, environment: &[(&str, &str)]) -> String {
        let said = self.say_with(&["doctor"], environment);
        let mut lines = said.out.lines();
        let found = lines.find(|line| line.split_whitespace().nth(1) == Some(subject));
        found
            .unwrap_or_else(|| panic!("no {subject}: {said:#?}"))
            .to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn json_of(name: &str) -> (PathBuf, impl Fn() -> Value + use<>) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tune-{name}.json"));
    let read = file.clone();
    (file, move || {
        serde_json::from_slice(&fs::read(&read).unwrap()).unwrap()
    })
}

/// Every setting of the link has a finding that says why.
fn check(found: &Value, link: &str) {
    assert_eq!(found["link"], link);
    let lane = if link == "shm" { "shm" } else { "net" };
    let settings = ["whole", "first", "second"].map(|it| format!("push_{lane}_{it}"));
    let others: &[&str] = match link {
        "shm" => &["share_min"],
        _ => &["pull_window", "pull_chunk"],
    };
    let findings = found["findings"].as_array().unwrap();
    let names: Vec<&str> = findings
        .iter()
        .map(|it| it["setting"].as_str().unwrap())
        .collect();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    assert_eq!(names, [&settings[..], others].concat());
    for it in findings {
        let changed = it["found"] != it["default"];
        assert_eq!(changed, it["gain"].is_f64(), "{it}");
        assert!(!changed || it["gain"].as_f64().unwrap() <= 0.95, "{it}");
        assert!(it["why"].as_str().unwrap().contains("bytes"), "{it}");
    }
}

#[test]
fn what_is_found_is_kept_and_forgotten() {
    let folder = Folder::new("kept");
    let (file, json) = json_of("kept");
    let file = file.to_str().unwrap();
    let said = folder
        .say(&["tune", "--dry-run", "--rounds", "1", "--json", file])
        .expect(0);
    check(&json(), "shm");
    assert!(
        said.out.contains("nothing was kept (--dry-run)"),
        "{said:#?}"
    );
    // A whole command, or none.
    let whole = said.out.contains("; to use it: portolan run --set ");
    let ending = match whole {
        true => " -- PROG\n",
        false => "(--dry-run); the defaults suit\n",
    };
    assert!(said.out.ends_with(ending), "{said:#?}");
    assert_eq!(folder.names().len(), 0);

    let said = folder
        .say(&["tune", "--rounds", "1", "--json", file])
        .expect(0);
    let found = json();
    check(&found, "shm");
    let path = folder.file("shm");
    assert!(
        said.out.contains(&format!("kept in {}", path.display())),
        "{said:#?}"
    );
    assert_eq!(folder.names().len(), 1);
    // The file has what differs, and why.
    let text = fs::read_to_string(&path).unwrap();
    for it in found["findings"].as_array().unwrap() {
        let name = it["setting"].as_str().unwrap();
        let line = format!("\n{name} = {}\n", it["found"]);
        assert_eq!(text.contains(&line), it["found"] != it["default"], "{text}");
        assert!(text.contains(&format!("# {name}: ")), "{text}");
    }
    assert!(folder.doctor("tuned-shm", &[]).starts_with("ok "));

    let said = folder.say(&["tune", "--forget", "--link", "udp"]).expect(0);
    assert!(said.out.contains("nothing was kept"), "{said:#?}");
    let said = folder.say(&["tune", "--forget"]).expect(0);
    assert!(said.out.contains("removed"), "{said:#?}");
    assert_eq!(folder.names().len(), 0);
    assert!(
        folder
            .doctor("tuned-shm", &[])
            .contains("nothing was tuned")
    );
}

#[test]
fn everybody_goes_over_what_was_tuned() {
    let folder = Folder::new("below");
    folder.write("shm", "push_shm_first = 8\nshare_min = 1000000\n");
    folder.write(
        "udp",
        "# by hand\npull_window = 70000\npush_net_first = 7\n",
    );
    let window = folder.doctor("setting-pull_window", &[]);
    for part in ["524288 bytes (default)", "udp: 70000 (tuned)"] {
        assert!(window.contains(part), "{window}");
    }
    assert!(!window.contains("xdp:"), "{window}");
    let shared = folder.doctor("setting-share_min", &[]);
    for part in ["131072 bytes (default)", "shm: 1000000 (tuned)"] {
        assert!(shared.contains(part), "{shared}");
    }
    let first = folder.doctor("setting-push_net_first", &[]);
    assert!(first.contains("udp: 7 (tuned)"), "{first}");
    assert!(
        folder
            .doctor("tuned-udp", &[])
            .contains("pull_window = 70000")
    );
    let given = [("PORTOLAN_PULL_WINDOW", "80000")];
    let window = folder.doctor("setting-pull_window", &given);
    assert!(window.ends_with("80000 bytes (environment)"), "{window}");
    // Others' names are told as well, where they are not as by default.
    let frames = folder.doctor("setting-frames", &[("PORTOLAN_FRAMES", "64")]);
    assert!(frames.contains("64 frames (environment)"), "{frames}");
}

/// Thresholds as a bench's endpoint has them.
fn pushed(folder: &Folder, link: &str) -> String {
    let (file, json) = json_of(&format!("pushed-{link}"));
    let size = ["--size", "40K", "--modes", "both", "--link", link];
    let slices = ["--slices", "1", "--slice-ms", "2", "--json"];
    let arguments = [&["bench", "pushpull"][..], &size, &slices];
    let file = file.to_str().unwrap();
    folder
        .say(&[&arguments.concat()[..], &[file]].concat())
        .expect(0);
    json()["rows"][0]["method"].as_str().unwrap().to_owned()
}

#[test]
fn endpoints_take_what_was_tuned_for_their_links() {
    let folder = Folder::new("taken");
    folder.write("shm", "push_shm_first = 11\npush_shm_second = 12\n");
    folder.write("udp", "push_net_first = 13\npush_net_second = 14\n");
    folder.write("xdp", "push_net_first = 15\n");
    let shm = pushed(&folder, "shm");
    assert!(shm.contains("first 11, second 12"), "{shm}");
    let udp = pushed(&folder, "udp");
    assert!(udp.contains("first 13, second 14"), "{udp}");
}

#[test]
fn a_damaged_file_is_told_of_and_not_used() {
    let folder = Folder::new("damaged");
    for (text, why) in [
        ("push_shm_first = much\n", "push_shm_first is \"much\""),
        ("port = 7\n", "port is none of push_shm_whole"),
        ("push_shm_first\n", "line 1 is not NAME = VALUE"),
        ("\u{fffd}\u{0}", "line 1"),
    ] {
        folder.write("shm", text);
        let line = folder.doctor("tuned-shm", &[]);
        assert!(line.starts_with("slower") && line.contains(why), "{line}");
        let size = ["--size", "8", "--modes", "both", "--link", "shm"];
        let slices = ["--slices", "1", "--slice-ms", "2"];
        let arguments = [&["bench", "pushpull"][..], &size, &slices].concat();
        let said = folder.say(&arguments).expect(0);
        assert!(
            said.err.contains(why) && said.err.contains("--forget"),
            "{said:#?}"
        );
    }
    fs::write(folder.file("shm"), [0xff, 0xfe]).unwrap();
    assert!(folder.doctor("tuned-shm", &[]).contains("cannot be read"));
    // A folder in its place, and one that is none.
    fs::remove_file(folder.file("shm")).unwrap();
    fs::create_dir(folder.file("shm")).unwrap();
    assert!(
        folder
            .doctor("tuned-shm", &[])
            .contains("it is not an ordinary file")
    );
    let said = folder.say(&["tune", "--forget", "--link", "shm"]).expect(1);
    assert!(said.out.contains("removing"), "{said:#?}");
    let none = [("PORTOLAN_TUNED", "")];
    assert!(
        folder
            .doctor("tuned-shm", &none)
            .contains("nothing was tuned")
    );
}

#[test]
fn what_cannot_be_tuned_is_refused_at_once() {
    let folder = Folder::new("refused");
    for (arguments, word) in [
        (&["--link", "xdp"][..], "--hosts A,B"),
        (&["--link", "shm", "--hosts", "a,b"], "--link shm"),
        (&["--forget", "--dry-run"], "--dry-run"),
        (&["--rounds", "0"], "rounds"),
        (&["--ssh", "ssh"], "--hosts"),
    ] {
        let said = folder.say(&[&["tune"], arguments].concat()).expect(2);
        assert!(said.err.contains(word), "{said:#?}");
    }
    folder
        .say(&["tune", "--json", "/no/such/folder/file"])
        .expect(1)
        .complains(&["/no/such/folder/file"]);
    // Found, and not to be kept: a file is where the folder should be.
    fs::write(&folder.0, "").unwrap();
    let said = folder.say(&["tune", "--rounds", "1"]).expect(1);
    assert!(said.out.contains("writing"), "{said:#?}");
    fs::remove_file(&folder.0).unwrap();
}

#[test]
fn each_host_of_a_lab_keeps_its_own() {
    let options = ["--hosts", "3", "--rate", "200mbit", "--buffer", "64k"];
    let lab = TestLab::with("t-tune", &options);
    let folder = Folder::new("lab");
    let (file, json) = json_of("lab");
    let file = file.to_str().unwrap();
    let at = ["tune", "--lab", lab.0, "--rounds", "1"];
    for link in ["udp", "xdp"] {
        let arguments = [&at[..], &["--link", link, "--json", file]].concat();
        folder.say(&arguments).expect(0);
        let found = json();
        check(&found, link);
        assert_eq!(found["ranks"], 3);
        let window = &found["findings"][3];
        assert!(
            window["why"].as_str().unwrap().contains("the slowest"),
            "{window}"
        );
    }
    let mut expected = Vec::new();
    for host in 0..3 {
        expected.extend(["udp", "xdp"].map(|link| format!("h{host}.{}-{link}.conf", lab.0)));
    }
    assert_eq!(folder.names(), expected);
    folder.say(&[&at[..], &["--forget"]].concat()).expect(0);
    assert_eq!(folder.names().len(), 0);
    let single = TestLab::with(TestLab::own("t-tune-one"), &["--hosts", "1"]);
    folder
        .say(&["tune", "--lab", single.0])
        .expect(2)
        .complains(&["--hosts 2"]);
}
