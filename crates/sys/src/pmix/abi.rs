//! What `pmix.h` and `pmix_common.h` of PMIx 4 and 5 declare, as far as it is
//! used here. A test compares it with the installed headers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// The library, by the name that every version from 2 on has.
pub const LIBRARY: &CStr = c"libpmix.so.2";

/// `PMIX_MAX_NSLEN` and the end of the string.
pub const NAMESPACE_BYTES: usize = 256;
/// `PMIX_MAX_KEYLEN` and the end of the string.
pub const KEY_BYTES: usize = 512;
/// `PMIX_RANK_WILDCARD`: all ranks of a name space, or what belongs to none of them.
pub const RANK_WILDCARD: u32 = u32::MAX - 1;
/// `PMIX_GLOBAL`: for processes of this host and of others.
pub const SCOPE_GLOBAL: u8 = 3;
/// `PMIX_JOB_SIZE`, a `uint32_t`.
pub const JOB_SIZE: &str = "pmix.job.size";
/// `PMIX_COLLECT_DATA`, a `bool`.
pub const COLLECT_DATA: &str = "pmix.collect";
/// `PMIX_EVENT_AFFECTED_PROC`, a process.
pub const EVENT_AFFECTED_PROC: &str = "pmix.evproc";

/// `PMIX_SUCCESS`.
pub const SUCCESS: c_int = 0;
/// `PMIX_ERR_TYPE_MISMATCH`.
pub const ERR_TYPE_MISMATCH: c_int = -18;
/// `PMIX_ERR_LOST_CONNECTION`: of the library to its server, if this is the source.
pub const ERR_LOST_CONNECTION: c_int = -61;
/// `PMIX_ERR_PROC_TERM_WO_SYNC`: it has ended without `PMIx_Finalize`.
pub const ERR_PROC_TERM_WO_SYNC: c_int = -200;
/// `PMIX_ERR_PROC_KILLED_BY_CMD`.
pub const ERR_PROC_KILLED_BY_CMD: c_int = -400;
/// `PMIX_ERR_PROC_ABORTED_BY_SIG`.
pub const ERR_PROC_ABORTED_BY_SIG: c_int = -402;
/// `PMIX_EVENT_ACTION_COMPLETE`.
pub const EVENT_ACTION_COMPLETE: c_int = -334;

/// `PMIX_BOOL`.
pub const KIND_BOOL: u16 = 1;
/// `PMIX_STRING`.
pub const KIND_STRING: u16 = 3;
/// `PMIX_UINT32`.
pub const KIND_UINT32: u16 = 14;
/// `PMIX_PROC`.
pub const KIND_PROC: u16 = 22;

/// `pmix_proc_t`: a process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Proc {
    /// The job's name.
    pub nspace: [c_char; NAMESPACE_BYTES],
    /// Its number in the job.
    pub rank: u32,
}

/// The union in `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    /// Of [`KIND_BOOL`].
    pub flag: bool,
    /// Of [`KIND_STRING`].
    pub string: *mut c_char,
    /// Of [`KIND_UINT32`].
    pub uint32: u32,
    /// Of [`KIND_PROC`].
    pub proc: *mut Proc,
    /// As much as the longest, a variable of the environment, takes.
    pub room: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    /// Says which part of `data` there is.
    pub kind: u16,
    /// What it is.
    pub data: Data,
}

/// `pmix_info_t`: an option of a call, or a detail of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    /// Its name.
    pub key: [c_char; KEY_BYTES],
    /// None are used here.
    pub flags: u32,
    /// Its value.
    pub value: Value,
}

const _: () = assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32);
const _: () = assert!(size_of::<Info>() == 552);

/// `pmix_event_notification_cbfunc_fn_t`: by this a handler says that it is done.
pub type EventDone = unsafe extern "C" fn(
    status: c_int,
    results: *mut Info,
    count: usize,
    released: Option<unsafe extern "C" fn(c_int, *mut c_void)>,
    released_data: *mut c_void,
    data: *mut c_void,
);

/// `pmix_notification_fn_t`: a handler of events.
pub type EventHandler = unsafe extern "C" fn(
    id: usize,
    status: c_int,
    source: *const Proc,
    info: *const Info,
    count: usize,
    results: *mut Info,
    results_count: usize,
    done: Option<EventDone>,
    data: *mut c_void,
);

/// `pmix_hdlr_reg_cbfunc_t`: hears whether a handler was taken.
pub type Registered = unsafe extern "C" fn(status: c_int, id: usize, data: *mut c_void);

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions that are called here.
        #[derive(Clone, Copy)]
        #[allow(missing_docs)]
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// Looks each up by its name. Fails with the first that is missing.
            ///
            /// # Safety
            /// What `find` returns must be the function of PMIx of that name.
            pub(super) unsafe fn load(
                find: impl Fn(&CStr) -> Option<NonNull<c_void>>,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul($symbol.as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("the name has no end"),
                        };
                        let found = find(NAME).ok_or($symbol.trim_end_matches('\0'))?;
                        // SAFETY: by the caller's word it is this function, whose
                        // declaration is that of PMIx's header.
                        unsafe {
                            std::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    version = "PMIx_Get_version\0": fn() -> *const c_char;
    error_string = "PMIx_Error_string\0": fn(c_int) -> *const c_char;
    init = "PMIx_Init\0": fn(*mut Proc, *const Info, usize) -> c_int;
    put = "PMIx_Put\0": fn(u8, *const c_char, *mut Value) -> c_int;
    commit = "PMIx_Commit\0": fn() -> c_int;
    fence = "PMIx_Fence\0": fn(*const Proc, usize, *const Info, usize) -> c_int;
    get = "PMIx_Get\0": fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
    register = "PMIx_Register_event_handler\0": fn(
        *mut c_int, usize, *const Info, usize, EventHandler, Registered, *mut c_void
    ) -> c_int;
    abort = "PMIx_Abort\0": fn(c_int, *const c_char, *mut Proc, usize) -> c_int;
    finalize = "PMIx_Finalize\0": fn(*const Info, usize) -> c_int;
}
