//! `fi_domain.h`.

use std::ffi::{c_char, c_int, c_void};

use portolan::c_edge::Piece;

use super::{
    Addr, AtomicAttr, CntrAttr, CqAttr, Fid, FidCntr, FidCq, FidEp, FidPoll, Info, Unused,
};

/// Flag of `fi_av_insert`.
pub const SYNC_ERR: u64 = 1 << 58;

structures! {
    struct AvAttr {
        kind: u32, rx_ctx_bits: c_int, count: usize, ep_per_node: usize, name: *const c_char,
        map_addr: *mut c_void, flags: u64,
    }

    struct OpsAv {
        size: usize,
        insert: unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut Addr, u64, *mut c_void) -> c_int,
        insertsvc: Unused, insertsym: Unused,
        remove: unsafe extern "C" fn(*mut FidAv, *mut Addr, usize, u64) -> c_int,
        lookup: unsafe extern "C" fn(*mut FidAv, Addr, *mut c_void, *mut usize) -> c_int,
        straddr: unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
        av_set: Unused, insert_auth_key: Unused, lookup_auth_key: Unused, set_user_id: Unused, lookup2: Unused,
    }

    struct FidAv {
        fid: Fid, ops: *const OpsAv,
    }

    struct FidMr {
        fid: Fid, mem_desc: *mut c_void, key: u64,
    }

    struct MrAttr {
        mr_iov: *const Piece, iov_count: usize, access: u64, offset: u64, requested_key: u64,
        context: *mut c_void, auth_key_size: usize, auth_key: *mut u8, iface: u32,
    }

    struct OpsDomain {
        size: usize,
        av_open: unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
        cq_open: unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
        endpoint: unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
        scalable_ep: Unused,
        cntr_open: unsafe extern "C" fn(*mut FidDomain, *mut CntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int,
        poll_open: unsafe extern "C" fn(*mut FidDomain, *mut c_void, *mut *mut FidPoll) -> c_int,
        stx_ctx: Unused, srx_ctx: Unused,
        query_atomic: unsafe extern "C" fn(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int,
        query_collective: Unused,
        endpoint2: unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, u64, *mut c_void) -> c_int,
        xpu_ctx: Unused,
    }

    struct OpsMr {
        size: usize,
        reg: unsafe extern "C" fn(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int,
        regv: unsafe extern "C" fn(*mut Fid, *const Piece, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int,
        regattr: unsafe extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int,
    }

    struct FidDomain {
        fid: Fid, ops: *const OpsDomain, mr: *const OpsMr,
    }
}
