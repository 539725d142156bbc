//! The provider that libfabric loads, and its fabrics.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use crate::abi::{self, FidFabric};
use crate::error::{EINVAL, ENODATA, calls};
use crate::fid::{Head, Object, fid, give, no_bind, no_call, no_control, ops};
use crate::{domain, eq, info, sets};

/// Name of fabrics and domains.
pub const NAME: &CStr = c"portolan";

struct StaticProvider(UnsafeCell<abi::Provider>);

// SAFETY: only libfabric writes here, to the context, under a lock of its own.
unsafe impl Sync for StaticProvider {}

static PROVIDER: StaticProvider = StaticProvider(UnsafeCell::new(abi::Provider {
    version: crate::version(
        crate::number(env!("CARGO_PKG_VERSION_MAJOR")),
        crate::number(env!("CARGO_PKG_VERSION_MINOR")),
    ),
    // The newest: libfabric passes over providers of older releases than a program asks for.
    fi_version: crate::version(2, 6),
    context: abi::Context {
        internal: [std::ptr::null_mut(); 4],
    },
    name: NAME.as_ptr(),
    getinfo: info::getinfo,
    fabric: open,
    cleanup,
}));

/// The one function that this library exports.
#[unsafe(no_mangle)]
extern "C" fn fi_prov_ini() -> *mut abi::Provider {
    PROVIDER.0.get()
}

unsafe extern "C" fn cleanup() {}

#[repr(C)]
pub struct Fabric {
    head: Head<FidFabric>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Fabric {
    const CLASS: usize = abi::CLASS_FABRIC;
}

impl Fabric {
    /// The version of libfabric that the program was written for; libfabric sets it.
    pub fn api_version(&self) -> u32 {
        // SAFETY: set before the program got the object.
        unsafe { (*self.head.get()).api_version }
    }
}

static FID_OPS: abi::Ops = ops::<Fabric>(no_bind, no_control);
static OPS: abi::OpsFabric = abi::OpsFabric {
    size: size_of::<abi::OpsFabric>(),
    domain: domain::open,
    passive_ep: no_call,
    eq_open: eq::open,
    wait_open: sets::wait_open,
    trywait: sets::trywait,
    domain2: domain::open2,
};

calls! {
    fn open(attr: *mut abi::FabricAttr, fabric: *mut *mut FidFabric, context: *mut c_void) -> c_int {
        let attr = attr.as_ref().ok_or(EINVAL)?;
        if !attr.name.is_null() && CStr::from_ptr(attr.name) != NAME {
            return Err(ENODATA);
        }
        let made = Arc::new(Fabric {
            head: Head::new(FidFabric {
                fid: fid::<Fabric>(context, &FID_OPS),
                ops: &raw const OPS,
                api_version: attr.api_version,
            }),
        });
        give(made, fabric);
        Ok(0)
    }
}
