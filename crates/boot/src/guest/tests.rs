//! Jobs of guests: threads stand for processes, a small server for the launcher's.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use super::card::tests::card;
use super::*;

fn options() -> GuestOptions {
    GuestOptions {
        security: Security::Encrypt,
        suite: Suite::Aes128Gcm,
        link: LinkChoice::Auto,
        congestion: Congestion::Auto,
        mix: None,
        addresses: Vec::new(),
        watches: true,
        agent: None,
        host_silence: Duration::from_secs(2),
        join_timeout: Duration::from_secs(20),
        library_timeout: Duration::from_secs(20),
    }
}

/// A PMI-1 server for one process; all share the key-value space.
fn serve(peer: UnixStream, space: Arc<Mutex<HashMap<String, String>>>, all: Arc<Barrier>) {
    let mut answers = peer.try_clone().unwrap();
    for line in BufReader::new(peer).lines() {
        let line = line.unwrap();
        let value = |key: &str| {
            let mut words = line.split(' ');
            words
                .find_map(|word| word.strip_prefix(&format!("{key}=")))
                .unwrap()
        };
        let answer = match value("cmd") {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=all".to_owned(),
            "put" => {
                let (key, value) = (value("key").to_owned(), value("value").to_owned());
                assert!(space.lock().unwrap().insert(key, value).is_none());
                "cmd=put_result rc=0".to_owned()
            }
            "barrier_in" => {
                all.wait();
                "cmd=barrier_out".to_owned()
            }
            "get" => match space.lock().unwrap().get(value("key")) {
                Some(value) => format!("cmd=get_result rc=0 value={value}"),
                None => "cmd=get_result rc=-1".to_owned(),
            },
            "finalize" => "cmd=finalize_ack".to_owned(),
            other => panic!("{other}"),
        };
        writeln!(answers, "{answer}").unwrap();
    }
}

type Outcome = Result<(Membership, Hidden<32>, bool, Vec<PeerInfo>), BootError>;

/// Runs a job with one process for each of the options; also returns all that
/// passed through the server.
fn run(each: Vec<GuestOptions>) -> (Vec<Outcome>, HashMap<String, String>) {
    let size = each.len() as u32;
    let space = Arc::new(Mutex::new(HashMap::new()));
    let all = Arc::new(Barrier::new(each.len()));
    let threads: Vec<_> = (0..)
        .zip(each)
        .map(|(rank, options)| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (space, all) = (Arc::clone(&space), Arc::clone(&all));
            thread::spawn(move || serve(theirs, space, all));
            thread::spawn(move || {
                let pmi = Pmi::of_stream(ours.into(), rank, size)?;
                let make = &mut |_| Ok(std::fs::File::open("/dev/null")?.into());
                let mut joined = Guest::over(pmi, &options, make)?;
                let shares = joined.shared.is_some();
                let table = joined.guest.exchange([rank as u8; 64], shares)?.table;
                joined.guest.leave();
                Ok((joined.membership, joined.secret, shares, table))
            })
        })
        .collect();
    let outcomes = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let space = space.lock().unwrap().clone();
    (outcomes, space)
}

#[test]
fn processes_find_each_other() {
    let (outcomes, space) = run(vec![options(); 3]);
    let mut jobs = Vec::new();
    for (rank, outcome) in (0..).zip(outcomes) {
        let (membership, secret, shares, table) = outcome.unwrap();
        assert_eq!((membership.rank, membership.size), (rank, 3));
        assert_eq!(membership.local_ranks, [0, 1, 2]);
        assert_eq!(
            (membership.hosts, u32::from(membership.local_index)),
            (1, rank)
        );
        assert!(shares);
        for (other, peer) in (0..).zip(&table) {
            assert_eq!((peer.address[0], peer.address[63]), (other, other));
            assert_eq!((peer.host_index, peer.local_index), (0, other.into()));
            assert_eq!(peer.pid, std::process::id());
        }
        // The secret that stands in for a job's stays here.
        let shown = hex(&secret[..]);
        assert!(space.values().all(|value| !value.contains(&shown)));
        jobs.push((membership.job_id, *secret));
    }
    assert!(jobs.iter().all(|job| job.0 == jobs[0].0));
    assert!(jobs[0].1 != jobs[1].1 && jobs[1].1 != jobs[2].1);
    assert_eq!(space.len(), 6);
}

/// Checks P3.13.
#[test]
fn settings_that_differ_are_told() {
    for (change, setting) in [
        (
            (|o| o.security = Security::None) as fn(&mut GuestOptions),
            "PORTOLAN_SECURITY",
        ),
        (|o| o.suite = Suite::ChaCha20Poly1305, "PORTOLAN_SUITE"),
        (|o| o.link = LinkChoice::Udp, "PORTOLAN_LINK"),
        (|o| o.congestion = Congestion::Lan, "PORTOLAN_CONGESTION"),
        (
            |o| o.mix = Some(Arc::new(Hidden::copy_of(&[1; 32]).unwrap())),
            "PORTOLAN_JOB_SECRET_FILE",
        ),
    ] {
        let mut other = options();
        change(&mut other);
        let (outcomes, _) = run(vec![options(), other]);
        for outcome in outcomes {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(setting), "{error}");
        }
    }
}

#[test]
fn without_watching_memory_is_not_shared() {
    let mut blind = options();
    blind.watches = false;
    let (outcomes, _) = run(vec![blind.clone(), blind]);
    assert!(outcomes.into_iter().all(|outcome| !outcome.unwrap().2));
}

#[test]
fn hosts_are_numbered_as_they_come() {
    let cards: Vec<Card> = [9, 4, 9, 9, 4, 1].map(|host| card(host, &[])).to_vec();
    let (places, hosts) = places(&cards);
    assert_eq!(hosts, 3);
    assert_eq!(places, [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (2, 0)]);
}

/// Checks P3.13.
#[test]
fn versions_must_agree() {
    let (ours, mut theirs) = (card(1, &[]), card(2, &[]));
    assert_eq!(agree(1, &theirs, &ours), Ok(()));
    theirs.versions.wire += 1;
    let error = agree(1, &theirs, &ours).unwrap_err();
    assert!(
        error.to_string().contains("mixed versions: rank 1"),
        "{error}"
    );
}

/// Checks P3.14.
#[test]
fn what_is_told_has_65_or_99_bytes() {
    for (agent, length) in [(None, 65), (Some((513, [9; 32])), 99)] {
        let told = Told {
            address: [7; 64],
            shares: true,
            agent,
        };
        let bytes = told.encode();
        assert_eq!(bytes.len(), length);
        let read = Told::decode(&bytes).unwrap();
        assert_eq!(
            (read.address, read.shares, read.agent),
            ([7; 64], true, agent)
        );
    }
    for length in (0..=120).filter(|length| ![65, 99].contains(length)) {
        assert!(Told::decode(&vec![1; length]).is_none(), "{length}");
    }
}
