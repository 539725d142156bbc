//! `fi_endpoint.h`, `fi_cm.h`, `fi_tagged.h`, `fi_rma.h` and `fi_atomic.h`.

use std::ffi::{c_int, c_void};

use portolan::c_edge::Piece;

use super::{Addr, Fid, Ssize, Unused};

pub const OPT_ENDPOINT: c_int = 0;
pub const OPT_MIN_MULTI_RECV: c_int = 0;
pub const OPT_CM_DATA_SIZE: c_int = 1;
/// The largest message, tagged message, RMA access and atomic; what may be injected of each.
pub const OPT_SIZES: std::ops::RangeInclusive<c_int> = 12..=19;

/// Of `fi_query_atomic`.
pub const FETCH_ATOMIC: u64 = 1 << 58;
pub const COMPARE_ATOMIC: u64 = 1 << 59;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Msg {
    pub msg_iov: *const Piece,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Addr,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MsgTagged {
    pub msg_iov: *const Piece,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Addr,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MsgRma {
    pub msg_iov: *const Piece,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Addr,
    pub rma_iov: *const RmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_ioc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// `struct fi_rma_ioc`, with a number of elements in the place of a length.
pub type RmaIoc = RmaIov;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtomicAttr {
    pub count: usize,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MsgAtomic {
    pub msg_iov: *const Ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Addr,
    pub rma_iov: *const RmaIoc,
    pub rma_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct OpsEp {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> Ssize,
    pub getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub tx_ctx: Unused,
    pub rx_ctx: Unused,
    pub rx_size_left: unsafe extern "C" fn(*mut FidEp) -> Ssize,
    pub tx_size_left: unsafe extern "C" fn(*mut FidEp) -> Ssize,
    pub export_xpu: Unused,
}

#[repr(C)]
pub struct OpsCm {
    pub size: usize,
    pub setname: Unused,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub getpeer: Unused,
    pub connect: Unused,
    pub listen: Unused,
    pub accept: Unused,
    pub reject: Unused,
    pub shutdown: Unused,
    pub join: Unused,
}

type Desc = *mut c_void;
type UserContext = *mut c_void;
type Ep = *mut FidEp;
type Bytes = *const c_void;
type Iov = *const Piece;
type Descs = *mut *mut c_void;

#[repr(C)]
pub struct OpsMsg {
    pub size: usize,
    pub recv: unsafe extern "C" fn(Ep, *mut c_void, usize, Desc, Addr, UserContext) -> Ssize,
    pub recvv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, UserContext) -> Ssize,
    pub recvmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> Ssize,
    pub send: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Addr, UserContext) -> Ssize,
    pub sendv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, UserContext) -> Ssize,
    pub sendmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> Ssize,
    pub inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr) -> Ssize,
    pub senddata: unsafe extern "C" fn(Ep, Bytes, usize, Desc, u64, Addr, UserContext) -> Ssize,
    pub injectdata: unsafe extern "C" fn(Ep, Bytes, usize, u64, Addr) -> Ssize,
}

#[repr(C)]
pub struct OpsTagged {
    pub size: usize,
    pub recv:
        unsafe extern "C" fn(Ep, *mut c_void, usize, Desc, Addr, u64, u64, UserContext) -> Ssize,
    pub recvv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, u64, UserContext) -> Ssize,
    pub recvmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> Ssize,
    pub send: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Addr, u64, UserContext) -> Ssize,
    pub sendv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, UserContext) -> Ssize,
    pub sendmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> Ssize,
    pub inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr, u64) -> Ssize,
    pub senddata:
        unsafe extern "C" fn(Ep, Bytes, usize, Desc, u64, Addr, u64, UserContext) -> Ssize,
    pub injectdata: unsafe extern "C" fn(Ep, Bytes, usize, u64, Addr, u64) -> Ssize,
}

#[repr(C)]
pub struct OpsRma {
    pub size: usize,
    pub read:
        unsafe extern "C" fn(Ep, *mut c_void, usize, Desc, Addr, u64, u64, UserContext) -> Ssize,
    pub readv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, u64, UserContext) -> Ssize,
    pub readmsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> Ssize,
    pub write: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Addr, u64, u64, UserContext) -> Ssize,
    pub writev: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, u64, UserContext) -> Ssize,
    pub writemsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> Ssize,
    pub inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr, u64, u64) -> Ssize,
    pub writedata:
        unsafe extern "C" fn(Ep, Bytes, usize, Desc, u64, Addr, u64, u64, UserContext) -> Ssize,
    pub injectdata: unsafe extern "C" fn(Ep, Bytes, usize, u64, Addr, u64, u64) -> Ssize,
}

type Valid = unsafe extern "C" fn(Ep, c_int, c_int, *mut usize) -> c_int;

#[repr(C)]
pub struct OpsAtomic {
    pub size: usize,
    pub write: unsafe extern "C" fn(
        Ep,
        Bytes,
        usize,
        Desc,
        Addr,
        u64,
        u64,
        c_int,
        c_int,
        UserContext,
    ) -> Ssize,
    pub writev: unsafe extern "C" fn(
        Ep,
        *const Ioc,
        Descs,
        usize,
        Addr,
        u64,
        u64,
        c_int,
        c_int,
        UserContext,
    ) -> Ssize,
    pub writemsg: unsafe extern "C" fn(Ep, *const MsgAtomic, u64) -> Ssize,
    pub inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr, u64, u64, c_int, c_int) -> Ssize,
    pub readwrite: unsafe extern "C" fn(
        Ep,
        Bytes,
        usize,
        Desc,
        *mut c_void,
        Desc,
        Addr,
        u64,
        u64,
        c_int,
        c_int,
        UserContext,
    ) -> Ssize,
    pub readwritev: unsafe extern "C" fn(
        Ep,
        *const Ioc,
        Descs,
        usize,
        *mut Ioc,
        Descs,
        usize,
        Addr,
        u64,
        u64,
        c_int,
        c_int,
        UserContext,
    ) -> Ssize,
    pub readwritemsg:
        unsafe extern "C" fn(Ep, *const MsgAtomic, *mut Ioc, Descs, usize, u64) -> Ssize,
    pub compwrite: unsafe extern "C" fn(
        Ep,
        Bytes,
        usize,
        Desc,
        Bytes,
        Desc,
        *mut c_void,
        Desc,
        Addr,
        u64,
        u64,
        c_int,
        c_int,
        UserContext,
    ) -> Ssize,
    pub compwritev: unsafe extern "C" fn(
        Ep,
        *const Ioc,
        Descs,
        usize,
        *const Ioc,
        Descs,
        usize,
        *mut Ioc,
        Descs,
        usize,
        Addr,
        u64,
        u64,
        c_int,
        c_int,
        UserContext,
    ) -> Ssize,
    pub compwritemsg: unsafe extern "C" fn(
        Ep,
        *const MsgAtomic,
        *const Ioc,
        Descs,
        usize,
        *mut Ioc,
        Descs,
        usize,
        u64,
    ) -> Ssize,
    pub writevalid: Valid,
    pub readwritevalid: Valid,
    pub compwritevalid: Valid,
}

#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const OpsEp,
    pub cm: *const OpsCm,
    pub msg: *const OpsMsg,
    pub rma: *const OpsRma,
    pub tagged: *const OpsTagged,
    pub atomic: *const OpsAtomic,
    pub collective: *const c_void,
}
