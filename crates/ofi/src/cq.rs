//! Completion queues. Each unites the engine's queues of all endpoints that are bound.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::{Action, Completion, Ended, Memory, QueueId};

use crate::abi::{self, CqErrEntry, Fid, FidCq, FidDomain};
use crate::attachment::Attachment;
use crate::bell::{Bell, wait_for};
use crate::domain::Domain;
use crate::error::{EAGAIN, EAVAIL, EFAULT, EINVAL, ENOSYS, Result, calls, explain, failure};
use crate::fid::{
    Head, Object, errno, fid, give, given, lock, no_bind, no_call, object, ops, shared,
};
use crate::message;
use crate::sets::{Waitable, control_wait, join};

/// How long a read polls before it reports an empty queue. MPICH yields its core between
/// two such reads, which takes as long.
const LINGER: Duration = Duration::from_micros(1);
/// After this many empty reads in a row a read polls once only: the program does other work
/// in between.
const LINGERING_READS: u32 = 32;

/// An event for the program: the fields of all formats, the error, and the source.
#[derive(Clone, Copy)]
pub struct Event {
    pub entry: CqErrEntry,
    pub from: abi::Addr,
}

// SAFETY: the pointers are the program's own, and are never dereferenced.
unsafe impl Send for Event {}

impl Event {
    pub const fn new(context: usize, flags: u64) -> Self {
        Self {
            entry: CqErrEntry {
                op_context: context as *mut c_void,
                flags,
                len: 0,
                buf: std::ptr::null_mut(),
                data: 0,
                tag: 0,
                olen: 0,
                err: 0,
                prov_errno: 0,
                err_data: std::ptr::null_mut(),
                err_data_size: 0,
            },
            from: abi::ADDR_NOTAVAIL,
        }
    }

    /// The event of a completed operation. `reads`: the operation wrote to the caller's memory.
    #[inline]
    fn of(attachment: &Attachment, done: &Completion, reads: bool) -> Self {
        let mut flags = match done.action {
            Action::Receive => abi::RECV,
            // FI_RECV would mark a message.
            Action::ReceiveMany => abi::MULTI_RECV,
            Action::Put => abi::RMA | abi::WRITE,
            Action::Get => abi::RMA | abi::READ,
            Action::Atomic if reads => abi::ATOMIC | abi::READ,
            Action::Atomic => abi::ATOMIC | abi::WRITE,
            _ => abi::SEND,
        };
        if matches!(done.action, Action::Receive | Action::Send) {
            flags |= message::kind(done.tag);
        }
        let mut event = Self::new(done.context as usize, flags);
        let entry = &mut event.entry;
        if done.action != Action::ReceiveMany {
            entry.len = done.bytes as usize;
        }
        if done.action == Action::Receive {
            entry.tag = done.tag & message::TAG;
            if let Some(data) = done.data {
                entry.flags |= abi::REMOTE_CQ_DATA;
                entry.data = data;
            }
            event.from = attachment.name_of(done.peer);
        }
        if attachment.has_many() {
            entry.buf = attachment.memory_of(done);
        }
        if let Some(why) = failure(&attachment.endpoint, done) {
            entry.olen = done.total.saturating_sub(done.bytes) as usize;
            entry.err = why.0;
            entry.prov_errno = -why.0;
        }
        event
    }
}

struct Source {
    attachment: Arc<Attachment>,
    queue: QueueId,
}

#[derive(Default)]
struct State {
    sources: Vec<Source>,
    /// Index of the source to poll first.
    next: usize,
    /// The error that the program must read before anything else.
    failed: Option<Event>,
    /// The last read emptied the queue. An MPI library reads on until there is nothing, and
    /// handles its completions only then: so the next read reports that without polling.
    emptied: bool,
    /// Reads in a row that found nothing.
    empty_reads: u32,
    /// Completions taken from a source, made into events after the endpoint's call.
    batch: Vec<(Completion, bool)>,
}

