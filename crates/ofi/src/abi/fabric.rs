//! `fabric.h` and `providers/fi_prov.h`.

use std::ffi::{c_char, c_int, c_void};

use super::{FidDomain, FidEq, FidWait, Unused};

pub const MSG: u64 = 1 << 1;
pub const RMA: u64 = 1 << 2;
pub const TAGGED: u64 = 1 << 3;
pub const ATOMIC: u64 = 1 << 4;
pub const READ: u64 = 1 << 8;
pub const WRITE: u64 = 1 << 9;
pub const RECV: u64 = 1 << 10;
pub const SEND: u64 = 1 << 11;
pub const REMOTE_READ: u64 = 1 << 12;
pub const REMOTE_WRITE: u64 = 1 << 13;
pub const MULTI_RECV: u64 = 1 << 16;
pub const REMOTE_CQ_DATA: u64 = 1 << 17;
pub const MORE: u64 = 1 << 18;
pub const PEEK: u64 = 1 << 19;
pub const FENCE: u64 = 1 << 21;
pub const COMPLETION: u64 = 1 << 24;
pub const INJECT: u64 = 1 << 25;
pub const INJECT_COMPLETE: u64 = 1 << 26;
pub const TRANSMIT_COMPLETE: u64 = 1 << 27;
pub const DELIVERY_COMPLETE: u64 = 1 << 28;
pub const MATCH_COMPLETE: u64 = 1 << 31;
pub const LOCAL_COMM: u64 = 1 << 51;
pub const REMOTE_COMM: u64 = 1 << 52;
pub const RMA_EVENT: u64 = 1 << 56;
pub const SOURCE: u64 = 1 << 57;
pub const DIRECTED_RECV: u64 = 1 << 59;
pub const CLAIM: u64 = 1 << 59;
pub const DISCARD: u64 = 1 << 58;
/// Flag of `fi_bind`.
pub const SELECTIVE_COMPLETION: u64 = 1 << 59;
/// Flag of `fi_getinfo` when a layered provider calls it.
pub const CORE_PROV_ONLY: u64 = 1 << 59;
/// Bit of values that belong to one provider.
pub const PROV_SPECIFIC: u32 = 1 << 31;

pub const ADDR_UNSPEC: u64 = u64::MAX;
pub const ADDR_NOTAVAIL: u64 = u64::MAX;

pub const AV_MAP: u32 = 1;
pub const AV_TABLE: u32 = 2;

pub const MR_BASIC: c_int = 1;
pub const MR_SCALABLE: c_int = 2;

pub const PROGRESS_AUTO: u32 = 1;

pub const THREAD_SAFE: u32 = 1;
pub const THREAD_DOMAIN: u32 = 3;

pub const RM_ENABLED: u32 = 2;

pub const ORDER_SAS: u64 = 1 << 8;
/// All four orders of atomics.
pub const ORDER_ATOMIC: u64 = 0xf << 36;

pub const EP_RDM: u32 = 3;

pub const CLASS_FABRIC: usize = 1;
pub const CLASS_DOMAIN: usize = 2;
pub const CLASS_EP: usize = 3;
pub const CLASS_AV: usize = 11;
pub const CLASS_MR: usize = 12;
pub const CLASS_EQ: usize = 13;
pub const CLASS_CQ: usize = 14;
pub const CLASS_CNTR: usize = 15;
pub const CLASS_WAIT: usize = 16;
pub const CLASS_POLL: usize = 17;

pub const GETOPSFLAG: c_int = 2;
pub const SETOPSFLAG: c_int = 3;
pub const GETWAIT: c_int = 5;
pub const ENABLE: c_int = 6;
pub const GETWAITOBJ: c_int = 16;

structures! {
    struct Context {
        internal: [*mut c_void; 4],
    }

    struct Provider {
        version: u32, fi_version: u32, context: Context, name: *const c_char,
        getinfo: unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int,
        fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
        cleanup: unsafe extern "C" fn(),
    }

    struct TxAttr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64, inject_size: usize, size: usize,
        iov_limit: usize, rma_iov_limit: usize, tclass: u32,
    }

    struct RxAttr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64, total_buffered_recv: usize,
        size: usize, iov_limit: usize,
    }

    struct EpAttr {
        kind: u32, protocol: u32, protocol_version: u32, max_msg_size: usize, msg_prefix_size: usize,
        max_order_raw_size: usize, max_order_war_size: usize, max_order_waw_size: usize, mem_tag_format: u64,
        tx_ctx_cnt: usize, rx_ctx_cnt: usize, auth_key_size: usize, auth_key: *mut u8, xpu_ctx: *mut c_void,
    }

    struct DomainAttr {
        domain: *mut FidDomain, name: *mut c_char, threading: u32, control_progress: u32, data_progress: u32,
        resource_mgmt: u32, av_type: u32, mr_mode: c_int, mr_key_size: usize, cq_data_size: usize,
        cq_cnt: usize, ep_cnt: usize, tx_ctx_cnt: usize, rx_ctx_cnt: usize, max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize, max_ep_stx_ctx: usize, max_ep_srx_ctx: usize, cntr_cnt: usize,
        mr_iov_limit: usize, caps: u64, mode: u64, auth_key: *mut u8, auth_key_size: usize, max_err_data: usize,
        mr_cnt: usize, tclass: u32, max_ep_auth_key: usize, max_group_id: u32, max_cntr_value: u64,
        max_err_cntr_value: u64, max_xpu_ctx_cnt: usize,
    }

    struct FabricAttr {
        fabric: *mut FidFabric, name: *mut c_char, prov_name: *mut c_char, prov_version: u32, api_version: u32,
    }

    struct Info {
        next: *mut Info, caps: u64, mode: u64, addr_format: u32, src_addrlen: usize, dest_addrlen: usize,
        src_addr: *mut c_void, dest_addr: *mut c_void, handle: *mut Fid, tx_attr: *mut TxAttr,
        rx_attr: *mut RxAttr, ep_attr: *mut EpAttr, domain_attr: *mut DomainAttr, fabric_attr: *mut FabricAttr,
        nic: *mut c_void,
    }

    struct Ops {
        size: usize, close: unsafe extern "C" fn(*mut Fid) -> c_int,
        bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
        control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int, ops_open: Unused,
        tostr: Option<Unused>, ops_set: Option<Unused>,
    }

    struct Fid {
        fclass: usize, context: *mut c_void, ops: *const Ops,
    }

    struct OpsFabric {
        size: usize,
        domain: unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
        passive_ep: Unused,
        eq_open: unsafe extern "C" fn(*mut FidFabric, *mut super::EqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
        wait_open: unsafe extern "C" fn(*mut FidFabric, *mut super::WaitAttr, *mut *mut FidWait) -> c_int,
        trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
        domain2: unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, u64, *mut c_void) -> c_int,
    }

    struct FidFabric {
        fid: Fid, ops: *const OpsFabric, api_version: u32,
    }
}
