//! Progress and waiting.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

use super::error::EFAULT;
use super::send::limit;
use super::{edge, endpoint};
use crate::Endpoint;

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_progress(handle: *mut Endpoint) -> i64 {
    edge(|| {
        // SAFETY: promised by the caller.
        let moved = unsafe { endpoint(handle) }?.progress()?;
        Ok(i64::try_from(moved).unwrap_or(i64::MAX))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_wait_until(
    handle: *mut Endpoint,
    condition: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    user: *mut c_void,
    timeout_ns: i64,
) -> c_int {
    edge(|| {
        // SAFETY: promised by the caller.
        let endpoint = unsafe { endpoint(handle) }?;
        let condition = condition.ok_or(EFAULT)?;
        // SAFETY: the caller promises that it may be called with `user`.
        let done = || unsafe { condition(user) } != 0;
        match limit(timeout_ns) {
            None => endpoint.wait_until(done)?,
            Some(limit) => endpoint.wait_timeout(limit, done)?,
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_fd(handle: *const Endpoint) -> c_int {
    // SAFETY: promised by the caller.
    edge(|| Ok(unsafe { endpoint(handle) }?.fd().as_raw_fd()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn portolan_arm(handle: *mut Endpoint) -> c_int {
    // SAFETY: promised by the caller.
    edge(|| Ok(unsafe { endpoint(handle) }?.arm()?.into()))
}