#[repr(C)]
pub struct Cq {
    head: Head<FidCq>,
    domain: Arc<Domain>,
    /// Size of an entry, bytes.
    entry_bytes: usize,
    bell: Option<Bell>,
    state: Mutex<State>,
    /// Events that are no completions of the engine: results of peeks, writes of peers.
    own: Mutex<VecDeque<Event>>,
    own_count: AtomicUsize,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Cq {
    const CLASS: usize = abi::CLASS_CQ;
}

static FID_OPS: abi::Ops = ops::<Cq>(no_bind, control);
static OPS: abi::OpsCq = abi::OpsCq {
    size: size_of::<abi::OpsCq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
    export_xpu: no_call,
};

calls! {
    /// `fi_cq_open`.
    fn open(domain: *mut FidDomain, attr: *mut abi::CqAttr, cq: *mut *mut FidCq, context: *mut c_void) -> c_int {
        let (domain, attr) = (shared::<Domain, _>(domain)?, given(attr)?);
        let entry_bytes = match attr.format {
            // Unspecified means the format that other providers use and programs expect.
            abi::CQ_FORMAT_UNSPEC | abi::CQ_FORMAT_CONTEXT => 8,
            abi::CQ_FORMAT_MSG => 24,
            abi::CQ_FORMAT_DATA => 40,
            abi::CQ_FORMAT_TAGGED => size_of::<abi::CqEntry>(),
            _ => return Err(ENOSYS),
        };
        let made = Arc::new(Cq {
            head: Head::new(FidCq {
                fid: fid::<Cq>(context, &FID_OPS),
                ops: &raw const OPS,
            }),
            domain,
            entry_bytes,
            bell: Bell::of(attr.wait_obj, attr.wait_set)?,
            state: Mutex::default(),
            own: Mutex::default(),
            own_count: AtomicUsize::new(0),
        });
        if attr.wait_obj == abi::WAIT_SET {
            join(attr.wait_set, &made)?;
        }
        give(made, cq);
        Ok(0)
    }
}

impl Cq {
    /// Adds an endpoint's queue as a source.
    pub fn attach(&self, attachment: &Arc<Attachment>, queue: QueueId) -> Result<()> {
        if let Some(bell) = &self.bell {
            bell.add(attachment)?;
        }
        let attachment = Arc::clone(attachment);
        lock(&self.state).sources.push(Source { attachment, queue });
        Ok(())
    }

    pub fn detach(&self, attachment: &Arc<Attachment>) {
        let mut state = lock(&self.state);
        state
            .sources
            .retain(|it| !Arc::ptr_eq(&it.attachment, attachment));
        if let Some(bell) = &self.bell {
            bell.remove(attachment);
        }
    }

    /// Queues an event that is no completion of the engine.
    pub fn push(&self, event: Event) {
        lock(&self.own).push_back(event);
        self.own_count.fetch_add(1, Ordering::Release);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Whether there are events in `own`.
    #[inline]
    fn has_own(&self) -> bool {
        self.own_count.load(Ordering::Acquire) > 0
    }

    fn pop(&self) -> Option<Event> {
        if !self.has_own() {
            return None;
        }
        let event = lock(&self.own).pop_front()?;
        self.own_count.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }

    /// Passes `most` events at most to `put`; makes progress if there are none.
    fn take(&self, most: usize, mut put: impl FnMut(usize, &Event)) -> Result<usize> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.failed.is_some() {
            return Err(EAVAIL);
        }
        if std::mem::take(&mut state.emptied) && most > 0 && !self.has_own() {
            return Err(EAGAIN);
        }
        let lingers = most > 0 && state.sources.len() == 1 && state.empty_reads < LINGERING_READS;
        let mut since = None;
        loop {
            let looked = self.look(state, most, &mut put);
            if looked != Err(EAGAIN) {
                state.empty_reads = 0;
                return looked;
            }
            if !lingers || since.get_or_insert_with(Instant::now).elapsed() >= LINGER {
                state.empty_reads = state.empty_reads.saturating_add(1);
                return looked;
            }
        }
    }

    /// Polls all sources once.
    #[inline]
    fn look(
        &self,
        state: &mut State,
        most: usize,
        put: &mut impl FnMut(usize, &Event),
    ) -> Result<usize> {
        let mut taken = 0;
        let failed = &mut state.failed;
        let mut accept = |event: Event| {
            if event.entry.err != 0 {
                *failed = Some(event);
                return false;
            }
            put(taken, &event);
            taken += 1;
            taken < most
        };
        let (mut go_on, mut room) = (most > 0, most);
        while go_on && let Some(event) = self.pop() {
            go_on = accept(event);
            room -= 1;
        }
        let count = state.sources.len();
        let mut moved = 0;
        for at in 0..count {
            let at = (state.next + at) % count;
            let Source { attachment, queue } = &state.sources[at];
            let endpoint = &attachment.endpoint;
            if most == 0 {
                endpoint.progress().map_err(errno)?;
                continue;
            }
            if !go_on {
                break;
            }
            state.batch.clear();
            let each = |ended: Ended| {
                let reads = matches!(ended.memory, Some(Memory::Sink(_)));
                state.batch.push((ended.completion, reads));
                ended.completion.result.is_ok()
            };
            let came = endpoint.each_completion(*queue, room, each);
            let came = came.map_err(errno)?;
            (moved, room) = (moved + came, room - came);
            for (done, reads) in &state.batch {
                go_on = accept(Event::of(attachment, done, *reads));
            }
        }
        state.next = if count > 1 {
            (state.next + 1) % count
        } else {
            0
        };
        while go_on
            && moved == 0
            && let Some(event) = self.pop()
        {
            go_on = accept(event);
        }
        state.emptied = taken > 0 && go_on;
        match (taken, &state.failed) {
            (0, Some(_)) => Err(EAVAIL),
            (0, None) => Err(EAGAIN),
            _ => Ok(taken),
        }
    }

