//! Once warm, nothing is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use portolan_matching::{Arrival, Envelope, Matcher, Post, Selector};

/// The system's allocator, which counts.
struct Counting;

thread_local! {
    // Of this thread only: the test's harness has others.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator with its arguments
// unchanged; `realloc` by its default goes through `alloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as asked of our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as asked of our caller; the memory is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ENTRIES: u64 = 1_000;

/// Both sides full and empty again, receives of several shapes among them.
fn round(matcher: &mut Matcher<u64, u64>) {
    let selector = |k: u64| match k % 3 {
        0 => Selector::from(k as u32 % 7, k),
        1 => Selector::any(k),
        _ => Selector::any(k).ignoring(1 << 40),
    };
    let envelope = |k: u64| Envelope {
        source: k as u32 % 7,
        tag: k,
    };
    for k in 0..ENTRIES {
        assert!(matches!(matcher.post(selector(k), k), Post::Posted(_)));
    }
    for k in (0..ENTRIES).rev() {
        let arrival = matcher.arrive(envelope(k), k);
        assert!(matches!(arrival, Arrival::Matched(met) if met.receive == k));
    }
    for k in 0..ENTRIES {
        let arrival = matcher.arrive(envelope(k), k);
        assert!(matches!(arrival, Arrival::Unexpected(_)));
        assert!(matcher.peek(&Selector::any(k)).is_some());
        assert!(matcher.peek(&Selector::any(k).ignoring(1 << 40)).is_some());
    }
    for k in (0..ENTRIES).rev() {
        let post = matcher.post(selector(k), k);
        assert!(matches!(post, Post::Matched(met) if met.message == k));
    }
}

#[test]
fn once_warm_nothing_is_allocated() {
    let mut matcher = Matcher::new([1, 2]);
    round(&mut matcher);
    let before = ALLOCATIONS.with(Cell::get);
    assert!(before > 0);
    round(&mut matcher);
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
}
