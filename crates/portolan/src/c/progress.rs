//! Progress and waiting.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

use super::endpoint;
use super::error::EFAULT;
use super::send::limit;
use crate::Endpoint;

interface! {
    fn portolan_progress(handle: *mut Endpoint) -> i64 {
        endpoint = endpoint(handle); endpoint.progress()?
    }

    fn portolan_wait_until(
        handle: *mut Endpoint,
        condition: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        user: *mut c_void,
        timeout_ns: i64,
    ) -> c_int {
        endpoint = endpoint(handle);
        let condition = condition.ok_or(EFAULT)?;
        // SAFETY: the caller promises that it may be called with `user`.
        let done = || unsafe { condition(user) } != 0;
        match limit(timeout_ns) {
            None => endpoint.wait_until(done)?,
            Some(limit) => endpoint.wait_timeout(limit, done)?,
        }
    }

    fn portolan_fd(handle: *const Endpoint) -> c_int {
        endpoint = endpoint(handle); endpoint.fd()?.as_raw_fd()
    }

    fn portolan_arm(handle: *mut Endpoint) -> c_int {
        endpoint = endpoint(handle); endpoint.arm()?
    }
}
