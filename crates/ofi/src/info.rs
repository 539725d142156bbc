//! `fi_getinfo`: the provider's capabilities, and whether they meet a program's hints.

use std::ffi::{CStr, c_char, c_int};
use std::net::{SocketAddr, ToSocketAddrs as _};

use portolan::{address_at, c_edge, networks, place_of};

use crate::abi::{self, DomainAttr, EpAttr, FabricAttr, Info, RxAttr, TxAttr};
use crate::error::{EINVAL, ENODATA, ENOMEM, Result, calls};
use crate::fabric::NAME;
use crate::name::{Family, NAME_MAX, anywhere};
use crate::{atomic, mr};

/// Maximum length of a message or an access, bytes.
pub const MESSAGE_MAX: usize = portolan::MESSAGE_BYTES_MAX as usize;
/// Maximum length of injected data, bytes.
pub const INJECT_MAX: usize = 4096;
/// Reported size of queues, which in fact have no limit.
pub const QUEUE_SIZE: usize = 1024;
/// The program's part of a tag: fields of one bit each, but for the highest.
const TAG_FORMAT: u64 = 0x5555_5555_5555_5555;
const PROTOCOL: u32 = abi::PROV_SPECIFIC | 0x50;
/// Limited by memory only.
const MANY: usize = 65_536;

const MESSAGES: u64 = abi::MSG | abi::TAGGED;
const MEMORY: u64 = abi::RMA | abi::ATOMIC;
const TX_CAPS: u64 = MESSAGES | MEMORY | abi::SEND | abi::READ | abi::WRITE | abi::FENCE;
const RX_CAPS: u64 = MESSAGES
    | MEMORY
    | abi::RECV
    | abi::REMOTE_READ
    | abi::REMOTE_WRITE
    | abi::RMA_EVENT
    | abi::MULTI_RECV
    | abi::DIRECTED_RECV
    | abi::SOURCE;
const DOMAIN_CAPS: u64 = abi::LOCAL_COMM | abi::REMOTE_COMM;
const CAPS: u64 = TX_CAPS | RX_CAPS | DOMAIN_CAPS;
/// Capabilities that a program has without a request.
const SECONDARY: u64 = abi::MULTI_RECV | abi::SOURCE | abi::FENCE | DOMAIN_CAPS;
const ORDER: u64 = abi::ORDER_SAS | abi::ORDER_ATOMIC;
const TX_FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE;
const RX_FLAGS: u64 = abi::COMPLETION | abi::MULTI_RECV;

const TX: TxAttr = TxAttr {
    caps: TX_CAPS,
    mode: 0,
    op_flags: 0,
    msg_order: ORDER,
    comp_order: 0,
    inject_size: INJECT_MAX,
    size: QUEUE_SIZE,
    iov_limit: mr::PIECES_MAX,
    rma_iov_limit: 1,
    tclass: 0,
};
const RX: RxAttr = RxAttr {
    caps: RX_CAPS,
    mode: 0,
    op_flags: 0,
    msg_order: ORDER,
    comp_order: 0,
    total_buffered_recv: 0,
    size: QUEUE_SIZE,
    iov_limit: mr::PIECES_MAX,
};
const EP: EpAttr = EpAttr {
    kind: abi::EP_RDM,
    protocol: PROTOCOL,
    protocol_version: 1,
    max_msg_size: MESSAGE_MAX,
    msg_prefix_size: 0,
    max_order_raw_size: atomic::BYTES_MAX,
    max_order_war_size: atomic::BYTES_MAX,
    max_order_waw_size: atomic::BYTES_MAX,
    mem_tag_format: TAG_FORMAT,
    tx_ctx_cnt: 1,
    rx_ctx_cnt: 1,
    auth_key_size: 0,
    auth_key: std::ptr::null_mut(),
    xpu_ctx: std::ptr::null_mut(),
};
const DOMAIN: DomainAttr = DomainAttr {
    domain: std::ptr::null_mut(),
    name: std::ptr::null_mut(),
    threading: abi::THREAD_SAFE,
    // The helper thread makes progress.
    control_progress: abi::PROGRESS_AUTO,
    data_progress: abi::PROGRESS_AUTO,
    resource_mgmt: abi::RM_ENABLED,
    av_type: abi::AV_TABLE,
    mr_mode: 0,
    mr_key_size: 8,
    cq_data_size: 8,
    cq_cnt: MANY,
    ep_cnt: MANY,
    tx_ctx_cnt: 1,
    rx_ctx_cnt: 1,
    max_ep_tx_ctx: 1,
    max_ep_rx_ctx: 1,
    max_ep_stx_ctx: 0,
    max_ep_srx_ctx: 0,
    cntr_cnt: MANY,
    mr_iov_limit: mr::PIECES_MAX,
    caps: DOMAIN_CAPS,
    mode: 0,
    auth_key: std::ptr::null_mut(),
    auth_key_size: 0,
    max_err_data: 0,
    mr_cnt: MANY,
    tclass: 0,
    max_ep_auth_key: 0,
    max_group_id: 0,
    max_cntr_value: u64::MAX,
    max_err_cntr_value: u64::MAX,
    max_xpu_ctx_cnt: 0,
};

