//! Counters. Each sums the engine's counters of all endpoints that are bound.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use portolan::{Count, CounterId, Endpoint, Misuse};

use crate::abi::{self, Fid, FidCntr, FidDomain};
use crate::attachment::Attachment;
use crate::bell::{Bell, wait_for};
use crate::domain::Domain;
use crate::error::{EAVAIL, ENOSYS, ETIMEDOUT, Result, calls, edge};
use crate::fid::{Head, Object, errno, fid, give, lock, no_bind, no_call, object, ops, shared};
use crate::sets::{Waitable, control_wait, join};

#[derive(Default)]
struct State {
    sources: Vec<(Arc<Attachment>, CounterId)>,
    /// Counts that the program has added, and those of closed endpoints. Sums may wrap.
    done: u64,
    failed: u64,
    /// Number of errors that waits have reported.
    told: u64,
    /// Both counts at the program's last read.
    seen: (u64, u64),
}

#[repr(C)]
pub struct Cntr {
    head: Head<FidCntr>,
    _domain: Arc<Domain>,
    bell: Option<Bell>,
    state: Mutex<State>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Cntr {
    const CLASS: usize = abi::CLASS_CNTR;
}

static FID_OPS: abi::Ops = ops::<Cntr>(no_bind, control);
static OPS: abi::OpsCntr = abi::OpsCntr {
    size: size_of::<abi::OpsCntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
    export_xpu: no_call,
};

calls! {
    /// `fi_cntr_open`.
    fn open(domain: *mut FidDomain, attr: *mut abi::CntrAttr, cntr: *mut *mut FidCntr, context: *mut c_void) -> c_int {
        let domain: Arc<Domain> = shared(domain)?;
        let (wait_obj, set) = match attr.as_ref() {
            Some(attr) if attr.events != abi::CNTR_EVENTS_COMP || attr.flags != 0 => {
                return Err(ENOSYS);
            }
            Some(attr) => (attr.wait_obj, attr.wait_set),
            None => (abi::WAIT_UNSPEC, std::ptr::null_mut()),
        };
        let made = Arc::new(Cntr {
            head: Head::new(FidCntr {
                fid: fid::<Cntr>(context, &FID_OPS),
                ops: &raw const OPS,
            }),
            _domain: domain,
            bell: Bell::of(wait_obj, set)?,
            state: Mutex::default(),
        });
        if wait_obj == abi::WAIT_SET {
            join(set, &made)?;
        }
        give(made, cntr);
        Ok(0)
    }
}

impl State {
    fn sum(
        &self,
        of: impl Fn(&Endpoint, CounterId) -> std::result::Result<Count, Misuse>,
    ) -> Result<(u64, u64)> {
        let (mut done, mut failed) = (self.done, self.failed);
        for (attachment, counter) in &self.sources {
            let count = of(&attachment.endpoint, *counter).map_err(errno)?;
            done = done.wrapping_add(count.done);
            failed = failed.wrapping_add(count.failed);
        }
        Ok((done, failed))
    }

    /// Reads both counts for the program, with progress.
    fn count(&mut self) -> Result<(u64, u64)> {
        self.seen = self.sum(|endpoint, counter| endpoint.count(counter))?;
        Ok(self.seen)
    }

    /// Reads both counts without progress.
    fn counted(&self) -> Result<(u64, u64)> {
        self.sum(|endpoint, counter| endpoint.counted(counter))
    }
}

impl Cntr {
    /// The engine's counter at an endpoint: one for all kinds of events.
    pub fn at(self: &Arc<Self>, attachment: &Arc<Attachment>) -> Result<CounterId> {
        let is_it = |(it, _): &&(Arc<Attachment>, CounterId)| Arc::ptr_eq(it, attachment);
        if let Some((_, counter)) = lock(&self.state).sources.iter().find(is_it) {
            return Ok(*counter);
        }
        let counter = attachment.endpoint.open_counter().map_err(errno)?;
        attachment.count_for(self);
        lock(&self.state)
            .sources
            .push((Arc::clone(attachment), counter));
        if let Some(bell) = &self.bell {
            bell.add(attachment)?;
        }
        Ok(counter)
    }

