//! A control group for all processes of a job on one host, so that none of
//! them stays: neither those that left their process group (setsid) nor those
//! whose parents have ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Killed processes have left the group within this time.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

/// A group of its own below that of this process; none where cgroup v2 is not
/// mounted, not writable, or too old for cgroup.kill (Linux 5.14).
pub fn make() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let parent = find(&mounts, &groups)?;
    sweep(&parent);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let name = format!("portolan-{}-{:x}", std::process::id(), now.as_nanos());
    let group = parent.join(name);
    fs::create_dir(&group).ok()?;
    if group.join("cgroup.kill").exists() {
        return Some(group);
    }
    let _ = fs::remove_dir(&group);
    None
}

/// Removes empty groups of launchers that were killed together with their
/// guards.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let mut parts = name.to_str().unwrap_or_default().split('-');
        let (ours, launcher) = (parts.next() == Some("portolan"), parts.next());
        if let Some(pid) = launcher.filter(|_| ours)
            && pid.parse::<u32>().is_ok()
            && !Path::new("/proc").join(pid).exists()
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Where the group of this process is in the file system.
fn find(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (at, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then_some(at)
    })?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // It lies outside of what is mounted here.
    if group.starts_with("..") {
        return None;
    }
    Some(Path::new(mount).join(group))
}

/// Moves this process into a group.
///
/// # Errors
/// As the kernel says.
pub fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Kills whoever is in a group, and removes it.
pub fn end(group: &Path) {
    let until = Instant::now() + EMPTY_WITHIN;
    while group.exists() && Instant::now() < until {
        // Again and again: somebody may be about to enter.
        let _ = fs::write(group.join("cgroup.kill"), "1");
        if fs::remove_dir(group).is_ok() {
            return;
        }
        sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found() {
        let mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let at = |groups| find(mounts, groups);
        assert_eq!(
            at("1:cpu:/x\n0::/user.slice/a\n"),
            Some("/sys/fs/cgroup/user.slice/a".into())
        );
        assert_eq!(at("0::/\n"), Some("/sys/fs/cgroup/".into()));
        assert_eq!(at("0::/../b\n"), None);
        assert_eq!(at("1:cpu:/x\n"), None);
        assert_eq!(find("", "0::/\n"), None);
    }
}