/// Checks that all requested bits are available.
fn within(asked: u64, there: u64) -> Result<()> {
    if asked & !there == 0 {
        Ok(())
    } else {
        Err(ENODATA)
    }
}

fn at_most(asked: usize, there: usize) -> Result<()> {
    if asked <= there { Ok(()) } else { Err(ENODATA) }
}

/// Checks a requested value, where 0 means any.
fn is_one_of(asked: u32, there: &[u32]) -> Result<()> {
    if asked == 0 || there.contains(&asked) {
        Ok(())
    } else {
        Err(ENODATA)
    }
}

/// # Safety
/// `asked` is null or a text.
unsafe fn is_named(asked: *const c_char, name: &CStr) -> Result<()> {
    // SAFETY: as promised.
    if asked.is_null() || unsafe { CStr::from_ptr(asked) } == name {
        Ok(())
    } else {
        Err(ENODATA)
    }
}

/// Checks that the provider has what is requested; for endpoints too, since programs change
/// the structure that they got.
///
/// # Errors
/// `ENODATA`: it has not.
///
/// # Safety
/// The structures are the program's, of any release from 1.17 on.
pub unsafe fn check(asked: &Info) -> Result<()> {
    within(asked.caps, CAPS)?;
    Family::asked(asked)?;
    // SAFETY: as promised, as all below.
    if let Some(tx) = unsafe { asked.tx_attr.as_ref() } {
        within(tx.caps, CAPS)?;
        within(tx.op_flags, TX_FLAGS)?;
        within(tx.msg_order, ORDER)?;
        within(tx.comp_order, 0)?;
        at_most(tx.inject_size, TX.inject_size)?;
        at_most(tx.iov_limit, TX.iov_limit)?;
        at_most(tx.rma_iov_limit, TX.rma_iov_limit)?;
    }
    // SAFETY: as promised.
    if let Some(rx) = unsafe { asked.rx_attr.as_ref() } {
        within(rx.caps, CAPS)?;
        within(rx.op_flags, RX_FLAGS)?;
        within(rx.msg_order, ORDER)?;
        within(rx.comp_order, 0)?;
        at_most(rx.iov_limit, RX.iov_limit)?;
    }
    // SAFETY: as promised.
    if let Some(ep) = unsafe { asked.ep_attr.as_ref() } {
        is_one_of(ep.kind, &[EP.kind])?;
        is_one_of(ep.protocol, &[PROTOCOL])?;
        at_most(ep.max_msg_size, EP.max_msg_size)?;
        at_most(ep.tx_ctx_cnt, 1)?;
        at_most(ep.rx_ctx_cnt, 1)?;
        at_most(ep.auth_key_size, 0)?;
        if ep.mem_tag_format.leading_zeros() < TAG_FORMAT.leading_zeros() {
            return Err(ENODATA);
        }
    }
    // SAFETY: as promised.
    if let Some(domain) = unsafe { asked.domain_attr.as_ref() } {
        // SAFETY: as promised.
        unsafe { is_named(domain.name, NAME) }?;
        within(domain.caps, DOMAIN_CAPS)?;
        is_one_of(domain.av_type, &[abi::AV_MAP, abi::AV_TABLE])?;
        at_most(domain.mr_key_size, DOMAIN.mr_key_size)?;
        at_most(domain.cq_data_size, DOMAIN.cq_data_size)?;
        at_most(domain.mr_iov_limit, DOMAIN.mr_iov_limit)?;
        at_most(domain.max_ep_stx_ctx, 0)?;
        at_most(domain.max_ep_srx_ctx, 0)?;
        at_most(domain.auth_key_size, 0)?;
        // A value from before release 1.5: virtual addresses, which are not supported.
        if domain.mr_mode == abi::MR_BASIC {
            return Err(ENODATA);
        }
    }
    // SAFETY: as promised.
    if let Some(fabric) = unsafe { asked.fabric_attr.as_ref() } {
        // SAFETY: as promised.
        unsafe { is_named(fabric.name, NAME) }?;
    }
    Ok(())
}

