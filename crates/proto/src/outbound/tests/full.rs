//! Receiver not ready, at the sender.

use super::*;

/// Three frames of requests and one of a reply that were lost: flows 0 to 3.
fn lost() -> (Sender, [FrameIndex; 4]) {
    let mut sender = Sender::new();
    let frames = [0, 1, 2].map(|flow| sender.send(Request, flow, 700));
    let reply = sender.send(Reply, 3, 700);
    while sender.leave().is_some() {}
    let frames = [frames[0], frames[1], frames[2], reply];
    for (frame, number) in frames.into_iter().zip(0..) {
        sender.lose(frame, number);
    }
    (sender, frames)
}

fn open_round(sender: &mut Sender) {
    let Sender { store, out } = sender;
    out.open_round(&store.memory());
}

fn waits(sender: &mut Sender) -> bool {
    sender.out.waits_for_room(&sender.store.memory())
}

/// Checks P6.14.
#[test]
fn what_was_refused_waits_until_there_is_room() {
    let (mut sender, _) = lost();
    assert!(!waits(&mut sender));
    assert!(!sender.out.set_full([true, false]), "no room is no news");
    assert!(sender.out.is_refused() && waits(&mut sender));
    // The reply, what is fresh and control chunks leave.
    let ping = sender.control(&Chunk::Ping);
    sender.send(Request, 9, 700);
    assert!(sender.has_allowed());
    let reply = sender.leave().unwrap();
    assert_eq!(sender.cargo(reply).flow, 3);
    assert_eq!(sender.leave(), Some(ping));
    assert_eq!(sender.flows(), [9]);
    assert!(!sender.has_allowed() && waits(&mut sender));
    assert!(sender.out.has_queue());
    // Less room for others is no news for those that wait.
    assert!(!sender.out.set_full([true, true]));
    assert!(sender.out.set_full([true, false]));
    assert!(sender.out.set_full([false, false]));
    assert!(!sender.out.set_full([false, false]));
    assert!(sender.has_allowed() && !waits(&mut sender));
    assert_eq!(sender.flows(), [0, 1, 2]);
}

#[test]
fn each_that_waits_leaves_once_in_a_round() {
    let (mut sender, frames) = lost();
    sender.out.set_full([true, true]);
    assert_eq!(sender.leave(), None);
    open_round(&mut sender);
    assert!(sender.has_allowed());
    assert_eq!(sender.leave(), Some(frames[0]));
    // One that is refused again waits for the next round.
    sender.lose(frames[0], 10);
    assert_eq!(sender.flows(), [1, 2, 3]);
    assert_eq!(sender.leave(), None);
    assert!(!sender.has_allowed() && waits(&mut sender));
    open_round(&mut sender);
    assert_eq!(sender.flows(), [0]);
    assert!(!waits(&mut sender));
}

#[test]
fn a_round_counts_only_what_waits_for_room() {
    let (mut sender, frames) = lost();
    sender.out.set_full([true, false]);
    open_round(&mut sender);
    // The reply takes no part: it leaves first.
    assert_eq!(sender.flows(), [3, 0, 1, 2]);
    sender.lose(frames[1], 10);
    assert_eq!(sender.leave(), None);
}

#[test]
fn a_round_ends_when_there_is_room() {
    let (mut sender, frames) = lost();
    sender.out.set_full([true, false]);
    open_round(&mut sender);
    sender.out.set_full([false, false]);
    assert_eq!(sender.leave(), Some(frames[0]));
    sender.out.set_full([true, false]);
    assert_eq!(sender.flows(), [3]);
}

#[test]
fn control_chunks_never_wait_for_room() {
    let mut sender = Sender::new();
    let refuse = Chunk::Refuse {
        priority: Request,
        flow: 2,
        message: MessageNo(0),
    };
    let frame = sender.control(&refuse);
    assert_eq!(sender.leave(), Some(frame));
    sender.lose(frame, 0);
    sender.out.set_full([true, true]);
    assert!(!waits(&mut sender) && sender.has_allowed());
    assert_eq!(sender.leave(), Some(frame));
}

#[test]
fn a_round_is_not_used_up_where_only_replies_may_leave() {
    let (mut sender, frames) = lost();
    sender.out.set_full([true, false]);
    assert_eq!(sender.pick(ROOM, true).unwrap().frame, frames[3]);
    open_round(&mut sender);
    // The window is closed for requests meanwhile.
    assert_eq!(sender.pick(ROOM, true), None);
    assert_eq!(sender.pick(ROOM, true), None);
    assert_eq!(sender.flows(), [0, 1, 2]);
}

#[test]
fn a_round_ends_with_the_packets_that_it_was_for() {
    let (mut sender, frames) = lost();
    sender.out.set_full([true, true]);
    open_round(&mut sender);
    // The reply needs no turn in the round any more.
    sender.out.set_full([true, false]);
    while sender.leave().is_some() {}
    sender.lose(frames[0], 9);
    assert_eq!(sender.leave(), None);
    assert!(waits(&mut sender));
}
