//! What the node service keeps of root's power.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Attaching programs and asking for large buffers; AF_XDP sockets; maps and
/// programs; packet areas, which are locked.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// Gives up for ever all capabilities of the calling thread, which should be
/// the only one, but those that opening host ports takes.
///
/// # Errors
/// `PERM` where one of those is missing; else what the kernel answers.
pub fn drop_all_but_needed() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    for each in CapabilitySet::all().difference(NEEDED).iter() {
        // The kernel may know fewer.
        if capability_is_in_bounding_set(each).unwrap_or(false) {
            // Without the capability for that it is for `exec` alone, which
            // gives nothing back.
            let _ = remove_capability_from_bounding_set(each);
        }
    }
    // A kernel without ambient capabilities has none to clear.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: NEEDED,
        permitted: NEEDED,
        inheritable: none,
    };
    set_capabilities(None, sets)
}
