//! Which processes share a host.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Returns an identifier of this host: equal for two processes of one kernel
/// and one network namespace (hosts of a lab are thus different hosts). Never
/// 0 (P3.11).
///
/// # Errors
/// `/proc` is not readable.
pub fn host_identity() -> io::Result<u64> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(fnv(&[boot.trim_ascii_end(), &namespace.to_le_bytes()]).max(1))
}

/// Protects the memory of this process, which holds a job's secret, from core
/// dumps and from other processes of its user. Programs that it starts are not
/// affected: exec resets this.
///
/// # Errors
/// The kernel, or a filter, refuses.
pub(crate) fn keep_from_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// FNV-1a, 64 bits, with the length of each part mixed in. Not cryptographic.
pub(crate) fn fnv(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for part in parts {
        (part.len() as u64)
            .to_le_bytes()
            .into_iter()
            .for_each(&mut mix);
        part.iter().copied().for_each(&mut mix);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks P3.11.
    #[test]
    fn a_host_has_one_name() {
        let name = host_identity().unwrap();
        assert_ne!(name, 0);
        assert_eq!(
            std::thread::spawn(host_identity).join().unwrap().unwrap(),
            name
        );
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let inode = fs::metadata("/proc/self/ns/net").unwrap().ino();
        let parts: [&[u8]; 2] = [boot.trim_end().as_bytes(), &inode.to_le_bytes()];
        assert_eq!(name, fnv(&parts).max(1));
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(fnv(&[b"ab", b"c"]), fnv(&[b"a", b"bc"]));
        assert_ne!(fnv(&[b"", b"a"]), fnv(&[b"a", b""]));
    }
}
