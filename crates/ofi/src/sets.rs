//! Waiting: `fi_trywait`, wait sets and poll sets over queues and counters.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, Weak};

use crate::abi::{self, Fid, FidDomain, FidFabric, FidPoll, FidWait};
use crate::bell::{Bell, wait_for};
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::domain::Domain;
use crate::eq::Eq;
use crate::error::{EAGAIN, EINVAL, ENOSYS, ETIMEDOUT, Result, calls};
use crate::fabric::Fabric;
use crate::fid::{Head, Object, fid, give, given, lock, no_bind, no_control, object, ops, shared};

/// An object to wait for: a queue, a counter or a wait set.
pub trait Waitable: Send + Sync {
    /// The bell on which threads sleep.
    fn bell(&self) -> Option<&Bell>;
    fn progress(&self) -> Result<()>;
    /// Whether there is something to read, as far as known without progress.
    fn is_ready(&self) -> Result<bool>;
    /// Changes with the counts, which one thread may have read and another not.
    fn stamp(&self) -> Result<u64> {
        Ok(0)
    }
    /// The program's context of the object.
    fn context(&self) -> *mut c_void;
}

/// A counted reference to the object that a program passes.
unsafe fn waitable(it: *mut Fid) -> Result<Arc<dyn Waitable>> {
    // SAFETY: promised by the caller, as all below.
    unsafe {
        Ok(match given(it)?.fclass {
            abi::CLASS_CQ => shared::<Cq, _>(it)?,
            abi::CLASS_CNTR => shared::<Cntr, _>(it)?,
            abi::CLASS_EQ => shared::<Eq, _>(it)?,
            abi::CLASS_WAIT => shared::<Wait, _>(it)?,
            _ => return Err(EINVAL),
        })
    }
}

/// `fi_control` of objects that can be waited for.
///
/// # Safety
/// `arg` is as the command requires.
pub unsafe fn control_wait(of: &impl Waitable, command: c_int, arg: *mut c_void) -> Result<c_int> {
    use std::os::fd::AsRawFd as _;
    let bell = of.bell();
    if arg.is_null() {
        return Err(EINVAL);
    }
    match command {
        abi::GETWAIT => {
            let fd = bell.ok_or(ENOSYS)?.descriptor()?.fd().as_raw_fd();
            // SAFETY: as promised.
            unsafe { arg.cast::<c_int>().write(fd) };
        }
        abi::GETWAITOBJ => {
            let kind = if bell.is_some() {
                abi::WAIT_FD
            } else {
                abi::WAIT_NONE
            };
            // SAFETY: as promised.
            unsafe { arg.cast::<u32>().write(kind) };
        }
        _ => return Err(ENOSYS),
    }
    Ok(0)
}

calls! {
    /// `fi_trywait`.
    fn trywait(fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
        let _: &Fabric = object(fabric)?;
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        for &it in portolan::c_edge::slice(fids.cast_const(), count)? {
            let it = waitable(it)?;
            let mut may_poll = true;
            if let Some(bell) = it.bell() {
                may_poll = bell.arm_handed()? && bell.descriptor()?.is_stamped(it.stamp()?);
            }
            if !may_poll || it.is_ready()? {
                return Err(EAGAIN);
            }
        }
        Ok(0)
    }
}

/// A wait set.
#[repr(C)]
pub struct Wait {
    head: Head<FidWait>,
    _fabric: Arc<Fabric>,
    pub bell: Bell,
    members: Mutex<Vec<Weak<dyn Waitable>>>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Wait {
    const CLASS: usize = abi::CLASS_WAIT;
}

static WAIT_FID_OPS: abi::Ops = ops::<Wait>(no_bind, control);
static WAIT_OPS: abi::OpsWait = abi::OpsWait {
    size: size_of::<abi::OpsWait>(),
    wait,
};

calls! {
    /// `fi_wait_open`.
    fn wait_open(fabric: *mut FidFabric, attr: *mut abi::WaitAttr, set: *mut *mut FidWait) -> c_int {
        let (fabric, attr) = (shared::<Fabric, _>(fabric)?, given(attr)?);
        if !matches!(
            attr.wait_obj,
            abi::WAIT_UNSPEC | abi::WAIT_FD | abi::WAIT_YIELD
        ) {
            return Err(ENOSYS);
        }
        let made = Arc::new(Wait {
            head: Head::new(FidWait {
                fid: fid::<Wait>(std::ptr::null_mut(), &WAIT_FID_OPS),
                ops: &raw const WAIT_OPS,
            }),
            _fabric: fabric,
            bell: Bell::new(None)?,
            members: Mutex::default(),
        });
        give(made, set);
        Ok(0)
    }
}

/// Adds an object that was opened for a wait set to that set.
///
/// # Safety
/// `set` is null or a wait set.
pub unsafe fn join<T: Waitable + 'static>(set: *mut FidWait, member: &Arc<T>) -> Result<()> {
    // SAFETY: as promised.
    let set: &Wait = unsafe { object(set) }?;
    let member: Weak<T> = Arc::downgrade(member);
    lock(&set.members).push(member);
    Ok(())
}