    /// # Safety
    /// The buffers have room for `count` entries and names; the latter may be null.
    unsafe fn read(
        &self,
        buffer: *mut c_void,
        count: usize,
        names: *mut abi::Addr,
    ) -> Result<isize> {
        if buffer.is_null() && count > 0 {
            return Err(EFAULT);
        }
        let bytes = self.entry_bytes;
        let taken = self.take(count, |at, event| {
            // SAFETY: `at` is below `count`; an entry of any format is the beginning of ours.
            unsafe {
                let to = buffer.cast::<u8>().add(at * bytes);
                to.copy_from_nonoverlapping((&raw const event.entry).cast(), bytes);
                if !names.is_null() {
                    names.add(at).write(event.from);
                }
            }
        })?;
        Ok(taken as isize)
    }
}

impl Waitable for Cq {
    fn bell(&self) -> Option<&Bell> {
        self.bell.as_ref()
    }

    fn progress(&self) -> Result<()> {
        for Source { attachment, .. } in &lock(&self.state).sources {
            attachment.endpoint.progress().map_err(errno)?;
        }
        Ok(())
    }

    fn is_ready(&self) -> Result<bool> {
        let state = lock(&self.state);
        for Source { attachment, queue } in &state.sources {
            if attachment.endpoint.has_completions(*queue).map_err(errno)? {
                return Ok(true);
            }
        }
        Ok(state.failed.is_some() || self.has_own())
    }

    fn context(&self) -> *mut c_void {
        // SAFETY: the context is never written.
        unsafe { (*self.head.get()).fid.context }
    }
}

calls! {
    fn control(cq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
        control_wait(object::<Cq, _>(cq)?, command, arg)
    }

    fn read(cq: *mut FidCq, buffer: *mut c_void, count: usize) -> isize {
        object::<Cq, _>(cq)?.read(buffer, count, std::ptr::null_mut())
    }

    fn readfrom(cq: *mut FidCq, buffer: *mut c_void, count: usize, names: *mut abi::Addr) -> isize {
        object::<Cq, _>(cq)?.read(buffer, count, names)
    }

    fn readerr(cq: *mut FidCq, buffer: *mut CqErrEntry, _flags: u64) -> isize {
        let cq: &Cq = object(cq)?;
        if buffer.is_null() {
            return Err(EINVAL);
        }
        let mut state = lock(&cq.state);
        let Some(event) = state.failed.take() else {
            return Err(EAGAIN);
        };
        // Errors have no data; the program's buffer for it is left alone.
        let bytes = std::mem::offset_of!(CqErrEntry, err_data);
        let to = buffer.cast::<u8>();
        to.copy_from_nonoverlapping((&raw const event.entry).cast(), bytes);
        if cq.domain.api_version >= crate::version(1, 5) {
            (*buffer).err_data_size = 0;
        }
        Ok(1)
    }
}

unsafe extern "C" fn sread(
    cq: *mut FidCq,
    buffer: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: promised by the program.
    unsafe { sreadfrom(cq, buffer, count, std::ptr::null_mut(), condition, timeout) }
}

calls! {
    fn sreadfrom(cq: *mut FidCq, buffer: *mut c_void, count: usize, names: *mut abi::Addr, _condition: *const c_void, timeout: c_int) -> isize {
        let cq: &Cq = object(cq)?;
        let bell = cq.bell.as_ref().ok_or(EINVAL)?;
        let told = bell.told();
        let look = || match cq.read(buffer, count, names) {
            Err(EAGAIN) if !bell.is_signalled(told) => Ok(None),
            other => other.map(Some),
        };
        let is_new = || Ok(bell.is_signalled(told) || cq.is_ready()?);
        wait_for(bell, timeout, look, is_new)?.ok_or(EAGAIN)
    }

    fn signal(cq: *mut FidCq) -> c_int {
        let cq: &Cq = object(cq)?;
        cq.bell.as_ref().ok_or(ENOSYS)?.signal();
        Ok(0)
    }
}

unsafe extern "C" fn strerror(
    _cq: *mut FidCq,
    error: c_int,
    _data: *const c_void,
    buffer: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: promised by the program.
    unsafe { explain(error, buffer, room) }
}
