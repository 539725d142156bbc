//! Flows that the peer has stopped.

use super::*;

/// Checks P7.10.
#[test]
fn the_later_serial_holds() {
    let mut out = Outbound::default();
    assert!(out.stop(2, [1 << 3, 1 << 4]));
    assert!(out.stopped.has(Request, 3) && out.stopped.has(Reply, 4));
    assert!(!out.stopped.has(Reply, 3) && !out.stopped.has(Request, 4));
    assert!(!out.stop(2, [0; 2]) && !out.stop(1, [0; 2]));
    assert!(out.stopped.any());
    // Serials wrap around.
    assert!(out.stop(0x7fff, [1; 2]) && out.stop(0xfffe, [2; 2]) && out.stop(1, [4; 2]));
    assert!(!out.stop(0xfffe, [1; 2]));
    assert_eq!(out.stopped.flows, [4; 2]);
    assert!(out.stop(2, [0; 2]));
    assert!(!out.stopped.any());
}

/// Checks P7.12.
#[test]
fn a_stopped_flow_keeps_what_it_has_until_it_may_go_on() {
    let mut sender = Sender::new();
    let again = sender.send(Request, 1, 700);
    sender.leave();
    for flow in [0, 1, 2] {
        sender.send(Request, flow, 700);
        sender.send(Reply, flow, 700);
    }
    sender.out.stop(1, [0b11, 0b100]);
    assert_eq!(sender.flows(), [0, 1, 2]);
    // Nothing waits that could leave, but not all has left.
    assert!(!sender.out.has_queue() && !sender.has_allowed());
    assert!(!sender.out.has_left() && !sender.out.is_settled());
    // What has left before may be sent again.
    sender.lose(again, 0);
    assert!(sender.out.has_queue() && sender.has_allowed());
    assert_eq!(sender.leave(), Some(again));
    assert_eq!(sender.leave(), None);
    // The next chunk names flow 0 alone.
    sender.out.stop(2, [0b1, 0]);
    assert_eq!(sender.flows(), [2, 1]);
    sender.out.stop(3, [0, 0]);
    assert_eq!(sender.flows(), [0]);
    assert!(sender.out.has_left());
}

#[test]
fn a_stopped_flow_takes_no_message_and_holds_back_no_other() {
    let mut sender = Sender::new();
    for _ in 0..8 {
        sender.send(Request, 1, 700);
    }
    sender.send(Reply, 1, 700);
    sender.send(Reply, 1, 700);
    assert!(!sender.out.takes(Request, 0, 8) && !sender.out.takes(Reply, 0, 8));
    sender.out.stop(1, [0b10, 0]);
    assert_eq!(sender.out.stopped.frames, [8, 0]);
    assert!(!sender.out.takes(Request, 1, 8));
    assert!(sender.out.takes(Request, 0, 8) && sender.out.takes(Reply, 1, 8));
    // Two replies count, but the requests do not.
    assert!(sender.out.takes(Request, 0, 3) && !sender.out.takes(Request, 0, 2));
    sender.out.stop(2, [0b10, 0b10]);
    assert_eq!(sender.out.stopped.frames, [8, 2]);
    assert!(sender.out.takes(Reply, 0, 1) && !sender.out.takes(Reply, 1, 1));
    // As soon as the flow may go on, its frames count again.
    sender.out.stop(3, [0, 0b10]);
    assert_eq!(sender.out.stopped.frames, [0, 2]);
    assert!(!sender.out.takes(Request, 1, 8));
    assert!(sender.out.takes(Reply, 0, 8));
}

#[test]
fn replies_of_a_stopped_flow_use_up_no_quarter() {
    let mut sender = Sender::new();
    for _ in 0..8 {
        sender.send(Request, 0, 700);
    }
    sender.send(Reply, 1, 700);
    sender.send(Reply, 1, 700);
    assert!(!sender.out.takes(Reply, 0, 8));
    sender.out.stop(1, [0, 0b10]);
    assert!(sender.out.takes(Reply, 0, 8) && !sender.out.takes(Request, 0, 8));
}

#[test]
fn a_long_message_stops_between_its_parts() {
    let mut sender = Sender::new();
    sender.send_long(Request, 1, 3_000, Release::Copied);
    sender.send(Request, 2, 700);
    let head = sender.leave().unwrap();
    sender.out.stop(1, [0b10, 0]);
    assert_eq!(sender.flows(), [2]);
    assert_eq!(sender.leave(), None);
    // What is not in frames yet counts nothing.
    assert_eq!(sender.out.stopped.frames, [0; 2]);
    sender.acked(head);
    sender.out.stop(2, [0; 2]);
    assert_eq!(sender.flows(), [1, 1]);
    assert!(sender.out.has_left());
}
