//! The library of PMIx, by which a launcher's processes find each other. It is
//! loaded when it is asked for and never linked: most jobs have no need of it.
//!
//! Each call may block for as long as the launcher pleases. Call from a thread
//! that can be given up.

pub mod abi;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use abi::{Data, EventDone, Functions, Info, Proc, Value};

/// Why there is no library to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// It cannot be loaded: what the loader says.
    Missing(String),
    /// It does not have this function.
    Lacks(&'static str),
}

/// What the library answers where it has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The number.
    pub status: i32,
    /// The library's name of it.
    pub name: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.status)
    }
}

/// The library. It stays loaded, for its threads run on.
#[derive(Clone, Copy)]
pub struct Library(Functions);

/// The library after it has come to the launcher's server.
pub struct Client {
    library: Library,
    me: Proc,
}

/// What is called with a rank that died.
type Told = Box<dyn Fn(u32) + Send + Sync>;

/// The same for the handler of events, and of whose job the rank must be.
static ON_DEATH: OnceLock<(Proc, Told)> = OnceLock::new();
/// The same where the launcher is gone, and what job is not its own.
static ON_LOSS: OnceLock<(Proc, fn())> = OnceLock::new();

impl Library {
    /// Loads it, as the loader finds it.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: the name ends; the library's start code runs, which whoever
        // says where libraries are has chosen, as that of every other.
        let handle = unsafe { libc::dlopen(abi::LIBRARY.as_ptr(), libc::RTLD_NOW) };
        let Some(handle) = NonNull::new(handle) else {
            // SAFETY: it returns null or a string that stays until the next call.
            let why = unsafe { text(libc::dlerror()) };
            return Err(LoadError::Missing(why));
        };
        // SAFETY: the handle is open and never closed, and the name ends.
        let find =
            |name: &CStr| NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) });
        // SAFETY: a library of this name has PMIx's functions under their names.
        unsafe { Functions::load(find) }
            .map(Self)
            .map_err(LoadError::Lacks)
    }

    /// What it says of its version: a line with words around the number.
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: it returns a string that stays.
        unsafe { text((self.0.version)()) }
    }

    /// Comes to the server that the environment names.
    ///
    /// # Errors
    /// What the library answers.
    pub fn init(self) -> Result<Client, Failed> {
        let mut me = Proc {
            nspace: [0; abi::NAMESPACE_BYTES],
            rank: 0,
        };
        // SAFETY: `me` has room for what is written; there are no options.
        self.checked(unsafe { (self.0.init)(&raw mut me, ptr::null(), 0) })?;
        Ok(Client { library: self, me })
    }

    fn checked(&self, status: c_int) -> Result<(), Failed> {
        if status == abi::SUCCESS {
            return Ok(());
        }
        Err(self.failed(status))
    }

    fn failed(&self, status: c_int) -> Failed {
        Failed {
            status,
            // SAFETY: it returns a string that stays.
            name: unsafe { text((self.0.error_string)(status)) },
        }
    }
}