    /// Detaches an endpoint; its counts stay.
    pub fn detach(&self, attachment: &Arc<Attachment>) {
        let mut state = lock(&self.state);
        let sources = std::mem::take(&mut state.sources);
        let (gone, stay): (Vec<_>, _) =
            (sources.into_iter()).partition(|(it, _)| Arc::ptr_eq(it, attachment));
        state.sources = gone;
        if let Ok((done, failed)) = state.count() {
            (state.done, state.failed) = (done, failed);
        }
        state.sources = stay;
        if let Some(bell) = &self.bell {
            bell.remove(attachment);
        }
    }

    fn count(&self) -> Result<(u64, u64)> {
        lock(&self.state).count()
    }

    /// Changes the counts: `by` receives the current ones.
    fn change(&self, by: impl FnOnce((u64, u64), &mut State)) -> Result<c_int> {
        let mut state = lock(&self.state);
        let now = state.counted()?;
        by(now, &mut state);
        drop(state);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        Ok(0)
    }
}

impl Waitable for Cntr {
    fn bell(&self) -> Option<&Bell> {
        self.bell.as_ref()
    }

    fn progress(&self) -> Result<()> {
        for (attachment, _) in &lock(&self.state).sources {
            attachment.endpoint.progress().map_err(errno)?;
        }
        Ok(())
    }

    fn is_ready(&self) -> Result<bool> {
        let state = lock(&self.state);
        Ok(state.counted()? != state.seen)
    }

    fn stamp(&self) -> Result<u64> {
        let (done, failed) = lock(&self.state).counted()?;
        Ok(done.wrapping_add(failed.rotate_left(32)))
    }

    fn context(&self) -> *mut c_void {
        // SAFETY: the context is never written.
        unsafe { (*self.head.get()).fid.context }
    }
}

calls! {
    fn control(cntr: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
        control_wait(object::<Cntr, _>(cntr)?, command, arg)
    }
}

/// Reads one of the counts; 0 on an error.
fn count_of(cntr: *mut FidCntr, which: impl FnOnce((u64, u64)) -> u64) -> u64 {
    let mut count = 0;
    let _: c_int = edge(|| {
        // SAFETY: promised by the program.
        let cntr: &Cntr = unsafe { object(cntr) }?;
        count = which(cntr.count()?);
        Ok(0)
    });
    count
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    count_of(cntr, |(done, _)| done)
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    count_of(cntr, |(_, failed)| failed)
}

fn change(cntr: *mut FidCntr, by: impl FnOnce((u64, u64), &mut State)) -> c_int {
    // SAFETY: promised by the program.
    edge(|| unsafe { object::<Cntr, _>(cntr) }?.change(by))
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |_, state| state.done = state.done.wrapping_add(value))
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |(done, _), state| {
        state.done = state.done.wrapping_add(value).wrapping_sub(done);
    })
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |_, state| {
        state.failed = state.failed.wrapping_add(value)
    })
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    change(cntr, |(_, failed), state| {
        state.failed = state.failed.wrapping_add(value).wrapping_sub(failed);
        state.told = value;
    })
}

calls! {
    fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
        let cntr: &Cntr = object(cntr)?;
        let bell = cntr.bell.as_ref().ok_or(ENOSYS)?;
        // Counts and errors that other threads have read are still new to this one.
        let seen = Cell::new((0, 0));
        let told = lock(&cntr.state).told;
        let look = || {
            let mut state = lock(&cntr.state);
            let (done, failed) = state.count()?;
            seen.set((done, failed));
            if done >= threshold {
                return Ok(Some(0));
            }
            if failed != told {
                state.told = failed;
                return Err(EAVAIL);
            }
            Ok(None)
        };
        let is_new = || Ok(lock(&cntr.state).counted()? != seen.get());
        wait_for(bell, timeout, look, is_new)?.ok_or(ETIMEDOUT)
    }
}
