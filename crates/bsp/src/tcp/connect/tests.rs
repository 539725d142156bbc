use super::*;

fn nobody_is_missed(_: &[u32]) -> Result<(), Failure> {
    Ok(())
}

#[test]
fn processes_find_each_other_among_strangers() {
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let listener = Listener::new(ip).unwrap();
        let card = listener.card;
        let at = listener.socket.local_addr().unwrap();
        // Strangers stay until all others are there: one sends nothing, one half of a hello, others
        // a wrong word, and one hangs up.
        let stranger = |says: &[u8]| {
            let mut socket = TcpStream::connect(at).unwrap();
            socket.write_all(says).unwrap();
            socket
        };
        let wrong = |who: u32| [&[0; WORD], &who.to_le_bytes()[..]].concat();
        let unknown = [&card[18..], &3_u32.to_le_bytes()[..]].concat();
        let strangers = [
            stranger(&[]),
            stranger(&card[18..]),
            stranger(&wrong(0)),
            stranger(&unknown),
            stranger(&wrong(1)),
        ];
        drop(stranger(&card[18..25]));
        // Not in the order of their numbers.
        let callers: Vec<_> = [2_u32, 0, 1]
            .map(|who| (who, connect(who, 3, &card).unwrap()))
            .into();
        let known = listener.accept(3, nobody_is_missed).unwrap();
        for (who, socket) in &callers {
            let accepted = &known[*who as usize];
            assert_eq!(accepted.peer_addr().unwrap(), socket.local_addr().unwrap());
            assert!(accepted.nodelay().unwrap() && socket.nodelay().unwrap());
        }
        drop(strangers);
    }
}

/// The oldest silent caller makes room, and a caller that knows the word gets in.
#[test]
fn strangers_take_no_room_for_ever() {
    let listener = Listener::new(Ipv4Addr::LOCALHOST.into()).unwrap();
    let at = listener.socket.local_addr().unwrap();
    let strangers: Vec<_> = (0..STRANGERS_MAX + 2)
        .map(|_| TcpStream::connect(at).unwrap())
        .collect();
    let caller = connect(0, 1, &listener.card).unwrap();
    let known = listener.accept(1, nobody_is_missed).unwrap();
    assert_eq!(known[0].peer_addr().unwrap(), caller.local_addr().unwrap());
    drop(strangers);
}

#[test]
fn who_waits_is_asked_whom_it_misses() {
    let listener = Listener::new(Ipv4Addr::LOCALHOST.into()).unwrap();
    let caller = connect(1, 3, &listener.card).unwrap();
    let dead = Failure::Malformed { who: 0 };
    let given = dead.clone();
    let mut asked = Vec::new();
    let accepted = listener.accept(3, move |missing| {
        // A busy machine decides whether the caller has been answered by then.
        asked.push(missing.to_vec());
        match asked.last().is_some_and(|it| *it == [0, 2]) {
            true => Err(given.clone()),
            false => Ok(()),
        }
    });
    assert_eq!(accepted.unwrap_err(), dead);
    drop(caller);
}

#[test]
fn nobody_at_an_address_is_said_with_it() {
    let listener = Listener::new(Ipv4Addr::LOCALHOST.into()).unwrap();
    let (card, at) = (listener.card, listener.socket.local_addr().unwrap());
    drop(listener);
    let said = connect(0, 1, &card).unwrap_err().to_string();
    let text = format!("BSP_TRANSPORT=tcp: no connection to process 1 at {at}");
    assert!(said.starts_with(&text), "{said}");
}