/// The capabilities granted for a valid request: the requested ones and the secondary ones;
/// all if nothing is requested.
fn granted(asked: u64) -> u64 {
    if asked == 0 {
        return CAPS;
    }
    let mut caps = asked | SECONDARY;
    // A kind that is requested without a direction means all directions.
    for (kind, ways) in [
        (MESSAGES, abi::SEND | abi::RECV),
        (
            MEMORY,
            abi::READ | abi::WRITE | abi::REMOTE_READ | abi::REMOTE_WRITE,
        ),
    ] {
        if asked & kind != 0 && asked & ways == 0 {
            caps |= ways;
        }
    }
    caps
}

/// The address at which a program wants to listen.
///
/// # Safety
/// The texts are null or texts, and the hints are the program's.
unsafe fn source(
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: Option<&Info>,
) -> Result<SocketAddr> {
    let asked = hints.map_or(Ok(None), Family::asked)?;
    // SAFETY: as promised.
    let text = |it: *const c_char| (!it.is_null()).then(|| unsafe { CStr::from_ptr(it) });
    if node.is_null() && service.is_null() {
        let Some(hints) = hints.filter(|it| !it.src_addr.is_null()) else {
            return anywhere(asked);
        };
        // SAFETY: as promised, as long as it says.
        let name = unsafe { c_edge::slice(hints.src_addr.cast_const().cast(), hints.src_addrlen) }?;
        let families = [Family::V4, Family::V6].into_iter();
        let mut families = families.filter(|it| asked.is_none_or(|asked| asked == *it));
        let address = families.find_map(|it| it.address(name)).ok_or(ENODATA)?;
        return place_of(&address).ok_or(ENODATA);
    }
    // A peer is known by its key, which no host name or port number contains.
    if flags & abi::SOURCE == 0 {
        return Err(ENODATA);
    }
    let port = match text(service) {
        Some(it) => it
            .to_str()
            .ok()
            .and_then(|it| it.parse().ok())
            .ok_or(ENODATA)?,
        None => 0,
    };
    let mut place = match text(node) {
        Some(it) => {
            let name = it.to_str().map_err(|_| ENODATA)?;
            let all = (name, port).to_socket_addrs().map_err(|_| ENODATA)?;
            let all = all.filter(|it| asked.is_none_or(|asked| asked == Family::of(&it.ip())));
            let here = all.filter(|it| networks(&it.ip().to_string()).is_ok());
            here.min_by_key(SocketAddr::is_ipv6).ok_or(ENODATA)?
        }
        None => anywhere(asked)?,
    };
    place.set_port(port);
    Ok(place)
}

/// A copy that libfabric frees.
fn allocated<T: Copy>(value: T) -> Result<*mut T> {
    // SAFETY: any size may be requested.
    let place: *mut T = unsafe { libc::malloc(size_of::<T>()) }.cast();
    if place.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: just allocated for one `T`, and aligned for any type.
    unsafe { place.write(value) };
    Ok(place)
}

fn allocated_text(text: &CStr) -> Result<*mut c_char> {
    // SAFETY: a text of ours.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() {
        Err(ENOMEM)
    } else {
        Ok(copy)
    }
}

