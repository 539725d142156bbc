//! The interface for programs in Rust: [`run`] begins and ends the SPMD part, and [`Bsp`] has
//! the calls. It owns the registered areas, so that what other processes read and write is
//! there, and no reference to it lasts from one superstep to the next.

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

/// Where areas begin, and the parts of messages: fit for any [`Plain`] type.
const ALIGNMENT: usize = align_of::<u128>();

/// Plain old data: what may be sent as its bytes, and made of any.
///
/// # Safety
/// The type has no padding, and each value of its bytes is one of its own. So it is
/// `repr(C)` or `repr(transparent)`, and has neither references nor `bool`, `char` or enums.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($number:ty)*) => {$(
        // SAFETY: numbers have no padding, and any bytes are one.
        unsafe impl Plain for $number {}
    )*};
}
plain! { () u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64 }

// SAFETY: there is nothing between elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

const fn check<T: Plain>() {
    assert!(size_of::<T>() > 0, "items must have bytes");
    assert!(align_of::<T>() <= ALIGNMENT, "no type is aligned so widely");
}

fn bytes<T: Plain>(items: &[T]) -> &[u8] {
    // SAFETY: a `Plain` type has no padding, so these are all initialised.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

/// Names a registered area of items of a type; [`Bsp`] has its memory, as `bsp[area]`.
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

/// An area's memory. Only its address is kept, since supersteps write there.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    items: usize,
}

