//! The interface for programs in Rust: [`run`] begins and ends the SPMD part, and [`Bsp`] has
//! the calls. [`Bsp`] owns the registered areas, so that memory which other processes read and
//! write stays allocated. No reference to an area lasts from one superstep to the next.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut, Range};
use std::ptr::NonNull;

use crate::ending::abort;
use crate::exchange::Wanted;
use crate::process::{self, Process, peer, with};

/// Alignment of areas and of parts of messages: fit for any [`Plain`] type.
const ALIGNMENT: usize = align_of::<u128>();

/// Plain old data: a type that may be sent as its bytes, and made from any bytes.
///
/// # Safety
/// The type has no padding, and any bytes of its size are a valid value. So it is
/// `repr(C)` or `repr(transparent)`, and has neither references nor `bool`, `char` or enums.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($number:ty)*) => {$(
        // SAFETY: numbers have no padding, and any bytes are a valid number.
        unsafe impl Plain for $number {}
    )*};
}
plain! { () u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64 }

// SAFETY: arrays have no padding between elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

const fn check<T: Plain>() {
    assert!(size_of::<T>() > 0, "items must have bytes");
    assert!(align_of::<T>() <= ALIGNMENT, "no type is aligned so widely");
}

fn bytes<T: Plain>(items: &[T]) -> &[u8] {
    // SAFETY: a `Plain` type has no padding, so all bytes are initialised.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

/// Names a registered area of items of type `T`; [`Bsp`] owns its memory, as `bsp[area]`.
pub struct Area<T> {
    number: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Area<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Area<T> {}

/// Memory of an area. Only its address is kept, since supersteps write there.
struct AreaMemory {
    start: NonNull<u8>,
    layout: Layout,
    items: usize,
}

impl AreaMemory {
    /// Allocates `items` zeros, or aborts.
    fn new<T: Plain>(items: usize) -> Self {
        // An area without items also has an address of its own.
        let bytes = items.saturating_mul(size_of::<T>()).max(1);
        let made = Layout::from_size_align(bytes, ALIGNMENT)
            .ok()
            .map(|layout| {
                // SAFETY: the layout has at least 1 byte.
                (NonNull::new(unsafe { alloc_zeroed(layout) }), layout)
            });
        let Some((Some(start), layout)) = made else {
            let why = format!(
                "there is no memory for {items} items of {} bytes",
                size_of::<T>()
            );
            abort("bsp_push_reg", &why);
        };
        Self {
            start,
            layout,
            items,
        }
    }

    /// Address by which the area is registered.
    fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for AreaMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The calls of the SPMD part, in the thread that began it.
///
/// As in C, calls return no errors. A call that cannot be done prints
/// "bsp: process I of P, CALL: reason", where CALL is its name in C, and ends all processes
/// with an exit code other than 0.
pub struct Bsp {
    areas: BTreeMap<u64, AreaMemory>,
    /// Number of areas registered so far.
    pushed: u64,
    /// Numbers of areas popped in this superstep.
    popped: Vec<u64>,
    /// Vectors put without copying in this superstep.
    lent: RefCell<Vec<Box<dyn Any>>>,
    /// Keeps `Bsp` in its thread.
    thread: PhantomData<*const ()>,
}

/// Runs `spmd` in at most `processes` processes, at least 1, and returns its result when all
/// have ended it. Process 0's number counts; if fewer processes exist, all of them take part.
/// Processes beyond that number exit here with code 0. Called once in a program.
///
/// All processes run the code before this call. So `main` mostly holds nothing else.
///
/// ```
/// // The sum of all processes' numbers, in all of them.
/// let sum = bsp::run(bsp::nprocs(), |bsp| {
///     let all = bsp.push_reg::<u64>(bsp.nprocs() as usize);
///     bsp.sync();
///     for to in 0..bsp.nprocs() {
///         bsp.put(to, &[u64::from(bsp.pid())], all, bsp.pid() as usize);
///     }
///     bsp.sync();
///     bsp[all].iter().sum::<u64>()
/// });
/// // No launcher has started this process, so it is the only one.
/// assert_eq!(sum, 0);
/// ```
///
/// No reference to an area lasts from one superstep to the next:
///
/// ```compile_fail,E0502
/// bsp::run(1, |bsp| {
///     let area = bsp.push_reg::<u64>(1);
///     let mine = &bsp[area];
///     bsp.sync();
///     assert_eq!(mine, [0]);
/// });
/// ```
pub fn run<R>(processes: u32, spmd: impl FnOnce(&mut Bsp) -> R) -> R {
    process::begin(processes.into());
    let mut bsp = Bsp {
        areas: BTreeMap::new(),
        pushed: 0,
        popped: Vec::new(),
        lent: RefCell::default(),
        thread: PhantomData,
    };
    let result = spmd(&mut bsp);
    // Ends the last superstep too.
    process::end();
    result
}

/// Returns the number of processes available to [`run`]; within it as [`Bsp::nprocs`].
pub fn nprocs() -> u32 {
    process::nprocs()
}

impl Bsp {
    /// Returns the number of processes that take part.
    pub fn nprocs(&self) -> u32 {
        process::nprocs()
    }

    /// Returns this process's number, from 0.
    pub fn pid(&self) -> u32 {
        with("bsp_pid", |it| it.me)
    }

    /// Returns the seconds since [`run`] began, in this process.
    pub fn time(&self) -> f64 {
        with("bsp_time", |it| it.seconds())
    }

    /// Prints a text, and ends all processes.
    pub fn abort(&self, text: &str) -> ! {
        abort("bsp_abort", text.trim_end());
    }

    /// Ends the superstep.
    pub fn sync(&mut self) {
        with("bsp_sync", |it| it.sync("bsp_sync", false));
        self.lent.get_mut().clear();
        for number in self.popped.drain(..) {
            self.areas.remove(&number);
        }
    }

    /// Allocates an area of `items` zeros, and registers it from the next [`Bsp::sync`] on. All
    /// processes register their areas in the same order, with the same type. Numbers of items
    /// may differ.
    pub fn push_reg<T: Plain>(&mut self, items: usize) -> Area<T> {
        const { check::<T>() };
        let memory = AreaMemory::new::<T>(items);
        let size = items * size_of::<T>();
        with("bsp_push_reg", |it| it.push(memory.address(), size as u64));
        let number = self.pushed;
        self.pushed += 1;
        self.areas.insert(number, memory);
        Area {
            number,
            of: PhantomData,
        }
    }

    /// Ends a registration at the next [`Bsp::sync`], in all processes, and frees the area then.
    pub fn pop_reg<T: Plain>(&mut self, area: Area<T>) {
        const CALL: &str = "bsp_pop_reg";
        let start = self.memory(CALL, area).address();
        if !with(CALL, |it| it.areas.pop(start)) {
            abort(CALL, "the area was popped in this superstep");
        }
        self.popped.push(area.number);
    }

    fn memory<T: Plain>(&self, call: &str, area: Area<T>) -> &AreaMemory {
        let memory = self.areas.get(&area.number);
        memory.unwrap_or_else(|| abort(call, "the area was popped"))
    }

    /// Writes `items` to an area of process `pid`, from index `at` on, when the superstep ends.
    /// The items are copied at once.
    pub fn put<T: Plain>(&self, pid: u32, items: &[T], area: Area<T>, at: usize) {
        const CALL: &str = "bsp_put";
        let start = self.memory(CALL, area).address();
        let act = |it: &mut Process, pid| it.put(CALL, pid, bytes(items), start, offset::<T>(at));
        self.access(CALL, pid, items.len(), act);
    }

    /// [`Bsp::put`] without copying, which saves time from some 4,096 bytes on.
    pub fn hpput<T: Plain>(&self, pid: u32, items: Vec<T>, area: Area<T>, at: usize) {
        const CALL: &str = "bsp_hpput";
        let start = self.memory(CALL, area).address();
        self.access(CALL, pid, items.len(), |it, pid| {
            // SAFETY: the vector is kept unchanged until the superstep has ended.
            unsafe { it.hpput(CALL, pid, bytes(&items), start, offset::<T>(at)) };
        });
        self.lent.borrow_mut().push(Box::new(items));
    }

    /// Reads items of process `pid`'s area when the superstep ends, before any put is written,
    /// and stores them in this process's area `into`, from index `to` on.
    pub fn get<T: Plain>(
        &self,
        pid: u32,
        area: Area<T>,
        items: Range<usize>,
        into: Area<T>,
        to: usize,
    ) {
        const CALL: &str = "bsp_get";
        let start = self.memory(CALL, area).address();
        let memory = self.memory(CALL, into);
        let count = items.len();
        if to.checked_add(count).is_none_or(|end| end > memory.items) {
            let why = format!("{count} items do not fit at {to} in {}", memory.items);
            abort(CALL, &why);
        }
        // SAFETY: within that memory, as checked above.
        let place = unsafe { memory.start.as_ptr().add(to * size_of::<T>()) };
        let wanted = Wanted {
            into: place,
            bytes: count * size_of::<T>(),
            hp: false,
        };
        self.access(CALL, pid, count, |it, pid| {
            it.get(CALL, pid, start, offset::<T>(items.start), wanted);
        });
    }

    /// Runs `act`; does nothing without items, as in C.
    fn access(&self, call: &str, pid: u32, items: usize, act: impl FnOnce(&mut Process, u32)) {
        if items > 0 {
            with(call, |it| {
                let pid = peer(call, it, pid);
                act(it, pid);
            });
        }
    }

    /// Sets the length of tags, in bytes, for messages sent after the next [`Bsp::sync`], alike
    /// in all processes. Returns the length set before; 0 at first.
    pub fn set_tagsize(&mut self, bytes: usize) -> usize {
        with("bsp_set_tagsize", |it| it.set_tag_bytes(bytes as u64)) as usize
    }

    /// Sends a message to the queue of process `pid`, where it stays during the next superstep
    /// only. Tag and payload are copied. The tag has the length that was set: `&()` where that
    /// is 0.
    pub fn send<G: Plain, T: Plain>(&self, pid: u32, tag: &G, payload: &[T]) {
        const CALL: &str = "bsp_send";
        with(CALL, |it| {
            let pid = peer(CALL, it, pid);
            let tag = bytes(std::slice::from_ref(tag));
            if tag.len() as u64 != it.tag_bytes() {
                let why = format!("the tag has {} bytes, not {}", tag.len(), it.tag_bytes());
                abort(CALL, &why);
            }
            it.send(pid, tag, bytes(payload));
        });
    }

    /// Returns the number of messages left in the queue, and the bytes of their payloads.
    pub fn qsize(&self) -> (u64, u64) {
        with("bsp_qsize", |it| it.queue.size())
    }

    /// Returns the tag of the next message, which stays, and the length of its payload in bytes;
    /// `None` if the queue is empty.
    pub fn get_tag<G: Plain>(&self) -> Option<(G, usize)> {
        with("bsp_get_tag", |it| {
            let (tag, payload) = it.queue.peek()?;
            Some((parse_tag("bsp_get_tag", tag), payload.len()))
        })
    }

    /// Takes the next message: returns its tag, and its payload without copying. `None` if the
    /// queue is empty.
    pub fn hpmove<G: Plain, T: Plain>(&self) -> Option<(G, &[T])> {
        const CALL: &str = "bsp_hpmove";
        const { check::<T>() };
        with(CALL, |it| {
            let (tag, payload) = it.queue.peek()?;
            let tag = parse_tag(CALL, tag);
            if !payload.len().is_multiple_of(size_of::<T>()) {
                let (has, each) = (payload.len(), size_of::<T>());
                let why = format!("the payload has {has} bytes, not a multiple of {each}");
                abort(CALL, &why);
            }
            let items = payload.len() / size_of::<T>();
            // SAFETY: the queue aligns payloads for any type. They stay unchanged until the
            // superstep ends, when no reference to `self` may be left. Any bytes are a `Plain`
            // value.
            let payload = unsafe { std::slice::from_raw_parts(payload.as_ptr().cast(), items) };
            it.queue.advance();
            Some((tag, payload))
        })
    }
}

/// Offset of an item in its area, in bytes.
const fn offset<T>(item: usize) -> u64 {
    // A saturated offset lies outside of all areas.
    (item as u64).saturating_mul(size_of::<T>() as u64)
}

fn parse_tag<G: Plain>(call: &str, tag: &[u8]) -> G {
    if tag.len() != size_of::<G>() {
        let why = format!("the tag has {} bytes, not {}", tag.len(), size_of::<G>());
        abort(call, &why);
    }
    // SAFETY: the tag is as long as `G`, and any bytes are a `Plain` value.
    unsafe { tag.as_ptr().cast::<G>().read_unaligned() }
}

impl<T: Plain> Index<Area<T>> for Bsp {
    type Output = [T];

    fn index(&self, area: Area<T>) -> &[T] {
        let memory = self.memory("bsp[area]", area);
        // SAFETY: the memory has `items` items, aligned for any type, all initialised. Besides
        // this process only the end of a superstep writes there, when no reference to `self` may
        // be left.
        unsafe { std::slice::from_raw_parts(memory.start.as_ptr().cast(), memory.items) }
    }
}

impl<T: Plain> IndexMut<Area<T>> for Bsp {
    fn index_mut(&mut self, area: Area<T>) -> &mut [T] {
        let memory = self.memory("bsp[area]", area);
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr().cast(), memory.items) }
    }
}
