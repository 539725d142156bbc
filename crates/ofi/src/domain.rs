//! Domains: the common state of endpoints, queues and memory that belong together.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use portolan::Threads;

use crate::abi::{self, FidDomain, FidFabric};
use crate::attachment::Attachment;
use crate::error::{EINVAL, ENOSYS, Result, calls};
use crate::fabric::Fabric;
use crate::fid::{Head, Object, fid, give, given, lock, no_bind, no_call, no_control, ops, shared};
use crate::mr::Region;
use crate::name::{Family, anywhere};
use crate::{atomic, av, cntr, cq, ep, mr, sets};

/// Open regions, and the enabled endpoints, at which all of them are registered.
#[derive(Default)]
struct State {
    attached: Vec<Arc<Attachment>>,
    regions: Vec<Arc<Region>>,
}

#[repr(C)]
pub struct Domain {
    head: Head<FidDomain>,
    _fabric: Arc<Fabric>,
    /// Which threads may call the domain's endpoints.
    pub threads: Threads,
    pub api_version: u32,
    /// Address family of the domain's endpoints and of the names in its address vectors.
    pub family: Family,
    /// Maximum number of addresses that a program expects to insert in an address vector.
    peers: AtomicUsize,
    state: Mutex<State>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Domain {
    const CLASS: usize = abi::CLASS_DOMAIN;
}

static FID_OPS: abi::Ops = ops::<Domain>(no_bind, no_control);
static OPS: abi::OpsDomain = abi::OpsDomain {
    size: size_of::<abi::OpsDomain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    scalable_ep: no_call,
    cntr_open: cntr::open,
    poll_open: sets::poll_open,
    stx_ctx: no_call,
    srx_ctx: no_call,
    query_atomic: atomic::query,
    query_collective: no_call,
    endpoint2: ep::open2,
    xpu_ctx: no_call,
};

/// `fi_domain`.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut abi::Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { open2(fabric, info, domain, 0, context) }
}

calls! {
    /// `fi_domain2`.
    fn open2(fabric: *mut FidFabric, info: *mut abi::Info, domain: *mut *mut FidDomain, flags: u64, context: *mut c_void) -> c_int {
        let (fabric, info) = (shared::<Fabric, _>(fabric)?, given(info)?);
        let attr = given(info.domain_attr)?;
        if flags != 0 {
            return Err(ENOSYS);
        }
        if attr.mr_mode & abi::MR_BASIC != 0 {
            return Err(EINVAL);
        }
        let family = match Family::asked(info)? {
            Some(family) => family,
            None => Family::of(&anywhere(None)?.ip()),
        };
        let made = Arc::new(Domain {
            head: Head::new(FidDomain {
                fid: fid::<Domain>(context, &FID_OPS),
                ops: &raw const OPS,
                mr: &raw const mr::OPS,
            }),
            threads: if attr.threading == abi::THREAD_DOMAIN {
                Threads::Serialized
            } else {
                Threads::Multiple
            },
            api_version: fabric.api_version(),
            family,
            _fabric: fabric,
            peers: AtomicUsize::new(0),
            state: Mutex::default(),
        });
        give(made, domain);
        Ok(0)
    }
}

impl Domain {
    pub fn expect_peers(&self, count: usize) {
        self.peers.fetch_max(count, Ordering::Relaxed);
    }

    pub fn peers(&self) -> usize {
        self.peers.load(Ordering::Relaxed)
    }

    /// Registers all regions at an endpoint that is enabled.
    pub fn attach(&self, attachment: &Arc<Attachment>) -> Result<()> {
        let mut state = lock(&self.state);
        for region in &state.regions {
            region.open_at(attachment)?;
        }
        state.attached.push(Arc::clone(attachment));
        Ok(())
    }

    /// Lets an endpoint's new counters count what peers do to the regions.
    pub fn count_at(&self, attachment: &Arc<Attachment>) -> Result<()> {
        let state = lock(&self.state);
        state
            .regions
            .iter()
            .try_for_each(|it| it.count_at(attachment))
    }

    pub fn detach(&self, attachment: &Arc<Attachment>) {
        let mut state = lock(&self.state);
        state.attached.retain(|it| !Arc::ptr_eq(it, attachment));
        for region in &state.regions {
            region.forget_at(attachment);
        }
    }

    /// Registers a region at all endpoints.
    pub fn open_region(&self, region: &Arc<Region>) -> Result<()> {
        let mut state = lock(&self.state);
        if state.regions.iter().any(|it| it.key == region.key) {
            return Err(crate::error::ENOKEY);
        }
        for attachment in &state.attached {
            if let Err(why) = region.open_at(attachment) {
                region.close()?;
                return Err(why);
            }
        }
        state.regions.push(Arc::clone(region));
        Ok(())
    }

    pub fn close_region(&self, region: &Arc<Region>) -> Result<()> {
        region.close()?;
        lock(&self.state)
            .regions
            .retain(|it| !Arc::ptr_eq(it, region));
        Ok(())
    }
}