calls! {
    /// `fi_getinfo`, of this provider.
    fn getinfo(version: u32, node: *const c_char, service: *const c_char, flags: u64, hints: *const Info, info: *mut *mut Info) -> c_int {
        let hints = hints.as_ref();
        // Layered providers would add only what is here already.
        if flags & abi::CORE_PROV_ONLY != 0 {
            return Err(ENODATA);
        }
        if info.is_null() {
            return Err(EINVAL);
        }
        if let Some(hints) = hints {
            check(hints)?;
        }
        let source = source(node, service, flags, hints)?;
        let made = make(version, hints, source)?;
        info.write(made);
        Ok(0)
    }
}

/// # Safety
/// The hints are the program's.
unsafe fn make(version: u32, hints: Option<&Info>, source: SocketAddr) -> Result<*mut Info> {
    let family = Family::of(&source.ip());
    let dest = match hints.filter(|it| !it.dest_addr.is_null()) {
        Some(it) if it.dest_addrlen == family.bytes() => {
            let mut name = [0; NAME_MAX];
            // SAFETY: as promised, as long as it says.
            let given = unsafe { c_edge::slice(it.dest_addr.cast_const().cast(), it.dest_addrlen) };
            name[..it.dest_addrlen].copy_from_slice(given?);
            Some(name)
        }
        Some(_) => return Err(ENODATA),
        None => None,
    };
    let caps = granted(hints.map_or(0, |it| it.caps));
    let mut tx = TX;
    let mut rx = RX;
    let mut domain = DOMAIN;
    (tx.caps, rx.caps) = (caps & TX_CAPS, caps & RX_CAPS);
    // SAFETY: as promised, as all below.
    if let Some(asked) = hints.and_then(|it| unsafe { it.tx_attr.as_ref() }) {
        tx.op_flags = asked.op_flags;
        tx.size = asked.size.max(tx.size);
        tx.tclass = asked.tclass;
    }
    // SAFETY: as promised.
    if let Some(asked) = hints.and_then(|it| unsafe { it.rx_attr.as_ref() }) {
        rx.op_flags = asked.op_flags;
        rx.size = asked.size.max(rx.size);
    }
    // SAFETY: as promised.
    if let Some(asked) = hints.and_then(|it| unsafe { it.domain_attr.as_ref() }) {
        let or = |asked, own| if asked == 0 { own } else { asked };
        domain.threading = or(asked.threading, domain.threading);
        domain.control_progress = or(asked.control_progress, domain.control_progress);
        domain.data_progress = or(asked.data_progress, domain.data_progress);
        domain.resource_mgmt = or(asked.resource_mgmt, domain.resource_mgmt);
        domain.av_type = or(asked.av_type, domain.av_type);
        domain.domain = asked.domain;
        if asked.mr_mode == abi::MR_SCALABLE {
            domain.mr_mode = abi::MR_SCALABLE;
        }
    }
    if version < crate::version(1, 5) {
        domain.mr_mode = abi::MR_SCALABLE;
    }
    domain.name = allocated_text(NAME)?;
    let fabric = FabricAttr {
        fabric: hints
            // SAFETY: as promised.
            .and_then(|it| unsafe { it.fabric_attr.as_ref() })
            .map_or(std::ptr::null_mut(), |it| it.fabric),
        name: allocated_text(NAME)?,
        // libfabric fills in what follows.
        prov_name: std::ptr::null_mut(),
        prov_version: 0,
        api_version: version,
    };
    let (dest_addrlen, dest_addr) = match dest {
        Some(name) => (family.bytes(), allocated(name)?),
        None => (0, std::ptr::null_mut()),
    };
    allocated(Info {
        next: std::ptr::null_mut(),
        caps,
        mode: 0,
        addr_format: family.format(),
        src_addrlen: family.bytes(),
        dest_addrlen,
        src_addr: allocated(family.name(&address_at(source)))?.cast(),
        dest_addr: dest_addr.cast(),
        handle: std::ptr::null_mut(),
        tx_attr: allocated(tx)?,
        rx_attr: allocated(rx)?,
        ep_attr: allocated(EP)?,
        domain_attr: allocated(domain)?,
        fabric_attr: allocated(fabric)?,
        nic: std::ptr::null_mut(),
    })
}
