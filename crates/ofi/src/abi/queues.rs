//! `fi_eq.h`: completion queues, counters, event queues, wait and poll sets.

use std::ffi::{c_char, c_int, c_void};

use super::{Addr, Fid, Unused};

pub const WAIT_NONE: u32 = 0;
pub const WAIT_UNSPEC: u32 = 1;
pub const WAIT_SET: u32 = 2;
pub const WAIT_FD: u32 = 3;
pub const WAIT_YIELD: u32 = 5;

pub const CQ_FORMAT_UNSPEC: u32 = 0;
pub const CQ_FORMAT_CONTEXT: u32 = 1;
pub const CQ_FORMAT_MSG: u32 = 2;
pub const CQ_FORMAT_DATA: u32 = 3;
pub const CQ_FORMAT_TAGGED: u32 = 4;

pub const CNTR_EVENTS_COMP: u32 = 0;

structures! {
    struct WaitAttr {
        wait_obj: u32, flags: u64,
    }

    struct OpsWait {
        size: usize, wait: unsafe extern "C" fn(*mut FidWait, c_int) -> c_int,
    }

    struct FidWait {
        fid: Fid, ops: *const OpsWait,
    }

    struct OpsPoll {
        size: usize, poll: unsafe extern "C" fn(*mut FidPoll, *mut *mut c_void, c_int) -> c_int,
        poll_add: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int,
        poll_del: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int,
    }

    struct FidPoll {
        fid: Fid, ops: *const OpsPoll,
    }

    struct EqAttr {
        size: usize, flags: u64, wait_obj: u32, signaling_vector: c_int, wait_set: *mut FidWait,
    }

    struct EqErrEntry {
        fid: *mut Fid, context: *mut c_void, data: u64, err: c_int, prov_errno: c_int, err_data: *mut c_void,
        err_data_size: usize,
    }

    struct OpsEq {
        size: usize, read: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
        readerr: unsafe extern "C" fn(*mut FidEq, *mut EqErrEntry, u64) -> isize,
        write: unsafe extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
        sread: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
        strerror: unsafe extern "C" fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }

    struct FidEq {
        fid: Fid, ops: *const OpsEq,
    }

    /// `struct fi_cq_tagged_entry`; entries of shorter formats are its prefixes.
    struct CqEntry {
        op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64, tag: u64,
    }

    struct CqErrEntry {
        op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64, tag: u64, olen: usize,
        err: c_int, prov_errno: c_int, err_data: *mut c_void, err_data_size: usize,
    }

    struct CqAttr {
        size: usize, flags: u64, format: u32, wait_obj: u32, signaling_vector: c_int, wait_cond: u32,
        wait_set: *mut FidWait,
    }

    struct OpsCq {
        size: usize, read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
        readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut Addr) -> isize,
        readerr: unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> isize,
        sread: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
        sreadfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut Addr, *const c_void, c_int) -> isize,
        signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
        strerror: unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
        export_xpu: Unused,
    }

    struct FidCq {
        fid: Fid, ops: *const OpsCq,
    }

    struct CntrAttr {
        events: u32, wait_obj: u32, wait_set: *mut FidWait, flags: u64,
    }

    struct OpsCntr {
        size: usize, read: unsafe extern "C" fn(*mut FidCntr) -> u64,
        readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
        add: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
        set: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
        wait: unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
        adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
        seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int, export_xpu: Unused,
    }

    struct FidCntr {
        fid: Fid, ops: *const OpsCntr,
    }
}
