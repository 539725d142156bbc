//! Lengths that no message, or no memory for messages, can have.

use std::sync::mpsc::channel;

use crate::common::{ALL, By, Count, config, job, pair, run, settle};
use portolan_runtime::{
    Binding, Buffer, Config, Context, Gather, MESSAGE_BYTES_MAX, Message, Notify, Place,
    PutOptions, RemoteKey, Scatter, SendError, SendOptions, TaggedOptions, WaitError,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// More than any message can hold. Nothing lies there: to read a part of it is to find zeros,
/// to copy all of it is to run out of memory.
struct TooLong {
    start: *mut u8,
}

impl TooLong {
    const BYTES: usize = MESSAGE_BYTES_MAX as usize + 1;

    fn new() -> Self {
        // SAFETY: a mapping of its own, where the kernel likes.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                Self::BYTES,
                ProtFlags::READ,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        Self {
            start: start.unwrap().cast(),
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped as long as this is there, and nobody may write it.
        unsafe { std::slice::from_raw_parts(self.start, Self::BYTES) }
    }

    fn gather(&self) -> Gather {
        // SAFETY: nothing is begun with it.
        unsafe { Gather::lent(self.start, Self::BYTES) }
    }

    fn scatter(&self) -> Scatter {
        // SAFETY: nothing is begun with it.
        unsafe { Buffer::lent(self.start, Self::BYTES) }.into()
    }
}

impl Drop for TooLong {
    fn drop(&mut self) {
        // SAFETY: it was mapped as a whole, and no slice of it is left.
        unsafe { munmap(self.start.cast(), Self::BYTES) }.unwrap();
    }
}

const PLAIN: SendOptions<'static> = SendOptions::PLAIN;

#[test]
fn what_no_message_can_hold_is_refused_by_every_call() {
    let long = TooLong::new();
    let place = Place {
        key: RemoteKey::any(1),
        offset: 0,
    };
    for by in ALL {
        let (a, b) = pair(by, &config());
        for bound in [false, true] {
            if bound {
                for e in [&a, &b] {
                    e.bind(1, Binding::to(|_, _| panic!("nothing is sent")))
                        .unwrap();
                }
            }
            for to in [0, 1] {
                let refused = Err(SendError::TooLong);
                assert_eq!(a.try_send(to, 1, long.bytes()), refused, "{by:?} {to}");
                assert_eq!(a.send(to, 1, long.bytes()), refused);
                assert_eq!(
                    a.broadcast(&[to], 1, &PLAIN, long.bytes()),
                    refused.map(drop)
                );
                let posted = a.post_message(to, 1, &PLAIN, long.gather());
                assert_eq!(posted.map_err(|(e, _)| e), Err(SendError::TooLong));
                let tagged = TaggedOptions::default();
                assert_eq!(a.send_tagged(to, 1, long.bytes()), Err(WaitError::TooLong));
                let injected = a.inject_tagged(to, 1, &tagged, long.bytes());
                assert_eq!(injected, Err(SendError::TooLong));
                let posted = a.post_send(to, 1, &tagged, long.gather());
                assert_eq!(posted.map_err(|(e, _)| e), Err(SendError::TooLong));
                let put = a.post_put(to, place, long.gather(), &PutOptions::default());
                assert_eq!(put.map_err(|(e, _)| e), Err(SendError::TooLong));
                let get = a.post_get(to, place, long.scatter(), Notify::NONE);
                assert_eq!(get.map_err(|(e, _)| e), Err(SendError::TooLong));
            }
        }
        settle(&[&a, &b]);
        assert_eq!(a.counters().unwrap().sent, 0);
        assert_eq!(a.counters().unwrap().refused, 0);
    }
}

/// Along a tree the ranks below go with the bytes.
#[test]
fn a_broadcast_that_a_tree_cannot_carry_reaches_nobody() {
    let long = TooLong::new();
    let ranks = job(By::Ring, 6, &config());
    let all: Vec<&_> = ranks.iter().collect();
    let to: Vec<u32> = (0..6).collect();
    let bytes = &long.bytes()[1..];
    let sent = ranks[0].broadcast(&to, 1, &PLAIN, bytes);
    assert_eq!(sent, Err(SendError::TooLong));
    settle(&all);
    assert_eq!(ranks[0].counters().unwrap().sent, 0);
}

/// Also of answers that would wait for credit.
#[test]
fn a_handler_is_told_too() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (tell, told) = channel();
        let handler = move |c: &mut Context<'_>, _: &Message<'_>| {
            let long = TooLong::new();
            let sent = c.send(0, 1, long.bytes());
            tell.send(sent.map(drop)).unwrap();
            let posted = c.post_message(0, 1, &PLAIN, long.gather());
            tell.send(posted.map(drop).map_err(|(e, _)| e)).unwrap();
            tell.send(c.reply(&[], long.bytes())).unwrap();
            while c.reply(&[], &[0; 1_000]).is_ok() {}
            tell.send(c.reply(&[], long.bytes())).unwrap();
        };
        b.bind(1, Binding::to(handler)).unwrap();
        a.send(1, 1, &[]).unwrap();
        let mut all = Vec::new();
        run(&[&a, &b], || {
            all.extend(told.try_iter());
            all.len() == 4
        });
        assert_eq!(all, [Err(SendError::TooLong); 4], "{by:?}");
    }
}

/// Nobody could make room for it while the call waits.
#[test]
fn what_can_never_be_kept_for_oneself_is_refused() {
    let config = Config {
        unexpected_share: 10_000,
        queue_share: 20_000,
        ..config()
    };
    let a = job(By::Ring, 1, &config).remove(0);
    let long = [7; 20_000];
    let refused = Err(SendError::TooLong);
    assert_eq!(a.try_send(0, 1, &long), refused);
    assert_eq!(a.send(0, 1, &long), refused);
    assert_eq!(a.broadcast(&[0], 1, &PLAIN, &long), refused.map(drop));
    // What finds no room now may find some later: there is more once the port is bound.
    let long = &long[..15_000];
    assert_eq!(a.try_send(0, 1, long), Err(SendError::NoCredit));
    let heard = Count::default();
    let ran = heard.clone();
    a.bind(1, Binding::to(move |_, _| ran.add())).unwrap();
    a.send(0, 1, long).unwrap();
    run(&[&a], || heard.get() == 1);
}
