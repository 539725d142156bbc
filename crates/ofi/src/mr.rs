//! Registered memory: a region of the engine at each endpoint of the domain, under the
//! program's key.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use portolan::c_edge::{self, Piece};
use portolan::{RegionId, RegisterError, Rights, Salt};

use crate::abi::{self, Fid, FidMr};
use crate::attachment::Attachment;
use crate::cntr::Cntr;
use crate::domain::Domain;
use crate::error::{EBADFLAGS, EINVAL, ENOKEY, ENOSYS, Result, calls, edge};
use crate::fid::{Head, Object, errno, fid, give, given, lock, object, ops, shared};

/// Maximum number of a region's pieces.
pub const PIECES_MAX: usize = 32;

pub struct Region {
    pub key: u64,
    rights: Rights,
    pieces: Vec<Piece>,
    opened: Mutex<Vec<(Arc<Attachment>, RegionId)>>,
    /// Counters of peers' accesses, beside those of endpoints.
    counters: Mutex<Vec<(Arc<Cntr>, Rights)>>,
}

// SAFETY: the pieces are the program's memory, which it lends to any thread until it closes the
// region.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Accesses that flags permit or count.
const fn rights(flags: u64) -> Rights {
    Rights::of(
        flags & abi::REMOTE_READ != 0,
        flags & abi::REMOTE_WRITE != 0,
    )
}

/// The error number of a failed registration.
fn refused(why: RegisterError) -> c_edge::Errno {
    match why {
        RegisterError::KeyTaken => ENOKEY,
        other => errno(other),
    }
}

impl Region {
    /// Whether this is the whole address space: then offsets are addresses.
    fn is_address_space(&self) -> bool {
        matches!(&*self.pieces, [it] if it.start.is_null() && it.bytes == usize::MAX)
    }

    pub fn open_at(&self, attachment: &Arc<Attachment>) -> Result<()> {
        if self.rights == Rights::None {
            return Ok(());
        }
        // Programs know keys of 64 bits, and no salt.
        let (key, admission) = (Some(self.key), self.rights.with(Salt::Any));
        if self.is_address_space() {
            // SAFETY: the program has permitted accesses to all of its memory.
            let region = unsafe { attachment.endpoint.register_address_space(key, admission) };
            return self.opened_at(attachment, region.map_err(refused)?);
        }
        // SAFETY: the program has lent the memory until it closes the region.
        let memory = unsafe { c_edge::scatter(self.pieces.as_ptr(), self.pieces.len()) }?;
        let region = attachment.endpoint.register(memory, key, admission);
        let region = region.map_err(|(why, _)| refused(why))?;
        self.opened_at(attachment, region)
    }

    fn opened_at(&self, attachment: &Arc<Attachment>, region: RegionId) -> Result<()> {
        lock(&self.opened).push((Arc::clone(attachment), region));
        self.count_at(attachment)
    }

    /// Starts all counters of accesses at an endpoint. Peers then reach the memory by messages
    /// only, since a peer's direct copy could not be counted.
    pub fn count_at(&self, attachment: &Arc<Attachment>) -> Result<()> {
        let opened = lock(&self.opened);
        let Some((_, region)) = opened.iter().find(|(it, _)| Arc::ptr_eq(it, attachment)) else {
            return Ok(());
        };
        let own = attachment.counters.remote().map(|it| it.get().copied());
        let own = own.into_iter().zip([Rights::Get, Rights::Put]);
        let mut all: Vec<_> = own.filter_map(|(it, what)| Some((it?, what))).collect();
        for (cntr, what) in &*lock(&self.counters) {
            all.push((cntr.at(attachment)?, *what));
        }
        for (counter, what) in all {
            let counts = attachment.endpoint.count_accesses(*region, what, counter);
            counts.map_err(errno)?;
        }
        Ok(())
    }

    /// Binds a counter.
    fn count(&self, cntr: Arc<Cntr>, what: Rights) -> Result<()> {
        lock(&self.counters).push((cntr, what));
        let opened = lock(&self.opened).clone();
        opened.iter().try_for_each(|(it, _)| self.count_at(it))
    }

    /// Removes a closed endpoint, whose regions are closed with it.
    pub fn forget_at(&self, attachment: &Arc<Attachment>) {
        lock(&self.opened).retain(|(it, _)| !Arc::ptr_eq(it, attachment));
    }

