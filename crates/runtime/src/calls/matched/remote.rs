//! The program's calls on memory of other ranks, and on its own memory for their access.

use portolan_engine::{
    Buffer, DeregisterError, Exchange, Extent, Gather, Misuse, RegisterError, Released, Scatter,
    SendError, WaitError, address_space,
};
use portolan_exchange::{
    Admission, Atomic, CounterId, DeregisterRefused, Notify, OpId, Place, PutOptions, RegionId,
    RemoteKey, Rights, SendRefused,
};
use portolan_link::memory::reaches_own;
use portolan_sys::clock::now_ns;

use crate::sleep::{ANYBODY, Call, Waiting};
use crate::space::{Guard, LOOK_NS, Space};
use crate::state::State;

/// Longest such interval, ns: it doubles from poll to poll.
const LOOK_NS_MAX: u64 = 64_000_000;

impl Space {
    /// Registers memory for access by other ranks, with a key of the program's or, for `None`, one
    /// that is chosen. `admission`: [`Rights`](crate::Rights), or an [`Admission`] that says also
    /// whether the key alone names the region. The program sends its [`Space::remote_key`] to the
    /// others. Access works also while the program makes no calls, by the helper thread.
    ///
    /// Lent memory ([`crate::Buffer::lent`]) is changed by others until it is deregistered: read it
    /// with volatile or atomic reads only.
    ///
    /// # Errors
    /// [`RegisterError`], with the memory.
    pub fn register(
        &self,
        memory: impl Into<Scatter>,
        key: Option<u64>,
        admission: impl Into<Admission>,
    ) -> Result<RegionId, (RegisterError, Scatter)> {
        let memory = memory.into();
        let mut s = match self.enter_open() {
            Ok(s) => s,
            Err(m) => return Err((m.into(), memory)),
        };
        s.register_region(self.id, memory, key, admission.into())
            .map_err(|(refused, memory)| (refused.into(), memory))
    }

    /// Registers the whole address space of this process, 2^64 - 1 bytes from address 0 on:
    /// accesses name bytes by their address. Nothing is mapped, locked or walked for it. An access
    /// to an address that is not mapped ends as
    /// [`OpError::OutOfBounds`](crate::OpError::OutOfBounds), and a put may then have been written
    /// in part.
    ///
    /// # Safety
    /// Others that have the key access any memory of this process, as the rights say: what they
    /// write there must be as good as if this process had written it at some moment of its own.
    ///
    /// # Errors
    /// [`RegisterError`]; [`RegisterError::NotPossible`] where the kernel forbids such copies.
    pub unsafe fn register_address_space(
        &self,
        key: Option<u64>,
        admission: impl Into<Admission>,
    ) -> Result<RegionId, RegisterError> {
        let mut s = self.enter_open()?;
        if !s.cma || !reaches_own() {
            return Err(RegisterError::NotPossible);
        }
        // SAFETY: promised by the caller.
        let all = unsafe { address_space() };
        let registered = s.register_region(self.id, all, key, admission.into());
        registered.map_err(|(refused, _)| refused.into())
    }

    /// Registers memory of a region once more: all of it or a part, `bytes` bytes from `start` of
    /// that region on, with a key (`None`: a chosen one) and terms of its own. The memory is
    /// returned with the last of its regions. If a region of this memory has the same key, extent
    /// and terms, that region is returned; it must then be deregistered once more.
    ///
    /// # Errors
    /// [`RegisterError`]: nothing was registered.
    pub fn register_again(
        &self,
        of: RegionId,
        start: u64,
        bytes: u64,
        key: Option<u64>,
        admission: impl Into<Admission>,
    ) -> Result<RegionId, RegisterError> {
        let mut s = self.enter_open()?;
        let admission = admission.into();
        Ok(s.register_again(self.id, of, start, bytes, key, admission)?)
    }

    /// Registers memory that the program uses again and again: reuses a registration on the same
    /// terms, if there is one, also after it was ended. Others need the remote key only once.
    /// [`Space::deregister`] leaves the region open until its place is needed: of the ended
    /// registrations the last [`Config::regions_cached`](crate::Config::regions_cached) stay.
    ///
    /// # Safety
    /// As [`crate::Buffer::lent`], and for longer: until [`Space::forget_memory`] of it has
    /// returned, after the last registration was ended, or the endpoint is closed. Regions that
    /// [`Space::register_again`] made of it must be deregistered separately. Others that have the
    /// key access the memory until then.
    ///
    /// # Errors
    /// [`RegisterError`]: nothing was registered.
    pub unsafe fn register_cached(
        &self,
        start: *mut u8,
        bytes: usize,
        admission: impl Into<Admission>,
    ) -> Result<RegionId, RegisterError> {
        let mut s = self.enter_open()?;
        let admission = admission.into();
        if bytes == 0 {
            // No bytes, whatever `start` is: nothing to cache.
            let nothing = s.register_region(self.id, Vec::new().into(), None, admission);
            return nothing.map_err(|(refused, _)| refused.into());
        }
        // SAFETY: promised by the caller.
        let memory = Scatter::from(unsafe { Buffer::lent(start, bytes) });
        let extent = Extent {
            start: start.addr(),
            bytes,
            admission,
        };
        Ok(s.register_cached(self.id, memory, extent)?)
    }

