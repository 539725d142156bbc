//! Our structures have their fields where libfabric's header has them.

use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use portolan_fi::abi;

/// Assertions about structures: its name in C, `= SIZE` where all releases have the same, and
/// its fields, by their names in C where those are others.
macro_rules! layouts {
    ($out:ident; $($c:literal $rust:ident $($same:ident)? { $($field:ident $(as $name:literal)?),* $(,)? })+) => {$(
        $(
            let name = [$($name,)? stringify!($field)][0];
            let offset = offset_of!(abi::$rust, $field);
            writeln!($out, "_Static_assert(offsetof(struct {}, {name}) == {offset}, \"{name}\");", $c).unwrap();
        )*
        $(
            let _ = stringify!($same);
            let size = size_of::<abi::$rust>();
            writeln!($out, "_Static_assert(sizeof(struct {}) == {size}, \"its size\");", $c).unwrap();
        )?
    )+};
}

#[test]
fn structures_are_those_of_the_header() {
    let mut c = String::from(
        "#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n\
         #include <rdma/fi_endpoint.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_eq.h>\n\
         #include <rdma/fi_tagged.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_atomic.h>\n\
         #include <rdma/providers/fi_prov.h>\n",
    );
    layouts! { c;
        "fi_provider" Provider same { version, fi_version, context, name, getinfo, fabric, cleanup }
        "fid" Fid same { fclass, context, ops }
        "fi_ops" Ops { size, close, bind, control, ops_open, tostr, ops_set }
        "fi_tx_attr" TxAttr same { caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass }
        "fi_rx_attr" RxAttr same { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit }
        "fi_ep_attr" EpAttr { kind as "type", protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size, max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key }
        "fi_domain_attr" DomainAttr { domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass }
        "fi_fabric_attr" FabricAttr same { fabric, name, prov_name, prov_version, api_version }
        "fi_info" Info same { next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic }
        "fi_ops_fabric" OpsFabric { size, domain, passive_ep, eq_open, wait_open, trywait, domain2 }
        "fid_fabric" FidFabric same { fid, ops, api_version }
        "fi_av_attr" AvAttr same { kind as "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        "fi_ops_av" OpsAv { size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set }
        "fid_av" FidAv same { fid, ops }
        "fid_mr" FidMr same { fid, mem_desc, key }
        "fi_mr_attr" MrAttr { mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key, iface }
        "fi_ops_domain" OpsDomain { size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open, stx_ctx, srx_ctx, query_atomic, query_collective, endpoint2 }
        "fi_ops_mr" OpsMr same { size, reg, regv, regattr }
        "fid_domain" FidDomain same { fid, ops, mr }
        "fi_msg" Msg same { msg_iov, desc, iov_count, addr, context, data }
        "fi_msg_tagged" MsgTagged same { msg_iov, desc, iov_count, addr, tag, ignore, context, data }
        "fi_rma_iov" RmaIov same { addr, len, key }
        "fi_rma_ioc" RmaIoc same { addr, len as "count", key }
        "fi_msg_rma" MsgRma same { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
        "fi_ioc" Ioc same { addr, count }
        "fi_atomic_attr" AtomicAttr same { count, size }
        "fi_msg_atomic" MsgAtomic same { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data }
        "fi_ops_ep" OpsEp { size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left }
        "fi_ops_cm" OpsCm same { size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join }
        "fi_ops_msg" OpsMsg same { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
        "fi_ops_tagged" OpsTagged same { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
        "fi_ops_rma" OpsRma same { size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata }
        "fi_ops_atomic" OpsAtomic same { size, write, writev, writemsg, inject, readwrite, readwritev, readwritemsg, compwrite, compwritev, compwritemsg, writevalid, readwritevalid, compwritevalid }
        "fid_ep" FidEp same { fid, ops, cm, msg, rma, tagged, atomic, collective }
        "fi_wait_attr" WaitAttr same { wait_obj, flags }
        "fi_ops_wait" OpsWait same { size, wait }
        "fid_wait" FidWait same { fid, ops }
        "fi_ops_poll" OpsPoll same { size, poll, poll_add, poll_del }
        "fid_poll" FidPoll same { fid, ops }
        "fi_eq_attr" EqAttr same { size, flags, wait_obj, signaling_vector, wait_set }
        "fi_eq_err_entry" EqErrEntry same { fid, context, data, err, prov_errno, err_data, err_data_size }
        "fi_ops_eq" OpsEq same { size, read, readerr, write, sread, strerror }
        "fid_eq" FidEq same { fid, ops }
        "fi_cq_tagged_entry" CqEntry same { op_context, flags, len, buf, data, tag }
        "fi_cq_err_entry" CqErrEntry { op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size }
        "fi_cq_attr" CqAttr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        "fi_ops_cq" OpsCq { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror }
        "fid_cq" FidCq same { fid, ops }
        "fi_cntr_attr" CntrAttr { events, wait_obj, wait_set, flags }
        "fi_ops_cntr" OpsCntr { size, read, readerr, add, set, wait, adderr, seterr }
        "fid_cntr" FidCntr same { fid, ops }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout.c");
    fs::write(&path, c).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-fsyntax-only"])
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