    /// Deregisters the region; then no peer accesses the memory.
    pub fn close(&self) -> Result<()> {
        let mut opened = lock(&self.opened);
        while let Some((attachment, region)) = opened.last() {
            attachment.endpoint.deregister(*region).map_err(errno)?;
            opened.pop();
        }
        Ok(())
    }
}

#[repr(C)]
pub struct Mr {
    head: Head<FidMr>,
    domain: Arc<Domain>,
    region: Arc<Region>,
}

// SAFETY: it begins with a head of that class.
unsafe impl Object for Mr {
    const CLASS: usize = abi::CLASS_MR;

    fn end(&self) -> Result<()> {
        self.domain.close_region(&self.region)
    }
}

static FID_OPS: abi::Ops = ops::<Mr>(bind, control);

pub static OPS: abi::OpsMr = abi::OpsMr {
    size: size_of::<abi::OpsMr>(),
    reg,
    regv,
    regattr,
};

calls! {
    fn bind(mr: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
        let mr: &Mr = object(mr)?;
        match given(to)?.fclass {
            // The region is registered at all endpoints anyway.
            abi::CLASS_EP => Ok(0),
            abi::CLASS_CNTR => match rights(flags) {
                Rights::None => Err(EBADFLAGS),
                _ if flags & !(abi::REMOTE_READ | abi::REMOTE_WRITE) != 0 => Err(EBADFLAGS),
                what => mr.region.count(shared(to)?, what).map(|()| 0),
            },
            _ => Err(ENOSYS),
        }
    }

    fn control(_mr: *mut Fid, command: c_int, _arg: *mut c_void) -> c_int {
        if command == abi::ENABLE {
            Ok(0)
        } else {
            Err(ENOSYS)
        }
    }
}

/// # Safety
/// As `fi_mr_regv` asks.
unsafe fn register(
    domain: *mut Fid,
    pieces: &[Piece],
    access: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> Result<c_int> {
    // SAFETY: promised by the caller, as all below.
    let domain: Arc<Domain> = unsafe { shared(domain) }?;
    // A region whose accesses are to be counted needs no preparation.
    if flags & !abi::RMA_EVENT != 0 {
        return Err(EBADFLAGS);
    }
    if pieces.len() > PIECES_MAX || mr.is_null() {
        return Err(EINVAL);
    }
    // No piece may wrap around.
    let wraps = |it: &Piece| it.start.addr().checked_add(it.bytes).is_none();
    if pieces.iter().any(wraps) {
        return Err(EINVAL);
    }
    let region = Arc::new(Region {
        key,
        rights: rights(access),
        pieces: pieces.to_vec(),
        opened: Mutex::default(),
        counters: Mutex::default(),
    });
    domain.open_region(&region)?;
    let made = Arc::new(Mr {
        head: Head::new(FidMr {
            fid: fid::<Mr>(context, &FID_OPS),
            mem_desc: std::ptr::null_mut(),
            key,
        }),
        domain,
        region,
    });
    // SAFETY: as promised.
    unsafe { give(made, mr) };
    Ok(0)
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    start: *const c_void,
    bytes: usize,
    access: u64,
    _offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let start = start.cast_mut();
    // SAFETY: promised by the program.
    edge(|| unsafe {
        register(
            domain,
            &[Piece { start, bytes }],
            access,
            key,
            flags,
            mr,
            context,
        )
    })
}

calls! {
    fn regv(domain: *mut Fid, pieces: *const Piece, count: usize, access: u64, _offset: u64, key: u64, flags: u64, mr: *mut *mut FidMr, context: *mut c_void) -> c_int {
        let pieces = c_edge::slice(pieces, count)?;
        register(domain, pieces, access, key, flags, mr, context)
    }

    fn regattr(domain: *mut Fid, attr: *const abi::MrAttr, flags: u64, mr: *mut *mut FidMr) -> c_int {
        let of: &Domain = object(domain)?;
        let attr = given(attr)?;
        // Programs of older releases have no such field.
        if of.api_version >= crate::version(1, 10) && attr.iface != 0 {
            return Err(ENOSYS);
        }
        let pieces = c_edge::slice(attr.mr_iov, attr.iov_count)?;
        let key = attr.requested_key;
        register(domain, pieces, attr.access, key, flags, mr, attr.context)
    }
}