    /// Closes the regions of [`Space::register_cached`] that contain any of these bytes; call it
    /// before the memory is freed or used for something else. Accesses in flight are waited for as
    /// [`Space::deregister`] does. Regions that are still registered are closed when their
    /// registration ends.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn forget_memory(&self, start: *const u8, bytes: usize) -> Result<(), Misuse> {
        let (start, mut known) = (start.addr(), false);
        self.until_left(|s| {
            if !std::mem::replace(&mut known, true) {
                s.forget_memory(self.id, start, bytes);
            }
            s.has_forgotten(self.id, start, bytes).then_some(())
        })
    }

    /// Returns the key by which other ranks name a region; `None` if it is not open.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn remote_key(&self, region: RegionId) -> Result<Option<RemoteKey>, Misuse> {
        Ok(self.enter()?.exchange(self.id).remote_key(region))
    }

    /// Reads a region of this rank's own while others may change it.
    ///
    /// # Errors
    /// [`Misuse`]; `None` if there is no such region, or the range is not in it, or not mapped.
    pub fn read_region(
        &self,
        region: RegionId,
        at: u64,
        into: &mut [u8],
    ) -> Result<Option<()>, Misuse> {
        use portolan_exchange::Sink as _;
        let mut s = self.enter()?;
        let Some(opened) = s.exchange(self.id).opened(region) else {
            return Ok(None);
        };
        let end = at.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > opened.bytes) {
            return Ok(None);
        }
        Ok(opened.memory.read(opened.start + at, into).then_some(()))
    }

    /// Ends a registration: no access is admitted any more, and those in flight are waited for,
    /// with progress. The memory is returned with its last registration. A rank that dies delays
    /// nothing; one of this host that is stopped in the middle of an access is waited for until it
    /// goes on.
    ///
    /// # Errors
    /// [`DeregisterError`].
    pub fn deregister(&self, region: RegionId) -> Result<Option<Scatter>, DeregisterError> {
        let released = self.enter()?.release_cached(self.id, region);
        match released {
            Released::Kept => Ok(None),
            Released::NotRegistered => Err(DeregisterError::NoSuchRegion),
            Released::Close => self.until_left(|s| match s.deregister_region(self.id, region) {
                // The address space is not returned.
                Ok(memory) => Some(Ok(memory.filter(|it| !it.is_address_space()))),
                Err(DeregisterRefused::InUse(_)) => None,
                Err(DeregisterRefused::NoSuchRegion) => Some(Err(DeregisterError::NoSuchRegion)),
            })?,
        }
    }

    /// Makes a counter count completed accesses of others to a region: reads, writes or both, as
    /// `what` says. Once this has returned they come by messages: no process of this host accesses
    /// the memory past this endpoint. An access that reads and writes counts once.
    ///
    /// # Errors
    /// [`DeregisterError::NoSuchRegion`]; [`Misuse::NoSuchCounter`] and other [`Misuse`].
    pub fn count_accesses(
        &self,
        region: RegionId,
        what: Rights,
        counter: CounterId,
    ) -> Result<(), DeregisterError> {
        let mut s = self.enter()?;
        s.check_counter(self.id, counter)?;
        let counted = s.exchange(self.id).count_accesses(region, what, counter);
        drop(s);
        if !counted {
            return Err(DeregisterError::NoSuchRegion);
        }
        Ok(self.until_left(|s| s.hide_region(self.id, region).then_some(()))?)
    }

    /// Waits, with progress, until others have left memory of ours, as `ended` reports.
    fn until_left<R>(&self, mut ended: impl FnMut(&mut State) -> Option<R>) -> Result<R, Misuse> {
        let why = Waiting::of(Call::Operation, ANYBODY);
        let mut pause = LOOK_NS;
        loop {
            let s = self.enter()?;
            // An access by messages ends with a message, or with its sender.
            let look_again = (s.io.shm.is_some()).then(|| now_ns().saturating_add(pause));
            match self.wait_loop(s, look_again, true, why, &mut ended) {
                Ok(ended) => return Ok(ended),
                Err(WaitError::Misuse(m)) => return Err(m),
                Err(_) => pause = (2 * pause).min(LOOK_NS_MAX),
            }
        }
    }

    /// Forbids one-sided access to this rank's memory: nothing can be
    /// registered any more.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn forbid_one_sided(&self) -> Result<(), Misuse> {
        self.enter()?.forbid_one_sided();
        Ok(())
    }

    /// Writes `from` to another rank's memory. A signal runs the handler of a port there, once the
    /// bytes are visible, with two words: the signal's and the number of bytes.
    ///
    /// # Errors
    /// [`SendError`], with the memory; nothing was started. The operation's end reports whether the
    /// target accepted it.
    pub fn post_put(
        &self,
        rank: u32,
        place: Place,
        from: impl Into<Gather>,
        options: &PutOptions,
    ) -> Result<OpId, (SendError, Gather)> {
        let from = from.into();
        let mut s = match self.enter_to_begin(options.notify) {
            Ok(s) => s,
            Err(m) => return Err((m.into(), from)),
        };
        let begun = s.reach(self.id, rank, from, |x, from| {
            x.put(rank, place, from, options)
        });
        s.end();
        begun
    }

    /// Fills `into` from another rank's memory.
    ///
    /// # Errors
    /// As [`Space::post_put`].
    pub fn post_get(
        &self,
        rank: u32,
        place: Place,
        into: impl Into<Scatter>,
        notify: Notify,
    ) -> Result<OpId, (SendError, Scatter)> {
        let into = into.into();
        let mut s = match self.enter_to_begin(notify) {
            Ok(s) => s,
            Err(m) => return Err((m.into(), into)),
        };
        let begun = s.reach(self.id, rank, into, |x, into| {
            x.get(rank, place, into, notify)
        });
        s.end();
        begun
    }

    /// Changes numbers in another rank's memory, each atomically among such operations; their
    /// previous values are not returned. The offset is a multiple of an element's size, for a
    /// complex number of half that. The values are copied: their memory is free when this returns.
    ///
    /// # Errors
    /// [`SendError`]; nothing was started. [`Misuse::BadAtomic`]: there is no such operation, see
    /// [`AtomicOp::elements_max`](crate::AtomicOp::elements_max), or the values have other lengths.
    pub fn post_atomic(
        &self,
        rank: u32,
        place: Place,
        what: &Atomic<'_>,
        notify: Notify,
    ) -> Result<OpId, SendError> {
        self.post_short(rank, notify, |x| x.atomic(rank, place, what, notify))
    }

    /// As [`Space::post_atomic`], and fills `into`, which has exactly their length, with the
    /// previous values. For one number of at most 8 bytes the completion's `data` has it too.
    ///
    /// # Errors
    /// As [`Space::post_atomic`], with the memory.
    pub fn post_fetch_atomic(
        &self,
        rank: u32,
        place: Place,
        what: &Atomic<'_>,
        into: impl Into<Scatter>,
        notify: Notify,
    ) -> Result<OpId, (SendError, Scatter)> {
        let into = into.into();
        let mut s = match self.enter_to_begin(notify) {
            Ok(s) => s,
            Err(m) => return Err((m.into(), into)),
        };
        let begun = s.reach(self.id, rank, into, |x, into| {
            x.fetch_atomic(rank, place, what, into, notify)
        });
        s.end();
        begun
    }

    /// Adds to a 64-bit little-endian number in another rank's memory: an atomic operation whose
    /// completion's `data` is the previous value.
    ///
    /// # Errors
    /// [`SendError`]; nothing was started.
    pub fn post_fetch_add(
        &self,
        rank: u32,
        place: Place,
        add: u64,
        notify: Notify,
    ) -> Result<OpId, SendError> {
        self.post_short(rank, notify, |x| x.fetch_add(rank, place, add, notify))
    }

    /// Replaces such a number by `new` if it is `expected` (compare-and-swap). All else is as for
    /// [`Space::post_fetch_add`].
    ///
    /// # Errors
    /// As [`Space::post_fetch_add`].
    pub fn post_compare_swap(
        &self,
        rank: u32,
        place: Place,
        [expected, new]: [u64; 2],
        notify: Notify,
    ) -> Result<OpId, SendError> {
        self.post_short(rank, notify, |x| {
            x.compare_swap(rank, place, expected, new, notify)
        })
    }

    /// Starts a flush, which ends when all earlier puts and atomic operations towards a rank are
    /// visible there.
    ///
    /// # Errors
    /// As [`Space::post_fetch_add`].
    pub fn post_flush(&self, rank: u32, notify: Notify) -> Result<OpId, SendError> {
        self.post_short(rank, notify, |x| x.flush(rank, notify))
    }

    /// Orders one-sided operations towards a rank: those started after this are executed after
    /// those started before. Does not wait.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn fence(&self, rank: u32) -> Result<(), Misuse> {
        self.enter()?.exchange(self.id).fence(rank);
        Ok(())
    }

    /// Enters for an operation that reports its end by `notify`: queue and counter must exist. A
    /// closed endpoint is reported before a bad queue or counter.
    fn enter_to_begin(&self, notify: Notify) -> Result<Guard<'_>, Misuse> {
        let mut s = self.enter()?;
        if !s.core.closing {
            s.check_notify(self.id, notify)?;
        }
        Ok(s)
    }

    fn post_short(
        &self,
        rank: u32,
        notify: Notify,
        begin: impl FnOnce(&mut Exchange) -> Result<OpId, SendRefused>,
    ) -> Result<OpId, SendError> {
        let mut s = self.enter_to_begin(notify)?;
        let begun = s.reach(self.id, rank, (), |x, ()| begin(x).map_err(|e| (e, ())));
        s.end();
        begun.map_err(|(e, ())| e)
    }
}
