//! Memory of receives that their senders write to.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use portolan_runtime::{Buffer, Place, PutOptions, Rights, Selector, Space};

use super::{PATIENCE, pattern};

/// A length that is surely shared, and not even.
pub const LONG: usize = 1_000_003;

/// Bytes of a message during which somebody is stopped or killed.
pub const VAST: usize = 64 << 20;

/// Whether processes may write to each other's memory here; says so where they
/// may not. Also the two come to know each other.
pub fn possible(a: &Space, b: &Space) -> bool {
    let id = b.register(vec![0; 8], None, Rights::Put).unwrap();
    let key = b.remote_key(id).unwrap().unwrap();
    let place = Place { key, offset: 0 };
    a.post_put(1, place, vec![1; 8], &PutOptions::default())
        .unwrap();
    let possible = a.counters().unwrap().direct > 0;
    if !possible {
        eprintln!("*** process_vm_writev IS NOT PERMITTED HERE: SHARED COPIES NOT TESTED ***");
    }
    b.deregister(id).unwrap();
    // From here on each knows that the other may copy from it.
    thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..2 {
                a.send_tagged(1, 1, &pattern(LONG, 1)).unwrap();
                a.receive_tagged(&Selector::any(2), &mut [0]).unwrap();
            }
        });
        for _ in 0..2 {
            b.receive_tagged(&Selector::any(1), &mut vec![0; LONG])
                .unwrap();
            b.send_tagged(0, 2, &[0]).unwrap();
        }
    });
    possible
}

/// Runs a test that must come to its end in another thread.
pub fn in_time(test: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        test();
        tell.send(()).unwrap();
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()));
}

/// Memory that a sender may write to behind our back, looked at as such.
pub struct Watched {
    start: *mut u8,
    bytes: usize,
}

impl Watched {
    /// Of memory that outlives the endpoint.
    pub fn of(memory: &mut [u8]) -> Self {
        Self {
            start: memory.as_mut_ptr(),
            bytes: memory.len(),
        }
    }

    /// To receive in.
    pub fn lend(&self) -> Buffer {
        // SAFETY: the memory outlives the endpoint, and nobody has a reference.
        unsafe { Buffer::lent(self.start, self.bytes) }
    }

    pub fn byte(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: within the memory, of which nobody has a reference.
        unsafe { self.start.add(at).read_volatile() }
    }

    /// Whether nobody writes to it any more, after `act`.
    pub fn is_left_alone(&self, act: impl FnOnce()) -> bool {
        let all = || (0..self.bytes).step_by(64);
        for at in all() {
            // SAFETY: as above.
            unsafe { self.start.add(at).write_volatile(9) };
        }
        act();
        thread::sleep(Duration::from_millis(100));
        all().all(|at| self.byte(at) == 9)
    }
}
