//! Where a job's secret lies, and what of it a core dump holds.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{MARK, need_root, none_left, own_mark, probe, read_until, signal, until};
use rustix::process::Signal;

/// Which memory of a process is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Pages {
    /// What a core dump may hold.
    Dumped,
    /// What is kept from it (MADV_DONTDUMP).
    Hidden,
}

/// Whether some of `needles` is in such memory of a process.
fn holds(pid: u32, pages: Pages, needles: &[Vec<u8>]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut range = (0, 0);
    for line in maps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            range = (number(start), number(end));
        }
        if first == "VmFlags:" && rest.split(' ').any(|flag| flag == "rd") {
            let hidden = rest.split(' ').any(|flag| flag == "dd");
            let mut bytes = vec![0; (range.1 - range.0) as usize];
            // The kernel's own pages cannot be read.
            let read = memory.read_exact_at(&mut bytes, range.0).is_ok();
            if read && hidden == (pages == Pages::Hidden) && has(&bytes, needles) {
                return true;
            }
        }
    }
    false
}

fn has(bytes: &[u8], needles: &[Vec<u8>]) -> bool {
    let first: Vec<u8> = needles.iter().map(|needle| needle[0]).collect();
    let may_begin = |at: &usize| first.contains(&bytes[*at]);
    (0..bytes.len())
        .filter(may_begin)
        .any(|at| needles.iter().any(|needle| bytes[at..].starts_with(needle)))
}

/// Halves of a secret, and how it would be written as text.
fn needles(hex: &str) -> Vec<Vec<u8>> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..64).step_by(2).map(byte).collect();
    let text: Vec<String> = bytes.iter().map(u8::to_string).collect();
    vec![
        bytes[..16].to_vec(),
        bytes[16..].to_vec(),
        hex.as_bytes()[..32].to_vec(),
        text[..16].join(",").into_bytes(),
    ]
}

/// The core dumps below a folder.
fn cores(folder: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let files = inside(folder).into_iter().flat_map(|path| inside(&path));
    files
        .filter(|file| {
            file.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("core")
        })
        .collect()
}

/// A launcher that ends with its test.
struct Launcher(Child);

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_core_dump_does_not_hold_the_jobs_secret() {
    need_root();
    let mark = "core";
    let folder = PathBuf::from(format!("/tmp/portolan-{}", own_mark(mark)));
    fs::create_dir(&folder).unwrap();
    let talk = format!(
        "cd $(mktemp -d {}/XXXXXX) && exec {} talk",
        folder.display(),
        probe()
    );
    let job = Command::new("sh")
        .args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_portolan"))
        .args(["run", "--link", "udp", "--on-death", "notify"])
        .args(["-n", "1", "--", &probe(), "betray"])
        .args([":", "-n", "2", "sh", "-c", &talk])
        .current_dir(&folder)
        .env(MARK, own_mark(mark))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut job = Launcher(job);
    let lines = read_until(&mut job.0, "", 3);
    let after = |word: &str| -> Vec<String> {
        let words = lines.iter().flat_map(|line| line.split_once(word));
        let next = words.map(|(_, rest)| rest.split(' ').next().unwrap().to_owned());
        next.collect()
    };
    let needles = needles(&after("secret ")[0]);
    let ranks: Vec<u32> = after("process ")
        .iter()
        .map(|n| n.parse().unwrap())
        .collect();
    assert_eq!(ranks.len(), 2, "{lines:?}");
    for pid in &ranks {
        assert!(holds(*pid, Pages::Hidden, &needles), "rank {pid}");
        assert!(!holds(*pid, Pages::Dumped, &needles), "rank {pid}");
    }
    // The text of it went through the launcher with a rank's output.
    let (pid, bytes) = (job.0.id(), &needles[..2]);
    assert!(holds(pid, Pages::Hidden, bytes), "launcher");
    assert!(!holds(pid, Pages::Dumped, bytes), "launcher");
    for pid in &ranks {
        signal(*pid, Signal::ABORT);
        let gone = || !Path::new(&format!("/proc/{pid}")).exists();
        until(|| format!("{pid} is still there"), gone);
    }
    // Elsewhere the kernel hands them to a program or puts them together.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if !pattern.starts_with(['|', '/']) {
        let cores = cores(&folder);
        assert_eq!(cores.len(), 2, "{cores:?}");
        for core in cores {
            let bytes = fs::read(&core).unwrap();
            assert!(bytes.len() > 4096 && !has(&bytes, &needles), "{core:?}");
        }
    }
    signal(pid, Signal::ABORT);
    let status = job.0.wait().unwrap();
    assert_eq!(status.signal(), Some(6));
    assert!(!status.core_dumped(), "the launcher knows every key");
    none_left(mark);
    fs::remove_dir_all(&folder).unwrap();
}
