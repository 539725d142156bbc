//! The structures of the headers.
//!
//! Each begins with its size. A shorter one comes from a program that was
//! built with an earlier library: missing fields are zero, which is the
//! default. A longer one comes from a later program: unknown fields must
//! be zero.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use super::context::CContext;
use super::error::{E2BIG, EFAULT, EINVAL, Errno};

/// Maximum size of any structure, bytes; a larger one was not set.
const SIZE_MAX: usize = 4096;

/// A structure of C that begins with its size as a `u32`.
///
/// # Safety
/// All bytes zero must be a value of the type, and so must every combination
/// of bytes that the header allows.
pub(super) unsafe trait Sized32: Copy {}

/// Checks a structure's size.
///
/// # Safety
/// `from` is null or points to the size.
unsafe fn size_of_c<T>(from: *const T) -> Result<usize, Errno> {
    if from.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: see above.
    let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
    if (size_of::<u64>()..=SIZE_MAX).contains(&size) {
        Ok(size)
    } else {
        Err(EINVAL)
    }
}

/// Reads a structure that the program filled.
///
/// # Safety
/// `from` is null or points to as many bytes as its first field, the size, says.
pub(super) unsafe fn read<T: Sized32>(from: *const T) -> Result<T, Errno> {
    // SAFETY: see above.
    let size = unsafe { size_of_c(from) }?;
    let known = size.min(size_of::<T>());
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: both are that long.
    unsafe {
        value
            .as_mut_ptr()
            .cast::<u8>()
            .copy_from_nonoverlapping(from.cast::<u8>(), known);
        let rest = std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known);
        if rest.iter().any(|byte| *byte != 0) {
            return Err(E2BIG);
        }
    }
    // SAFETY: the trait says so.
    Ok(unsafe { value.assume_init() })
}

/// The program's structures that a call fills, all of the size that the first
/// states. The size is checked before the call does anything.
pub(super) struct Record<T> {
    first: *mut T,
    size: usize,
    count: usize,
}

impl<T: Sized32> Record<T> {
    /// # Safety
    /// `first` is null or points to `count` structures, each of as many bytes as
    /// the size in the first says, which may be written for as long as this is
    /// used.
    pub unsafe fn array(first: *mut T, count: usize) -> Result<Self, Errno> {
        if count == 0 {
            return Err(EINVAL);
        }
        // SAFETY: see above.
        let size = unsafe { size_of_c(first) }?;
        Ok(Self { first, size, count })
    }

    /// # Safety
    /// As [`Record::array`], for one structure.
    pub unsafe fn one(to: *mut T) -> Result<Self, Errno> {
        // SAFETY: see above.
        unsafe { Self::array(to, 1) }
    }

    /// A record that may be null.
    ///
    /// # Safety
    /// As [`Record::one`].
    pub unsafe fn optional(to: *mut T) -> Result<Option<Self>, Errno> {
        if to.is_null() {
            return Ok(None);
        }
        // SAFETY: see above.
        unsafe { Self::one(to) }.map(Some)
    }

    /// Fills the only structure, as far as the program knows it.
    pub fn fill(&self, value: &T) {
        self.fill_at(0, value);
    }

