//! Endpoints outside of a job, and their peers.

use std::ffi::{c_char, c_int};

use super::error::{EFAULT, Errno};
use super::open::open_by;
use super::types::COptions;
use super::{Slot, endpoint};
use crate::{ADDRESS_BYTES, Endpoint};

/// # Safety
/// `from` is null or points to an address.
unsafe fn address<'a>(from: *const [u8; ADDRESS_BYTES]) -> Result<&'a [u8; ADDRESS_BYTES], Errno> {
    // SAFETY: see above; bytes have no alignment.
    unsafe { from.as_ref() }.ok_or(EFAULT)
}

interface! {
    fn portolan_open_standalone(
        handle: *mut *mut Endpoint,
        options: *const COptions,
        why: *mut c_char,
        why_bytes: usize,
    ) -> c_int {
        () = open_by(Endpoint::open_standalone, handle, options, (why, why_bytes)); ()
    }

    fn portolan_address(handle: *const Endpoint, to: *mut [u8; ADDRESS_BYTES]) -> c_int {
        endpoint = endpoint(handle), to = Slot::required(to);
        to.store(endpoint.address());
    }

    fn portolan_add_peer(handle: *mut Endpoint, of: *const [u8; ADDRESS_BYTES]) -> i64 {
        endpoint = endpoint(handle), of = address(of); endpoint.add_peer(of)?
    }

    fn portolan_remove_peer(handle: *mut Endpoint, peer: u32) -> c_int {
        endpoint = endpoint(handle); endpoint.remove_peer(peer)?
    }
}
