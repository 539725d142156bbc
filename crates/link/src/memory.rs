//! What else the operating system does with memory for who moves messages.

pub use portolan_sys::memory::populate;
pub use portolan_sys::process::CopyError;
use portolan_sys::process::{own_pid, read_memory, write_memory};

/// Fills `into` from an address of this process. False: some of it is not mapped there, or
/// the kernel does not permit this.
#[must_use]
pub fn read_own(at: u64, into: &mut [u8]) -> bool {
    read_memory(own_pid(), at, into).is_ok()
}

/// Writes bytes to an address of this process. False: some of it is not mapped there, or
/// may not be written, or the kernel does not permit this; a part may have been written.
///
/// # Safety
/// As a write by a pointer, but that any address may be tried.
#[must_use]
pub unsafe fn write_own(at: u64, from: &[u8]) -> bool {
    write_memory(own_pid(), at, from).is_ok()
}

/// Whether the kernel permits both.
#[must_use]
pub fn reaches_own() -> bool {
    let mut word = 0_u64;
    let at = (&raw mut word).expose_provenance() as u64;
    // SAFETY: the word is ours.
    let written = unsafe { write_own(at, &[1; 8]) };
    let mut found = [0; 8];
    written && read_own(at, &mut found) && found == [1; 8]
}
