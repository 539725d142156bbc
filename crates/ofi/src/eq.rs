//! Event queues. No operation is reported in one: programs write to them, and wait.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use crate::abi::{self, EqErrEntry, Fid, FidEq, FidFabric};
use crate::bell::{Bell, wait_for};
use crate::error::{EAGAIN, EINVAL, ENOSYS, ETOOSMALL, Result, calls, explain};
use crate::fabric::Fabric;
use crate::fid::{Head, Object, fid, give, given, lock, no_bind, object, ops, shared};
use crate::sets::{Waitable, control_wait, join};

#[repr(C)]
pub struct Eq {
    head: Head<FidEq>,
    _fabric: Arc<Fabric>,
    bell: Option<Bell>,
    /// Whether programs may write to the queue.
    writable: bool,
    events: Mutex<VecDeque<(u32, Vec<u8>)>>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Eq {
    const CLASS: usize = abi::CLASS_EQ;
}

static FID_OPS: abi::Ops = ops::<Eq>(no_bind, control);
static OPS: abi::OpsEq = abi::OpsEq {
    size: size_of::<abi::OpsEq>(),
    read,
    readerr,
    write,
    sread,
    strerror,
};

calls! {
    /// `fi_eq_open`.
    fn open(fabric: *mut FidFabric, attr: *mut abi::EqAttr, eq: *mut *mut FidEq, context: *mut c_void) -> c_int {
        let (fabric, attr) = (shared::<Fabric, _>(fabric)?, given(attr)?);
        let made = Arc::new(Eq {
            head: Head::new(FidEq {
                fid: fid::<Eq>(context, &FID_OPS),
                ops: &raw const OPS,
            }),
            _fabric: fabric,
            bell: Bell::of(attr.wait_obj, attr.wait_set)?,
            writable: attr.flags & abi::WRITE != 0,
            events: Mutex::default(),
        });
        if attr.wait_obj == abi::WAIT_SET {
            join(attr.wait_set, &made)?;
        }
        give(made, eq);
        Ok(0)
    }
}

impl Eq {
    /// # Safety
    /// The places may be written, `buffer` for `room` bytes.
    unsafe fn take(
        &self,
        event: *mut u32,
        buffer: *mut c_void,
        room: usize,
        flags: u64,
    ) -> Result<isize> {
        let mut events = lock(&self.events);
        let (number, bytes) = events.front().ok_or(EAGAIN)?;
        if bytes.len() > room {
            return Err(ETOOSMALL);
        }
        // SAFETY: promised by the caller.
        unsafe {
            if !event.is_null() {
                event.write(*number);
            }
            buffer
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        let length = bytes.len() as isize;
        if flags & abi::PEEK == 0 {
            events.pop_front();
        }
        Ok(length)
    }
}

impl Waitable for Eq {
    fn bell(&self) -> Option<&Bell> {
        self.bell.as_ref()
    }

    fn progress(&self) -> Result<()> {
        Ok(())
    }

    fn is_ready(&self) -> Result<bool> {
        Ok(!lock(&self.events).is_empty())
    }

    fn context(&self) -> *mut c_void {
        // SAFETY: the context is never written.
        unsafe { (*self.head.get()).fid.context }
    }
}

calls! {
    fn control(eq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
        control_wait(object::<Eq, _>(eq)?, command, arg)
    }

    fn read(eq: *mut FidEq, event: *mut u32, buffer: *mut c_void, room: usize, flags: u64) -> isize {
        object::<Eq, _>(eq)?.take(event, buffer, room, flags)
    }

    fn sread(eq: *mut FidEq, event: *mut u32, buffer: *mut c_void, room: usize, timeout: c_int, flags: u64) -> isize {
        let eq: &Eq = object(eq)?;
        let look = || match eq.take(event, buffer, room, flags) {
            Err(EAGAIN) => Ok(None),
            other => other.map(Some),
        };
        wait_for(eq.bell.as_ref().ok_or(EINVAL)?, timeout, look, || eq.is_ready())?.ok_or(EAGAIN)
    }

    fn readerr(eq: *mut FidEq, _buffer: *mut EqErrEntry, _flags: u64) -> isize {
        // No event here is an error.
        object::<Eq, _>(eq).and(Err(EAGAIN))
    }

    fn write(eq: *mut FidEq, event: u32, buffer: *const c_void, length: usize, _flags: u64) -> isize {
        let eq: &Eq = object(eq)?;
        if !eq.writable {
            return Err(ENOSYS);
        }
        let bytes = portolan::c_edge::slice(buffer.cast::<u8>(), length)?;
        lock(&eq.events).push_back((event, bytes.to_vec()));
        if let Some(bell) = &eq.bell {
            bell.ring();
        }
        Ok(length as isize)
    }
}

unsafe extern "C" fn strerror(
    _eq: *mut FidEq,
    error: c_int,
    _data: *const c_void,
    buffer: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: promised by the program.
    unsafe { explain(error, buffer, room) }
}
