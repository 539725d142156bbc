//! Atomic operations on memory of others.

use std::ffi::c_int;

use crate::abi::{AtomicAttr, FidDomain};
use crate::error::EOPNOTSUPP;

/// `fi_query_atomic`.
pub unsafe extern "C" fn query(
    _domain: *mut FidDomain,
    _of: c_int,
    _op: c_int,
    _attr: *mut AtomicAttr,
    _flags: u64,
) -> c_int {
    -EOPNOTSUPP.0
}
