//! Refusals of one connection.

use super::*;

fn fresh() -> Refusals {
    Refusals::new(&[[MessageNo(10); FLOWS_MAX]; 2])
}

/// Checks P5.4.
#[test]
fn one_refusal_of_a_flow_is_in_flight_and_the_next_waits_for_it() {
    let mut refusals = fresh();
    assert!(refusals.is_quiet());
    refusals.owe(Request, 3, MessageNo(5));
    assert!(refusals.is_owed(Request, 3) && !refusals.is_flying(Request, 3));
    assert!(!refusals.is_owed(Reply, 3) && !refusals.is_owed(Request, 4));
    assert_eq!(refusals.owed(Request, 3), MessageNo(5));
    assert!(!refusals.is_quiet() && !refusals.are_flying());
    refusals.queued(Request, 3);
    assert!(!refusals.is_owed(Request, 3) && refusals.is_flying(Request, 3));
    assert!(refusals.are_flying() && !refusals.is_quiet());
    refusals.owe(Request, 3, MessageNo(6));
    assert!(refusals.is_owed(Request, 3) && refusals.is_flying(Request, 3));
    assert!(!refusals.has_acked() && refusals.take_acked().is_none());
    refusals.acknowledged(Request, 3);
    assert!(refusals.has_acked());
    assert_eq!(refusals.take_acked(), Some((Request, 3)));
    // The second may leave now.
    assert!(refusals.is_owed(Request, 3) && !refusals.is_flying(Request, 3));
    assert_eq!(refusals.owed(Request, 3), MessageNo(6));
    refusals.queued(Request, 3);
    refusals.acknowledged(Request, 3);
    refusals.take_acked();
    assert!(refusals.is_quiet());
}

#[test]
fn flows_go_on_one_after_another() {
    let mut refusals = fresh();
    let flows = [(Reply, 15), (Request, 15), (Reply, 0), (Request, 0)];
    for (priority, flow) in flows {
        refusals.owe(priority, flow, MessageNo(flow.into()));
        refusals.queued(priority, flow);
        refusals.acknowledged(priority, flow);
    }
    let mut order = Vec::new();
    while let Some(flow) = refusals.take_acked() {
        order.push(flow);
    }
    assert_eq!(
        order,
        [(Request, 0), (Request, 15), (Reply, 0), (Reply, 15)]
    );
    assert!(refusals.is_quiet());
}

#[test]
fn a_refusal_without_a_frame_is_tried_again() {
    let mut refusals = fresh();
    refusals.owe(Request, 3, MessageNo(5));
    refusals.owe(Reply, 1, MessageNo(7));
    refusals.queued(Reply, 1);
    refusals.owe(Reply, 1, MessageNo(8));
    refusals.retry_at = 1_000;
    refusals.retry();
    assert_eq!(refusals.retry_at, u64::MAX);
    // The flow whose refusal is in flight waits for that.
    assert_eq!(refusals.take_acked(), Some((Request, 3)));
    assert_eq!(refusals.take_acked(), None);
    assert!(refusals.is_owed(Request, 3) && refusals.is_owed(Reply, 1));
}

/// Checks P5.5.
#[test]
fn the_last_refusal_of_each_flow_is_remembered() {
    let mut refusals = fresh();
    // At first any message that may have been sent is later.
    assert!(MessageNo(9).since(*refusals.told(Request, 2).unwrap()) > 0);
    *refusals.told(Request, 2).unwrap() = MessageNo(9);
    assert_eq!(refusals.told(Request, 2), Some(&mut MessageNo(9)));
    assert!(MessageNo(9).since(*refusals.told(Reply, 2).unwrap()) > 0);
    assert_eq!(refusals.told(Request, FLOWS_MAX as u16), None);
    // Repeats are awaited for a time.
    refusals.repeats_until = 5;
    assert!(!refusals.is_quiet());
}

#[test]
fn the_end_of_the_peer_lets_all_flows_go_on() {
    let mut refusals = fresh();
    refusals.owe(Request, 3, MessageNo(5));
    refusals.retry_at = 1_000;
    refusals.owe(Reply, 1, MessageNo(7));
    refusals.queued(Reply, 1);
    refusals.drop_all();
    assert!(!refusals.are_flying() && !refusals.is_owed(Request, 3));
    assert_eq!(refusals.retry_at, u64::MAX);
    assert_eq!(refusals.take_acked(), Some((Request, 3)));
    assert_eq!(refusals.take_acked(), Some((Reply, 1)));
    assert!(refusals.is_quiet());
}