impl Client {
    /// This process's number in its job.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.me.rank
    }

    /// How many processes the job has.
    ///
    /// # Errors
    /// What the library answers.
    pub fn size(&self) -> Result<u32, Failed> {
        self.get(abi::RANK_WILDCARD, abi::JOB_SIZE, |value| {
            // SAFETY: whatever was written there is a number.
            (value.kind == abi::KIND_UINT32).then_some(unsafe { value.data.uint32 })
        })
    }

    /// Puts a text under a key; the next fence shows it to all. A text ends
    /// where it has a zero byte.
    ///
    /// # Errors
    /// What the library answers.
    pub fn put(&self, key: &str, text: &str) -> Result<(), Failed> {
        let text = CString::new(text.replace('\0', "")).unwrap_or_default();
        let mut value = Value {
            kind: abi::KIND_STRING,
            data: Data {
                string: text.as_ptr().cast_mut(),
            },
        };
        let key = padded::<{ abi::KEY_BYTES }>(key);
        let functions = &self.library.0;
        // SAFETY: key and text end, and live until the library has copied them,
        // which it does within the call.
        let put = unsafe { (functions.put)(abi::SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.library.checked(put)?;
        // SAFETY: it takes nothing.
        self.library.checked(unsafe { (functions.commit)() })
    }

    /// Waits for all processes of the job.
    ///
    /// # Errors
    /// What the library answers.
    pub fn fence(&self) -> Result<(), Failed> {
        let collect = Info {
            key: padded(abi::COLLECT_DATA),
            flags: 0,
            value: Value {
                kind: abi::KIND_BOOL,
                data: Data { flag: true },
            },
        };
        // SAFETY: there is one option; no processes are named, which means all.
        let status = unsafe { (self.library.0.fence)(ptr::null(), 0, &raw const collect, 1) };
        self.library.checked(status)
    }

    /// The text that a rank has put under a key.
    ///
    /// # Errors
    /// What the library answers.
    pub fn text(&self, rank: u32, key: &str) -> Result<String, Failed> {
        self.get(rank, key, |value| {
            // SAFETY: the kind says that this part of the union was written, by
            // the library, whose strings end or are null.
            (value.kind == abi::KIND_STRING).then(|| unsafe { text(value.data.string) })
        })
    }

    fn get<T>(
        &self,
        rank: u32,
        key: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Failed> {
        let whose = Proc { rank, ..self.me };
        let key = padded::<{ abi::KEY_BYTES }>(key);
        let mut value: *mut Value = ptr::null_mut();
        let get = self.library.0.get;
        // SAFETY: the key ends, there are no options, and `value` has room for
        // a pointer.
        let status = unsafe {
            get(
                &raw const whose,
                key.as_ptr(),
                ptr::null(),
                0,
                &raw mut value,
            )
        };
        self.library.checked(status)?;
        let wrong = || self.library.failed(abi::ERR_TYPE_MISMATCH);
        let value = NonNull::new(value).ok_or_else(wrong)?;
        // SAFETY: the library has made the value for this process, which frees it:
        // it comes from `malloc`, and so does a string in it.
        let got = unsafe {
            let got = read(value.as_ref());
            if value.as_ref().kind == abi::KIND_STRING {
                libc::free(value.as_ref().data.string.cast());
            }
            libc::free(value.as_ptr().cast());
            got
        };
        got.ok_or_else(wrong)
    }

    /// Has `told` called, by a thread of the library's, with each rank of this
    /// job of which the launcher says that it died. It must not panic. Whether
    /// the launcher says so at all is not known. Once in a process.
    pub fn on_death(&self, told: impl Fn(u32) + Send + Sync + 'static) {
        let codes = [
            abi::ERR_PROC_ABORTED_BY_SIG,
            abi::ERR_PROC_KILLED_BY_CMD,
            abi::ERR_PROC_TERM_WO_SYNC,
        ];
        if ON_DEATH.set((self.me, Box::new(told))).is_ok() {
            self.register(codes, heard_of_death);
        }
    }

    /// Has `told` called, by a thread of the library's, once the connection to
    /// the launcher's server is lost. It must not panic. Once in a process.
    pub fn on_loss(&self, told: fn()) {
        if ON_LOSS.set((self.me, told)).is_ok() {
            self.register([abi::ERR_LOST_CONNECTION], heard_of_loss);
        }
    }

    fn register<const N: usize>(&self, codes: [c_int; N], handler: abi::EventHandler) {
        // The library reads them later, in a thread of its own.
        let codes = Box::leak(Box::new(codes));
        let register = self.library.0.register;
        // SAFETY: the codes stay; there are no options; handler and callback have
        // the types that the header asks for, and need no data.
        unsafe {
            register(
                codes.as_mut_ptr(),
                codes.len(),
                ptr::null(),
                0,
                handler,
                registered,
                ptr::null_mut(),
            );
        }
    }

    /// Asks the launcher to end the whole job with this exit code.
    ///
    /// # Errors
    /// What the library answers.
    pub fn abort(&self, code: u8) -> Result<(), Failed> {
        let functions = &self.library.0;
        let why = c"asked for";
        // SAFETY: the text ends; no processes are named, which means all.
        let status = unsafe { (functions.abort)(code.into(), why.as_ptr(), ptr::null_mut(), 0) };
        self.library.checked(status)
    }

    /// Says that this process's end is no failure any more.
    ///
    /// # Errors
    /// What the library answers.
    pub fn finalize(self) -> Result<(), Failed> {
        // SAFETY: there are no options, and `self` ends here.
        self.library
            .checked(unsafe { (self.library.0.finalize)(ptr::null(), 0) })
    }
}

/// Nothing to do where a handler was not taken: then nothing is told.
unsafe extern "C" fn registered(_: c_int, _: usize, _: *mut c_void) {}

/// Takes an event of a death.
unsafe extern "C" fn heard_of_death(
    _: usize,
    _: c_int,
    _: *const Proc,
    info: *const Info,
    count: usize,
    _: *mut Info,
    _: usize,
    done: Option<EventDone>,
    data: *mut c_void,
) {
    let all = if info.is_null() { 0 } else { count };
    for index in 0..all {
        // SAFETY: the library gives `count` of them, which stay until `done`.
        let detail = unsafe { &*info.add(index) };
        if detail.value.kind != abi::KIND_PROC
            || !named(&detail.key).eq(abi::EVENT_AFFECTED_PROC.bytes())
        {
            continue;
        }
        // SAFETY: the kind says that this part of the union was written: null or
        // a process, which stays as long.
        let whose = unsafe { detail.value.data.proc.as_ref() };
        if let (Some(whose), Some((me, told))) = (whose, ON_DEATH.get())
            && named(&whose.nspace).eq(named(&me.nspace))
        {
            told(whose.rank);
        }
    }
    // SAFETY: it is called once, with the data that came with it.
    unsafe { say_done(done, data) };
}

/// Takes the event that the server is gone.
unsafe extern "C" fn heard_of_loss(
    _: usize,
    _: c_int,
    source: *const Proc,
    _: *const Info,
    _: usize,
    _: *mut Info,
    _: usize,
    done: Option<EventDone>,
    data: *mut c_void,
) {
    // SAFETY: null or a process, which stays until `done`.
    let source = unsafe { source.as_ref() };
    // Servers say the same of processes of this job.
    if let (Some(source), Some((me, told))) = (source, ON_LOSS.get())
        && !named(&source.nspace).eq(named(&me.nspace))
    {
        told();
    }
    // SAFETY: it is called once, with the data that came with it.
    unsafe { say_done(done, data) };
}

/// Tells the library that a handler is done.
///
/// # Safety
/// Both came to the handler, which has not called this before.
unsafe fn say_done(done: Option<EventDone>, data: *mut c_void) {
    if let Some(done) = done {
        let (nothing, no_data) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: by the caller's word.
        unsafe { done(abi::EVENT_ACTION_COMPLETE, nothing, 0, None, no_data, data) };
    }
}

/// A string of the library's; empty where there is none.
///
/// # Safety
/// It is null, or ends and stays until this returns.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, and the rest is by the caller's word.
    unsafe { CStr::from_ptr(string) }
        .to_string_lossy()
        .into_owned()
}

/// A text as the library's structures hold it: cut short, with an end.
fn padded<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    bytes
}

/// The bytes of a name as the library's structures hold it.
fn named(bytes: &[c_char]) -> impl Iterator<Item = u8> {
    let name = bytes.iter().take_while(|byte| **byte != 0);
    name.map(|byte| *byte as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_end() {
        for text in ["abc", "abcdef"] {
            let held = padded::<4>(text);
            assert!(named(&held).eq("abc".bytes()) && held[3] == 0);
        }
    }
}