impl Memory {
    /// Zeros.
    fn new<T: Plain>(items: usize) -> Self {
        // Also areas without items have addresses of their own.
        let bytes = items.saturating_mul(size_of::<T>()).max(1);
        let made = Layout::from_size_align(bytes, ALIGNMENT)
            .ok()
            .map(|layout| {
                // SAFETY: it has bytes.
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

    /// As others name it.
    fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made so.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The calls of the SPMD part, in the thread that began it.
///
/// There are no errors that a program could handle, as in C: a call that cannot be done
/// prints "bsp: process I of P, CALL: reason" and ends all processes, with an exit code that
/// is not 0. Calls have their names of C in that.
pub struct Bsp {
    areas: BTreeMap<u64, Memory>,
    /// So many have been registered.
    pushed: u64,
    /// Popped in this superstep.
    popped: Vec<u64>,
    /// Put without copying in this superstep.
    lent: RefCell<Vec<Box<dyn Any>>>,
    /// It stays in its thread.
    thread: PhantomData<*const ()>,
}

/// Runs the SPMD part with at most so many processes, at least 1, and returns what it
/// returns when all have ended it. Process 0's number counts. Processes beyond that end here,
/// with exit code 0; where there are fewer, there are fewer. Once in a program.
///
/// What comes before is run by all that there are. So `main` mostly has nothing else.
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
/// // Nobody has started this process, so it is the only one.
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
    // It is a superstep's end too.
    process::end();
    result
}

/// How many processes there are for [`run`]; within it [`Bsp::nprocs`].
pub fn nprocs() -> u32 {
    process::nprocs()
}

impl Bsp {
    /// How many processes take part.
    pub fn nprocs(&self) -> u32 {
        process::nprocs()
    }

    /// This process's number, from 0.
    pub fn pid(&self) -> u32 {
        with("bsp_pid", |it| it.me)
    }

    /// Seconds since [`run`] has begun, in this process.
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

    /// Makes an area of so many items, which are zeros, and registers it from the next
    /// [`Bsp::sync`] on. All processes register their areas in the same order, with the same
    /// type. Numbers of items may differ.
    pub fn push_reg<T: Plain>(&mut self, items: usize) -> Area<T> {
        const { check::<T>() };
        let memory = Memory::new::<T>(items);
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

    /// Ends a registration at the next [`Bsp::sync`], in all processes: the area is gone
    /// then.
    pub fn pop_reg<T: Plain>(&mut self, area: Area<T>) {
        const CALL: &str = "bsp_pop_reg";
        let start = self.memory(CALL, area).address();
        if !with(CALL, |it| it.areas.pop(start)) {
            abort(CALL, "the area was popped in this superstep");
        }
        self.popped.push(area.number);
    }

    fn memory<T: Plain>(&self, call: &str, area: Area<T>) -> &Memory {
        let memory = self.areas.get(&area.number);
        memory.unwrap_or_else(|| abort(call, "the area was popped"))
    }

    /// Writes items to an area of process `pid`, from number `at` on, when the superstep
    /// ends. They are copied at once.
    pub fn put<T: Plain>(&self, pid: u32, items: &[T], area: Area<T>, at: usize) {
        const CALL: &str = "bsp_put";
        let start = self.memory(CALL, area).address();
        let act = |it: &mut Process, pid| it.put(CALL, pid, bytes(items), start, offset::<T>(at));
        self.access(CALL, pid, items.len(), act);
    }

    /// Does the same without copying, which saves time from some 4,096 bytes on.
    pub fn hpput<T: Plain>(&self, pid: u32, items: Vec<T>, area: Area<T>, at: usize) {
        const CALL: &str = "bsp_hpput";
        let start = self.memory(CALL, area).address();
        self.access(CALL, pid, items.len(), |it, pid| {
            // SAFETY: the vector is kept as it is until the superstep has ended.
            unsafe { it.hpput(CALL, pid, bytes(&items), start, offset::<T>(at)) };
        });
        self.lent.borrow_mut().push(Box::new(items));
    }

    /// Reads items of process `pid`'s area when the superstep ends, before anything is put,
    /// and stores them in this process's area `into`, from number `to` on.
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
        // SAFETY: it lies within that memory.
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

    /// Nothing happens without items, as in C.
    fn access(&self, call: &str, pid: u32, items: usize, act: impl FnOnce(&mut Process, u32)) {
        if items > 0 {
            with(call, |it| {
                let pid = peer(call, it, pid);
                act(it, pid);
            });
        }
    }

    /// Sets the length of tags, in bytes, for what is sent after the next [`Bsp::sync`], and
    /// returns what was set before; 0 at first. The same in all processes.
    pub fn set_tagsize(&mut self, bytes: usize) -> usize {
        with("bsp_set_tagsize", |it| it.set_tag_bytes(bytes as u64)) as usize
    }

    /// Sends a message, which is in the queue of process `pid` in the next superstep, and
    /// gone after that. Both parts are copied. The tag has the length that was set: `&()`
    /// where that is 0.
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

    /// How many messages are left in the queue, and how many bytes their payloads have
    /// together.
    pub fn qsize(&self) -> (u64, u64) {
        with("bsp_qsize", |it| it.queue.size())
    }

    /// The tag of the next message, which stays, and how many bytes its payload has; `None`
    /// if there is none.
    pub fn get_tag<G: Plain>(&self) -> Option<(G, usize)> {
        with("bsp_get_tag", |it| {
            let (tag, payload) = it.queue.peek()?;
            Some((parse_tag("bsp_get_tag", tag), payload.len()))
        })
    }

    /// Takes the next message: its tag, and its payload without copying. `None` if there is
    /// none.
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
            // SAFETY: the queue aligns payloads for any type, and it stays as it is until the
            // superstep ends, for which no reference to `self` may be left. Any bytes are a
            // `Plain` value.
            let payload = unsafe { std::slice::from_raw_parts(payload.as_ptr().cast(), items) };
            it.queue.advance();
            Some((tag, payload))
        })
    }
}

/// Of the item with this number.
const fn offset<T>(item: usize) -> u64 {
    // What is too large lies outside of all areas.
    (item as u64).saturating_mul(size_of::<T>() as u64)
}

fn parse_tag<G: Plain>(call: &str, tag: &[u8]) -> G {
    if tag.len() != size_of::<G>() {
        let why = format!("the tag has {} bytes, not {}", tag.len(), size_of::<G>());
        abort(call, &why);
    }
    // SAFETY: it has so many bytes, of which any are a `Plain` value.
    unsafe { tag.as_ptr().cast::<G>().read_unaligned() }
}

impl<T: Plain> Index<Area<T>> for Bsp {
    type Output = [T];

    fn index(&self, area: Area<T>) -> &[T] {
        let memory = self.memory("bsp[area]", area);
        // SAFETY: it has so many items, aligned for any type, of bytes that are all
        // initialised. Only a superstep's end writes there beside this process, for which
        // no reference to `self` may be left.
        unsafe { std::slice::from_raw_parts(memory.start.as_ptr().cast(), memory.items) }
    }
}

impl<T: Plain> IndexMut<Area<T>> for Bsp {
    fn index_mut(&mut self, area: Area<T>) -> &mut [T] {
        let memory = self.memory("bsp[area]", area);
        // SAFETY: as above, and `self` is borrowed as it alone.
        unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr().cast(), memory.items) }
    }
}
