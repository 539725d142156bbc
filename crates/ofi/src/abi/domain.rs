//! `fi_domain.h`.

use std::ffi::{c_char, c_int, c_void};

use portolan::c_edge::Piece;

use super::{
    Addr, AtomicAttr, CntrAttr, CqAttr, Fid, FidCntr, FidCq, FidEp, FidPoll, Info, Unused,
};

/// Of `fi_av_insert`.
pub const SYNC_ERR: u64 = 1 << 58;
pub const AV_USER_ID: u64 = 1 << 41;

pub const INT8: c_int = 0;
pub const DOUBLE_COMPLEX: c_int = 11;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AvAttr {
    pub kind: u32,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct OpsAv {
    pub size: usize,
    pub insert: unsafe extern "C" fn(
        *mut FidAv,
        *const c_void,
        usize,
        *mut Addr,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsvc: Unused,
    pub insertsym: Unused,
    pub remove: unsafe extern "C" fn(*mut FidAv, *mut Addr, usize, u64) -> c_int,
    pub lookup: unsafe extern "C" fn(*mut FidAv, Addr, *mut c_void, *mut usize) -> c_int,
    pub straddr:
        unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub av_set: Unused,
    pub insert_auth_key: Unused,
    pub lookup_auth_key: Unused,
    pub set_user_id: Unused,
    pub lookup2: Unused,
}

#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const OpsAv,
}

#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MrAttr {
    pub mr_iov: *const Piece,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: u32,
}

#[repr(C)]
pub struct OpsDomain {
    pub size: usize,
    pub av_open:
        unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
    pub scalable_ep: Unused,
    pub cntr_open: unsafe extern "C" fn(
        *mut FidDomain,
        *mut CntrAttr,
        *mut *mut FidCntr,
        *mut c_void,
    ) -> c_int,
    pub poll_open: unsafe extern "C" fn(*mut FidDomain, *mut c_void, *mut *mut FidPoll) -> c_int,
    pub stx_ctx: Unused,
    pub srx_ctx: Unused,
    pub query_atomic:
        unsafe extern "C" fn(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int,
    pub query_collective: Unused,
    pub endpoint2:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, u64, *mut c_void) -> c_int,
    pub xpu_ctx: Unused,
}

#[repr(C)]
pub struct OpsMr {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub regv: unsafe extern "C" fn(
        *mut Fid,
        *const Piece,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub regattr: unsafe extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int,
}

#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const OpsDomain,
    pub mr: *const OpsMr,
}
