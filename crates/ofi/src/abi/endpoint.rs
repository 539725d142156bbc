//! `fi_endpoint.h`, `fi_cm.h`, `fi_tagged.h`, `fi_rma.h` and `fi_atomic.h`.

use std::ffi::{c_int, c_void};

use portolan::c_edge::Piece;

use super::{Addr, Fid, Ssize, Unused};

pub const OPT_ENDPOINT: c_int = 0;
pub const OPT_MIN_MULTI_RECV: c_int = 0;
pub const OPT_CM_DATA_SIZE: c_int = 1;
/// Maximum sizes of a message, tagged message, RMA access and atomic, and of injected ones.
pub const OPT_SIZES: std::ops::RangeInclusive<c_int> = 12..=19;

/// Flags of `fi_query_atomic`.
pub const FETCH_ATOMIC: u64 = 1 << 58;
pub const COMPARE_ATOMIC: u64 = 1 << 59;

structures! {
    struct Msg {
        msg_iov: *const Piece, desc: *mut *mut c_void, iov_count: usize, addr: Addr, context: *mut c_void,
        data: u64,
    }

    struct MsgTagged {
        msg_iov: *const Piece, desc: *mut *mut c_void, iov_count: usize, addr: Addr, tag: u64, ignore: u64,
        context: *mut c_void, data: u64,
    }

    struct RmaIov {
        addr: u64, len: usize, key: u64,
    }

    struct MsgRma {
        msg_iov: *const Piece, desc: *mut *mut c_void, iov_count: usize, addr: Addr, rma_iov: *const RmaIov,
        rma_iov_count: usize, context: *mut c_void, data: u64,
    }

    /// `struct fi_ioc`.
    struct Ioc {
        addr: *mut c_void, count: usize,
    }
}

/// `struct fi_rma_ioc`, with a number of elements in the place of a length.
pub type RmaIoc = RmaIov;

structures! {
    struct AtomicAttr {
        count: usize, size: usize,
    }

    struct MsgAtomic {
        msg_iov: *const Ioc, desc: *mut *mut c_void, iov_count: usize, addr: Addr, rma_iov: *const RmaIoc,
        rma_iov_count: usize, datatype: c_int, op: c_int, context: *mut c_void, data: u64,
    }

    struct OpsEp {
        size: usize, cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> Ssize,
        getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
        setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int, tx_ctx: Unused,
        rx_ctx: Unused, rx_size_left: unsafe extern "C" fn(*mut FidEp) -> Ssize,
        tx_size_left: unsafe extern "C" fn(*mut FidEp) -> Ssize, export_xpu: Unused,
    }

    struct OpsCm {
        size: usize, setname: Unused, getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
        getpeer: Unused, connect: Unused, listen: Unused, accept: Unused, reject: Unused, shutdown: Unused,
        join: Unused,
    }
}

type Desc = *mut c_void;
type UserContext = *mut c_void;
type Ep = *mut FidEp;
type Bytes = *const c_void;
type Iov = *const Piece;
type Descs = *mut *mut c_void;

structures! {
    struct OpsMsg {
        size: usize, recv: unsafe extern "C" fn(Ep, *mut c_void, usize, Desc, Addr, UserContext) -> Ssize,
        recvv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, UserContext) -> Ssize,
        recvmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> Ssize,
        send: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Addr, UserContext) -> Ssize,
        sendv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, UserContext) -> Ssize,
        sendmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> Ssize,
        inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr) -> Ssize,
        senddata: unsafe extern "C" fn(Ep, Bytes, usize, Desc, u64, Addr, UserContext) -> Ssize,
        injectdata: unsafe extern "C" fn(Ep, Bytes, usize, u64, Addr) -> Ssize,
    }

    struct OpsTagged {
        size: usize,
        recv: unsafe extern "C" fn(Ep, *mut c_void, usize, Desc, Addr, u64, u64, UserContext) -> Ssize,
        recvv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, u64, UserContext) -> Ssize,
        recvmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> Ssize,
        send: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Addr, u64, UserContext) -> Ssize,
        sendv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, UserContext) -> Ssize,
        sendmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> Ssize,
        inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr, u64) -> Ssize,
        senddata: unsafe extern "C" fn(Ep, Bytes, usize, Desc, u64, Addr, u64, UserContext) -> Ssize,
        injectdata: unsafe extern "C" fn(Ep, Bytes, usize, u64, Addr, u64) -> Ssize,
    }

    struct OpsRma {
        size: usize,
        read: unsafe extern "C" fn(Ep, *mut c_void, usize, Desc, Addr, u64, u64, UserContext) -> Ssize,
        readv: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, u64, UserContext) -> Ssize,
        readmsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> Ssize,
        write: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Addr, u64, u64, UserContext) -> Ssize,
        writev: unsafe extern "C" fn(Ep, Iov, Descs, usize, Addr, u64, u64, UserContext) -> Ssize,
        writemsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> Ssize,
        inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr, u64, u64) -> Ssize,
        writedata: unsafe extern "C" fn(Ep, Bytes, usize, Desc, u64, Addr, u64, u64, UserContext) -> Ssize,
        injectdata: unsafe extern "C" fn(Ep, Bytes, usize, u64, Addr, u64, u64) -> Ssize,
    }
}

type Valid = unsafe extern "C" fn(Ep, c_int, c_int, *mut usize) -> c_int;

structures! {
    struct OpsAtomic {
        size: usize,
        write: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Addr, u64, u64, c_int, c_int, UserContext) -> Ssize,
        writev: unsafe extern "C" fn(Ep, *const Ioc, Descs, usize, Addr, u64, u64, c_int, c_int, UserContext) -> Ssize,
        writemsg: unsafe extern "C" fn(Ep, *const MsgAtomic, u64) -> Ssize,
        inject: unsafe extern "C" fn(Ep, Bytes, usize, Addr, u64, u64, c_int, c_int) -> Ssize,
        readwrite: unsafe extern "C" fn(Ep, Bytes, usize, Desc, *mut c_void, Desc, Addr, u64, u64, c_int, c_int, UserContext) -> Ssize,
        readwritev: unsafe extern "C" fn(Ep, *const Ioc, Descs, usize, *mut Ioc, Descs, usize, Addr, u64, u64, c_int, c_int, UserContext) -> Ssize,
        readwritemsg: unsafe extern "C" fn(Ep, *const MsgAtomic, *mut Ioc, Descs, usize, u64) -> Ssize,
        compwrite: unsafe extern "C" fn(Ep, Bytes, usize, Desc, Bytes, Desc, *mut c_void, Desc, Addr, u64, u64, c_int, c_int, UserContext) -> Ssize,
        compwritev: unsafe extern "C" fn(Ep, *const Ioc, Descs, usize, *const Ioc, Descs, usize, *mut Ioc, Descs, usize, Addr, u64, u64, c_int, c_int, UserContext) -> Ssize,
        compwritemsg: unsafe extern "C" fn(Ep, *const MsgAtomic, *const Ioc, Descs, usize, *mut Ioc, Descs, usize, u64) -> Ssize,
        writevalid: Valid, readwritevalid: Valid, compwritevalid: Valid,
    }

    struct FidEp {
        fid: Fid, ops: *const OpsEp, cm: *const OpsCm, msg: *const OpsMsg, rma: *const OpsRma,
        tagged: *const OpsTagged, atomic: *const OpsAtomic, collective: *const c_void,
    }
}