impl Wait {
    fn all(&self) -> Vec<Arc<dyn Waitable>> {
        let mut members = lock(&self.members);
        members.retain(|it| it.strong_count() > 0);
        members.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Waitable for Wait {
    fn bell(&self) -> Option<&Bell> {
        Some(&self.bell)
    }

    fn progress(&self) -> Result<()> {
        self.all().iter().try_for_each(|it| it.progress())
    }

    fn is_ready(&self) -> Result<bool> {
        for member in self.all() {
            if member.is_ready()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn stamp(&self) -> Result<u64> {
        let all = self.all();
        (all.iter()).try_fold(0_u64, |sum, it| Ok(sum.wrapping_add(it.stamp()?)))
    }

    fn context(&self) -> *mut c_void {
        std::ptr::null_mut()
    }
}

calls! {
    fn control(set: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
        control_wait(object::<Wait, _>(set)?, command, arg)
    }

    fn wait(set: *mut FidWait, timeout: c_int) -> c_int {
        let set: &Wait = object(set)?;
        let stamp = set.stamp()?;
        let is_new = || Ok(set.is_ready()? || set.stamp()? != stamp);
        let look = || {
            set.progress()?;
            Ok(is_new()?.then_some(0))
        };
        wait_for(&set.bell, timeout, look, is_new)?.ok_or(ETIMEDOUT)
    }
}

/// A poll set.
#[repr(C)]
pub struct Poll {
    head: Head<FidPoll>,
    _domain: Arc<Domain>,
    members: Mutex<Vec<(*mut Fid, Arc<dyn Waitable>)>>,
}

// SAFETY: the pointers only identify members.
unsafe impl Send for Poll {}
// SAFETY: as above.
unsafe impl Sync for Poll {}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Poll {
    const CLASS: usize = abi::CLASS_POLL;
}

static POLL_FID_OPS: abi::Ops = ops::<Poll>(no_bind, no_control);
static POLL_OPS: abi::OpsPoll = abi::OpsPoll {
    size: size_of::<abi::OpsPoll>(),
    poll,
    poll_add,
    poll_del,
};

calls! {
    /// `fi_poll_open`.
    fn poll_open(domain: *mut FidDomain, _attr: *mut c_void, set: *mut *mut FidPoll) -> c_int {
        let domain: Arc<Domain> = shared(domain)?;
        let made = Arc::new(Poll {
            head: Head::new(FidPoll {
                fid: fid::<Poll>(std::ptr::null_mut(), &POLL_FID_OPS),
                ops: &raw const POLL_OPS,
            }),
            _domain: domain,
            members: Mutex::default(),
        });
        give(made, set);
        Ok(0)
    }

    fn poll(set: *mut FidPoll, contexts: *mut *mut c_void, count: c_int) -> c_int {
        let set: &Poll = object(set)?;
        let room = usize::try_from(count).map_err(|_| EINVAL)?;
        let mut found = 0;
        for (_, member) in &*lock(&set.members) {
            member.progress()?;
            if member.is_ready()? && found < room {
                contexts.add(found).write(member.context());
                found += 1;
            }
        }
        Ok(found as c_int)
    }

    fn poll_add(set: *mut FidPoll, it: *mut Fid, _flags: u64) -> c_int {
        let set: &Poll = object(set)?;
        let member = waitable(it)?;
        let mut members = lock(&set.members);
        if !members.iter().any(|(fid, _)| *fid == it) {
            members.push((it, member));
        }
        Ok(0)
    }

    fn poll_del(set: *mut FidPoll, it: *mut Fid, _flags: u64) -> c_int {
        let set: &Poll = object(set)?;
        let mut members = lock(&set.members);
        let at = members.iter().position(|(fid, _)| *fid == it);
        members.remove(at.ok_or(EINVAL)?);
        Ok(0)
    }
}
