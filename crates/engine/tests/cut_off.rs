//! Packets that the kernel refuses here: whoever they were for is not said to
//! be silent.

mod common;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use common::{By, config, opening, peer, run};
use portolan_engine::{Death, Event, Failure};

#[test]
fn who_cannot_be_sent_to_is_cut_off_and_the_error_is_named() {
    let mut config = config();
    config.proto.silence_ns = 20_000_000;
    config.proto.connect_ns = 40_000_000;
    let [zero, one] = [0, 1].map(|rank| opening(By::Udp, rank, &config));
    let mut peers = [peer(&zero, None), peer(&one, None)];
    // The socket has a loopback address: nothing leaves from there for another
    // host. That needs no privilege, unlike an interface that is down.
    peers[1].address.ip = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
    let zero = zero.finish(&peers, None, None).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    zero.on_error(move |_, event| log.lock().unwrap().push(*event))
        .unwrap();
    zero.try_send(1, 1, b"data").unwrap();
    run(&[&zero], || told.lock().unwrap().len() == 2);
    let [
        Event::PeerSilent {
            rank: 1,
            failure: Some(failure),
        },
        Event::PeerDead { rank: 1, why },
    ] = told.lock().unwrap()[..]
    else {
        panic!("{:?}", told.lock().unwrap());
    };
    assert_eq!(why, Death::CutOff(failure));
    // `EINVAL`, or without a route for it `ENETUNREACH`.
    assert!(
        matches!(failure, Failure::Send(22 | 101)),
        "{failure:?} is not what the kernel says"
    );
    let text = why.to_string();
    assert!(text.starts_with("packets to it cannot be sent: "), "{text}");
    assert!(text.contains("(os error "), "{text}");
    assert!(zero.counters().unwrap().tx_failed > 0);
}
