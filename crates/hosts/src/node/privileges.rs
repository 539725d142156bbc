//! What the node service keeps of root's power.

use portolan_sys::process::limits;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Attaching programs and asking for large buffers; AF_XDP sockets; maps and
/// programs.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF);

/// Packet areas are locked: where the limit of that cannot be lifted it takes
/// one more.
fn needed() -> CapabilitySet {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let limited = limits(Resource::Memlock) != Ok(unlimited);
    if limited && setrlimit(Resource::Memlock, unlimited).is_err() {
        NEEDED.union(CapabilitySet::IPC_LOCK)
    } else {
        NEEDED
    }
}

/// Whether the calling thread has them.
pub fn has_needed() -> bool {
    capabilities(None).is_ok_and(|sets| sets.permitted.contains(needed()))
}

/// Gives up for ever all capabilities of the calling thread, which should be
/// the only one, but those that opening host ports takes.
///
/// # Errors
/// `PERM` where one of those is missing; else what the kernel answers.
pub fn drop_all_but_needed() -> Result<(), Errno> {
    let needed = needed();
    set_no_new_privs(true)?;
    for each in CapabilitySet::all().difference(needed).iter() {
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
        effective: needed,
        permitted: needed,
        inheritable: none,
    };
    set_capabilities(None, sets)
}
