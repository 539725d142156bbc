//! Flows of shared memory that their receiver stops.

use crate::processes::{Host, host, receive_one, sleep, small};
use portolan_link::shm::{PeerState, SegmentConfig, ShmError, ShmPort};
use portolan_wire::Priority::{self, Reply, Request};

fn send_in(
    port: &mut ShmPort,
    to: u16,
    priority: Priority,
    flow: u16,
    byte: u8,
) -> Result<(), ShmError> {
    let mut outlet = port.outlet();
    let mut slot = outlet.reserve_in(to, priority, flow, 8)?;
    slot.bytes_mut().fill(byte);
    slot.commit();
    Ok(())
}

fn stop(host: &mut Host, at: u16, from: u16, priority: Priority, flow: u16, stopped: bool) {
    let mut outlet = host.ports[usize::from(at)].outlet();
    outlet.set_stopped(from, priority, flow, stopped);
}

#[test]
fn a_stopped_flow_stops_alone() {
    for rings in [None, Some(0)] {
        let mut host = host(3, &SegmentConfig { rings, ..small() });
        send_in(&mut host.ports[0], 1, Request, 3, 1).unwrap();
        stop(&mut host, 1, 0, Request, 3, true);
        let full = Err(ShmError::Full);
        assert_eq!(send_in(&mut host.ports[0], 1, Request, 3, 2), full);
        // Another flow, the other priority, what is in none; another sender, another receiver.
        send_in(&mut host.ports[0], 1, Request, 2, 3).unwrap();
        send_in(&mut host.ports[0], 1, Reply, 3, 4).unwrap();
        drop(host.ports[0].reserve(1, Request, 8).unwrap());
        send_in(&mut host.ports[2], 1, Request, 3, 5).unwrap();
        send_in(&mut host.ports[0], 2, Request, 3, 6).unwrap();
        assert_eq!(host.ports[0].peer_state(1), PeerState::Alive);
        // What was sent before comes.
        let mut got: Vec<u8> = std::iter::from_fn(|| receive_one(&mut host.ports[1]))
            .map(|(.., bytes)| bytes[0])
            .collect();
        got.sort_unstable();
        assert_eq!(got, [1, 3, 4, 5]);
        // Two are stopped; one goes on.
        stop(&mut host, 1, 2, Reply, 0, true);
        stop(&mut host, 1, 0, Request, 3, false);
        send_in(&mut host.ports[0], 1, Request, 3, 7).unwrap();
        assert_eq!(send_in(&mut host.ports[2], 1, Reply, 0, 8), full);
        stop(&mut host, 1, 2, Reply, 0, false);
        send_in(&mut host.ports[2], 1, Reply, 0, 9).unwrap();
    }
}

#[test]
fn who_waits_for_a_stopped_flow_sleeps_until_it_goes_on() {
    for remote_barrier in [true, false] {
        let config = SegmentConfig {
            remote_barrier,
            ..small()
        };
        let mut host = host(2, &config);
        const ROUNDS: u8 = 200;
        let mut b = host.ports.pop().unwrap();
        let mut a = host.ports.pop().unwrap();
        b.outlet().set_stopped(0, Request, 1, true);
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut looks = 0;
                for round in 0..ROUNDS {
                    while let Err(e) = send_in(&mut a, 1, Request, 1, round) {
                        assert_eq!(e, ShmError::Full);
                        sleep(&mut a);
                        looks += 1;
                    }
                    while receive_one(&mut a).is_none() {
                        sleep(&mut a);
                    }
                }
                // Only bells end its sleeps.
                assert!(looks < 10 * u32::from(ROUNDS), "looked {looks} times");
            });
            for round in 0..ROUNDS {
                b.outlet().set_stopped(0, Request, 1, false);
                let got = loop {
                    match receive_one(&mut b) {
                        Some((.., bytes)) => break bytes,
                        None => sleep(&mut b),
                    }
                };
                assert_eq!(got[0], round);
                b.outlet().set_stopped(0, Request, 1, true);
                send_in(&mut b, 0, Reply, 0, round).unwrap();
            }
        });
    }
}

#[test]
fn whoever_stops_others_ends_as_any_other() {
    let mut host = host(4, &small());
    for at in [1, 2] {
        stop(&mut host, at, 0, Request, 0, true);
    }
    // One closes, one dies.
    host.ports.remove(1);
    let gone = send_in(&mut host.ports[0], 1, Request, 0, 0).unwrap_err();
    assert_eq!(gone, ShmError::Gone(PeerState::Closed));
    host.segment.mark_dead(2);
    let dead = ShmError::Gone(PeerState::Dead);
    assert_eq!(send_in(&mut host.ports[0], 2, Request, 0, 0), Err(dead));
    // It is dead, and whatever it still does leaves it so.
    let mut outlet = host.ports[1].outlet();
    outlet.set_stopped(0, Request, 0, false);
    outlet.set_stopped(0, Request, 0, true);
    assert_eq!(host.ports[0].peer_state(2), PeerState::Dead);
    drop(host.ports.remove(1));
    assert_eq!(host.ports[0].peer_state(2), PeerState::Dead);
    // Of a sender that is gone nothing is stopped any more: nobody need look closer.
    let three = &mut host.ports[1];
    three.outlet().set_stopped(2, Request, 0, true);
    three.forget_stops(2);
    send_in(&mut host.ports[0], 3, Request, 0, 0).unwrap();
}

#[test]
fn a_flow_or_a_peer_that_is_not_there_is_stopped_without_harm() {
    let mut host = host(2, &small());
    for flow in [32, 64, u16::MAX] {
        stop(&mut host, 1, 0, Reply, flow, true);
    }
    stop(&mut host, 1, 7, Request, 0, true);
    for flow in [0, 31, 32, u16::MAX] {
        send_in(&mut host.ports[0], 1, Request, flow, 0).unwrap();
        send_in(&mut host.ports[0], 1, Reply, flow, 0).unwrap();
    }
}