    /// Fills structure `at` of an array.
    pub fn fill_at(&self, at: usize, value: &T) {
        assert!(at < self.count);
        let known = self.size.min(size_of::<T>());
        let value = std::ptr::from_ref(value).cast::<u8>();
        // SAFETY: `count` structures of `size` bytes; both sides have `known` bytes.
        unsafe {
            let to = self.first.cast::<u8>().add(at * self.size);
            to.copy_from_nonoverlapping(value, known);
            to.add(known).write_bytes(0, self.size - known);
            to.cast::<u32>().write_unaligned(self.size as u32);
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct COptions {
    pub size: u32,
    pub threads: u32,
    pub helper: u32,
    pub reserved: u32,
    pub takeover_us: u64,
    pub close_ms: u64,
    pub settings: *const *const c_char,
}

/// Values of `helper`.
pub(super) const HELPER_ON: u32 = 1;
pub(super) const HELPER_OFF: u32 = 2;

pub(super) type CHandler =
    unsafe extern "C" fn(*mut CContext<'_, '_>, *const CMessage, *mut c_void);
pub(super) type CErrorHandler =
    unsafe extern "C" fn(*mut CContext<'_, '_>, *const CEvent, *mut c_void);
pub(super) type CPlacing =
    unsafe extern "C" fn(*const CMessage, *mut *mut c_void, *mut usize, *mut c_void) -> c_int;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CBinding {
    pub size: u32,
    pub flags: u32,
    pub buffer: *mut c_void,
    pub buffer_bytes: usize,
    pub handler: Option<CHandler>,
    pub error_handler: Option<CErrorHandler>,
    pub user: *mut c_void,
    pub placing: Option<CPlacing>,
}

/// Flag of a binding.
pub(super) const ANY_THREAD: u32 = 1;

/// Results of a placing function; anything else counts as `HERE`.
pub(super) const INTO: c_int = 1;
pub(super) const LATER: c_int = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CSendOptions {
    pub size: u32,
    pub flags: u32,
    pub priority: u32,
    pub flow: u32,
    pub args: *const u64,
    pub arg_count: u32,
    pub reserved: u32,
    pub number: *mut u32,
    pub context: u64,
    pub queue: u32,
    pub counter: u32,
}

/// Flag of a send.
pub(super) const NOWAIT: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CCounters {
    pub size: u32,
    pub reserved: u32,
    pub sent: u64,
    pub bytes_sent: u64,
    pub received: u64,
    pub bytes_received: u64,
    pub kept: u64,
    pub not_now: u64,
    pub refused: u64,
    pub deaths: u64,
    pub helped: u64,
    pub sleeps: u64,
    pub tx_failed: u64,
    pub no_credit: u64,
    pub packets_sent: u64,
    pub packets_received: u64,
    pub resent: u64,
    pub packets_dropped: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CTaggedOptions {
    pub size: u32,
    pub flags: u32,
    pub data: u64,
    pub context: u64,
    pub queue: u32,
    pub counter: u32,
}

/// Flags of a matched send.
pub(super) const SYNC: u32 = 1;
pub(super) const WITH_DATA: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CCompletion {
    pub size: u32,
    pub error: i32,
    pub operation: u64,
    pub action: u32,
    pub peer: u32,
    pub tag: u64,
    pub bytes: u64,
    pub total: u64,
    pub data: u64,
    pub has_data: u32,
    pub reserved: u32,
    pub context: u64,
    pub offset: u64,
}

/// Actions of completed operations.
pub(super) const SENT: u32 = 1;
pub(super) const RECEIVED: u32 = 2;
pub(super) const PUT: u32 = 3;
pub(super) const GOT: u32 = 4;
pub(super) const ADDED: u32 = 5;
pub(super) const SWAPPED: u32 = 6;
pub(super) const FLUSHED: u32 = 7;
pub(super) const MESSAGE: u32 = 8;
pub(super) const RECEIVED_MANY: u32 = 9;
pub(super) const CHANGED: u32 = 10;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CProbed {
    pub size: u32,
    pub from: u32,
    pub tag: u64,
    pub total: u64,
    pub data: u64,
    pub has_data: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CPush {
    pub size: u32,
    pub flags: u32,
    pub whole: u64,
    pub first: u64,
    pub second: u64,
}

/// Flags of how messages are pushed.
pub(super) const PUSH_OVERLAP: u32 = 1;
pub(super) const PUSH_MASKING: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CStatistics {
    pub size: u32,
    pub reserved: u32,
    pub operations: u64,
    pub messages: u64,
    pub pushed_bytes: u64,
    pub parts: u64,
    pub second_pushes: u64,
    pub pulled_bytes: u64,
    pub backlogs: u64,
    pub unflushed: u64,
    pub regions: u64,
    pub accesses: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CRegionOptions {
    pub size: u32,
    pub flags: u32,
    pub rights: u32,
    pub reserved: u32,
    pub key: u64,
}

/// Flags of a region.
pub(super) const WITH_KEY: u32 = 1;
pub(super) const CACHED: u32 = 2;
pub(super) const ADDRESS_SPACE: u32 = 4;
pub(super) const REGION_SALT: u32 = 8;
pub(super) const REGION_ANY: u32 = 16;
/// Rights.
pub(super) const MAY_GET: u32 = 1;
pub(super) const MAY_PUT: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CAccessOptions {
    pub size: u32,
    pub flags: u32,
    pub context: u64,
    pub queue: u32,
    pub counter: u32,
    pub word: u64,
    pub port: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CAtomic {
    pub size: u32,
    pub operation: u32,
    pub element: u32,
    pub reserved: u32,
    pub count: usize,
    pub operands: *const c_void,
    pub compare: *const c_void,
}

/// Flags of a put.
pub(super) const LOCAL: u32 = 1;
pub(super) const SIGNAL: u32 = 2;

/// Read by handlers; programs make none.
#[repr(C)]
pub(super) struct CMessage {
    pub size: u32,
    pub from: u32,
    pub port: u16,
    pub flow: u16,
    pub priority: u8,
    pub reserved: [u8; 3],
    pub number: u32,
    pub arg_count: u32,
    pub args: *const u64,
    pub payload: *const c_void,
    pub bytes: usize,
    pub total: u64,
}

/// Read by handlers; programs make none.
#[repr(C)]
#[derive(Default)]
pub(super) struct CEvent {
    pub size: u32,
    pub kind: u32,
    pub rank: u32,
    pub error: i32,
    pub port: u16,
    pub flow: u16,
    pub priority: u8,
    pub reserved: [u8; 3],
    pub number: u32,
    pub status: i32,
    pub bytes: u64,
    pub room: u64,
    pub lost: u64,
}

/// Kinds of events.
pub(super) const TOO_LONG: u32 = 1;
pub(super) const REFUSED: u32 = 2;
pub(super) const PEER_DEAD: u32 = 3;
pub(super) const PEER_SILENT: u32 = 4;
pub(super) const PEER_BACK: u32 = 5;
pub(super) const PEER_COME: u32 = 6;

macro_rules! sized32 {
    ($($structure:ident)*) => {
        // SAFETY: integers, raw pointers and optional function pointers.
        $(unsafe impl Sized32 for $structure {})*
    };
}

sized32! {
    COptions CBinding CSendOptions CCounters CTaggedOptions CCompletion CProbed CPush CStatistics
    CRegionOptions CAccessOptions CAtomic
}

// The layout that programs were built with, on 64-bit machines.
const _: () = assert!(
    size_of::<COptions>() == 40
        && size_of::<CBinding>() == 56
        && size_of::<CSendOptions>() == 56
        && size_of::<CCounters>() == 136
        && size_of::<CTaggedOptions>() == 32
        && size_of::<CCompletion>() == 80
        && size_of::<CProbed>() == 40
        && size_of::<CPush>() == 32
        && size_of::<CStatistics>() == 88
        && size_of::<CRegionOptions>() == 24
        && size_of::<CAccessOptions>() == 40
        && size_of::<CAtomic>() == 40
        && size_of::<CMessage>() == 56
        && size_of::<CEvent>() == 56
);
