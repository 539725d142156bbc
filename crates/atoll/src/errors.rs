//! What errors mean here, where it is not what they mean to Portolan.

use std::ffi::CStr;

use portolan::c_edge::{
    EACCES, EAGAIN, EBADF, ECHILD, EFAULT, EINVAL, ENOENT, ENOKEY, ENOSPC, ENXIO, ERANGE, Errno,
    meaning,
};

/// Portolan has no connections. The number is Linux's.
pub const ENOTCONN: Errno = Errno(107);

const MEANINGS: &[(Errno, &CStr)] = &[
    (
        EACCES,
        c"access is not allowed: the owner of the memory calls atoll_allow_rdma()",
    ),
    (
        EAGAIN,
        c"the send space is full of messages that were not received: try again later",
    ),
    (
        EBADF,
        c"not this process's id, or the host port is not open: begin with atoll_init()",
    ),
    (
        ECHILD,
        c"a forked child has no part in its parent's host port",
    ),
    (
        EFAULT,
        c"a null pointer, or memory that is not registered here",
    ),
    (EINVAL, c"a value that is not possible"),
    (ENOENT, c"no such descriptor or registration, or no longer"),
    (ENOKEY, c"the other side has nothing registered there"),
    (ENOSPC, c"too many registrations: deregister some"),
    (
        ENOTCONN,
        c"there is no connection: atoll_connect() makes it",
    ),
    (ENXIO, c"there is no host port with this id"),
    (
        ERANGE,
        c"the bytes do not lie in one registration of the other side",
    ),
];

pub fn text(error: i32) -> &'static CStr {
    let wanted = error.unsigned_abs();
    let ours = MEANINGS.iter().find(|(e, _)| e.0.unsigned_abs() == wanted);
    ours.map_or_else(|| meaning(error), |(_, text)| text)
}
