//! How a program hears of ends, and how it need not: queues of errors only, completions handed
//! over, copies that are sent, receives that are cancelled by their context.

use crate::common::{By, config, pair, run};
use portolan_runtime::{Action, Notify, OpError, Selector, TaggedOptions};

#[test]
fn good_ends_stay_out_of_a_queue_of_errors() {
    for by in [By::Shm, By::Udp] {
        let (a, b) = pair(by, &config());
        let (queue, counter) = (b.open_queue().unwrap(), b.open_counter().unwrap());
        let notify = |context| Notify {
            context,
            queue: Some(queue),
            counter: Some(counter),
            only_errors: true,
        };
        for context in 0..3 {
            b.post_receive(&Selector::any(7), vec![0; 4], notify(context))
                .unwrap();
        }
        let plain = TaggedOptions::default();
        a.inject_tagged(1, 7, &plain, b"ahoy").unwrap();
        a.inject_tagged(1, 7, &plain, b"too long").unwrap();
        run(&[&a, &b], || {
            let count = b.counted(counter).unwrap();
            (count.done, count.failed) == (1, 1)
        });
        assert!(b.has_completions(queue).unwrap());
        // The last one goes by its context; no other has it.
        assert!(!b.cancel_named(3).unwrap());
        assert!(b.cancel_named(2).unwrap());
        assert!(!b.cancel_named(2).unwrap());
        let mut seen = Vec::new();
        let taken = b.each_completion(queue, 9, |ended| {
            seen.push((ended.completion.context, ended.completion.result));
            true
        });
        assert_eq!(taken.unwrap(), 2);
        let ends = [(1, Err(OpError::Truncated)), (2, Err(OpError::Cancelled))];
        assert_eq!(seen, ends);
        assert!(!b.has_completions(queue).unwrap());
    }
}

#[test]
fn completions_are_handed_over_until_it_is_enough() {
    let (a, b) = pair(By::Shm, &config());
    let queue = a.open_queue().unwrap();
    let options = TaggedOptions {
        data: Some(5),
        notify: Notify {
            queue: Some(queue),
            ..Notify::NONE
        },
        ..TaggedOptions::default()
    };
    for _ in 0..5 {
        a.inject_tagged(1, 1, &options, b"x").unwrap();
    }
    let take = |most, enough| {
        let mut taken = 0;
        a.each_completion(queue, most, |ended| {
            assert_eq!(ended.completion.action, Action::Send);
            taken += 1;
            taken < enough
        })
        .unwrap()
    };
    let mut all = 0;
    run(&[&a, &b], || {
        all += take(1, 9);
        all >= 3
    });
    assert_eq!(take(9, 1), 1);
    run(&[&a, &b], || {
        all += take(9, 9);
        all == 4
    });
    for _ in 0..5 {
        let done = b.receive_tagged(&Selector::any(1), &mut [0; 1]).unwrap();
        assert_eq!(done.data, Some(5));
    }
}

#[test]
fn a_copy_takes_along_what_goes_with_it() {
    let (a, b) = pair(By::Shm, &config());
    // Up to beyond what one frame takes.
    let mut got = vec![0; 600];
    for bytes in 0..got.len() {
        for data in [None, Some(0), Some(u64::MAX)] {
            let options = TaggedOptions {
                data,
                ..TaggedOptions::default()
            };
            // It hears of room for what it pushes.
            a.progress().unwrap();
            a.inject_tagged(1, 2, &options, &vec![bytes as u8; bytes])
                .unwrap();
            let done = b.receive_tagged(&Selector::any(2), &mut got).unwrap();
            assert_eq!((done.bytes, done.data), (bytes as u64, data));
            assert!(got[..bytes].iter().all(|byte| *byte == bytes as u8));
        }
    }
}
