//! Endpoints outside of a job: several in one process, which add and remove each other.

/// By UDP alone.
mod udp {
    const LINK: &str = "udp";
    include!("standalone/cases.rs");

    #[test]
    fn an_endpoint_knows_its_ip_address() {
        assert_eq!(open().ip(), Some([127, 0, 0, 1].into()));
    }
}

/// By shared memory, where no setting forbids it.
mod near {
    const LINK: &str = "auto";
    include!("standalone/cases.rs");

    #[test]
    fn memory_is_shared_from_the_first_message_on() {
        let (a, b, there, back) = met();
        assert_eq!(a.lane(there).unwrap().0, "shm");
        assert_eq!(b.lane(back).unwrap().0, "shm");
        let packets = |ep: &Endpoint| ep.counters().unwrap().protocol.packets_sent;
        assert_eq!((packets(&a), packets(&b)), (0, 0));
    }

    #[test]
    fn who_pauses_between_its_passes_meets_others_within_few_of_them() {
        let (a, b) = (open(), open_with(Config::default().set("helper", "off")));
        let heard = listen(&b);
        let there = a.add_peer(&b.address()).unwrap();
        let (mut sent, mut passes) = (false, 0);
        until(&[&a], || {
            sent = sent || a.try_send(there, PORT, &[1]).is_ok();
            b.progress().unwrap();
            passes += 1;
            std::thread::sleep(Duration::from_micros(100));
            heard.count.load(Ordering::Relaxed) == 1
        });
        assert_eq!(a.lane(there).unwrap().0, "shm");
        // A look each millisecond, and some in a row while they meet.
        assert!(passes < 100, "{passes}");
    }

    #[test]
    fn both_call_each_other_at_once() {
        for _ in 0..50 {
            let (a, b) = (open(), open());
            let heard = [listen(&a), listen(&b)];
            let (to_b, to_a) = (
                a.add_peer(&b.address()).unwrap(),
                b.add_peer(&a.address()).unwrap(),
            );
            // Neither hears of the other's call before its own is under way.
            let mut sent = [false; 2];
            until(&[&a, &b], || {
                sent[0] = sent[0] || a.try_send(to_b, PORT, &[1]).is_ok();
                sent[1] = sent[1] || b.try_send(to_a, PORT, &[1]).is_ok();
                sent == [true; 2]
            });
            let came = |it: &Arc<Heard>| it.count.load(Ordering::Relaxed) >= 1;
            until(&[&a, &b], || heard.iter().all(came));
            assert_eq!(
                (a.lane(to_b).unwrap().0, b.lane(to_a).unwrap().0),
                ("shm", "shm")
            );
        }
    }

    #[test]
    fn who_shares_no_memory_is_reached_by_udp() {
        let heard_by = |a: Endpoint, b: Endpoint| {
            let heard = listen(&b);
            let there = a.add_peer(&b.address()).unwrap();
            a.send(there, PORT, &[1]).unwrap();
            until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
            assert_eq!(a.lane(there).unwrap().0, "udp");
            let back = heard.from.load(Ordering::Relaxed);
            let heard = listen(&a);
            b.send(back, PORT, &[1]).unwrap();
            until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
            assert_eq!(b.lane(back).unwrap().0, "udp");
        };
        let by_udp = || {
            let config = Config::default().set("interface", "lo").set("link", "udp");
            Endpoint::open_standalone(config).unwrap()
        };
        heard_by(open(), by_udp());
        heard_by(by_udp(), open());
    }

    #[test]
    fn who_is_removed_and_added_again_at_once_shares_memory_each_time() {
        let over = AtomicU32::new(0);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|all| {
            all.spawn(|| {
                let b = open();
                let binding = Binding::to(|context, m| {
                    // It may be removed by then.
                    let _ = context.reply(&[], m.payload);
                });
                b.bind(PORT, binding).unwrap();
                tell.send(b.address()).unwrap();
                until(&[&b], || over.load(Ordering::Relaxed) > 0);
            });
            let address = told.recv().unwrap();
            let a = open();
            let heard = listen(&a);
            for round in 1..=200 {
                let there = a.add_peer(&address).unwrap();
                a.send(there, PORT, &[1]).unwrap();
                assert_eq!(a.lane(there).unwrap().0, "shm", "in round {round}");
                // Every third is removed before it has answered.
                if round % 3 > 0 {
                    let before = heard.count.load(Ordering::Relaxed);
                    until(&[&a], || heard.count.load(Ordering::Relaxed) > before);
                }
                a.remove_peer(there).unwrap();
            }
            over.store(1, Ordering::Relaxed);
        });
    }
}
