//! Tests the client against servers that play a script.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use super::wire::Format;
use super::*;

/// A server that reads each request and writes its answer, then closes. Bytes
/// of an answer are written as they stand.
fn server(script: Vec<(&'static str, Vec<u8>)>) -> (Stream, JoinHandle<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let play = move || {
        for (request, answer) in script {
            let mut got = vec![0; request.len()];
            theirs.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), request);
            // A client that needs no more has gone.
            let _ = theirs.write_all(&answer);
        }
    };
    (Stream::new(ours.into()), thread::spawn(play))
}

const GREET_1: &str = "cmd=init pmi_version=1 pmi_subversion=1\n";
const GREET_2: &str = "cmd=init pmi_version=2 pmi_subversion=0\n";
const FULL: &str = "    51cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;";

fn line(text: &str) -> Vec<u8> {
    format!("{text}\n").into_bytes()
}

fn frame(text: &str) -> Vec<u8> {
    format!("{:6}{text}", text.len()).into_bytes()
}

/// The greeting of mpiexec.hydra.
fn greeted_1() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (
            GREET_1,
            line("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        ),
        (
            "cmd=get_maxes\n",
            line("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"),
        ),
        (
            "cmd=get_my_kvsname\n",
            line("cmd=my_kvsname kvsname=kvs_1_0_2_vm"),
        ),
    ]
}

/// The greeting of Slurm.
fn greeted_2() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (
            GREET_2,
            line("cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0"),
        ),
        (
            FULL,
            frame(
                "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=-1;debugged=FALSE;pmiverbose=FALSE;",
            ),
        ),
    ]
}

fn then(
    mut before: Vec<(&'static str, Vec<u8>)>,
    request: &'static str,
    answer: &[u8],
) -> Vec<(&'static str, Vec<u8>)> {
    before.push((request, answer.to_vec()));
    before
}

fn open(script: Vec<(&'static str, Vec<u8>)>, job: Option<&str>) -> Result<Pmi, PmiError> {
    let (stream, server) = server(script);
    let opened = Pmi::over(stream, 1, 2, job);
    if opened.is_err() {
        server.join().unwrap();
    }
    opened
}

#[test]
fn the_whole_of_version_one() {
    let mut script = greeted_1();
    for (request, answer) in [
        (
            "cmd=put kvsname=kvs_1_0_2_vm key=a-1 value=beef\n",
            line("cmd=put_result rc=0 msg=success"),
        ),
        ("cmd=barrier_in\n", line("cmd=barrier_out")),
        (
            "cmd=get kvsname=kvs_1_0_2_vm key=a-0\n",
            line("cmd=get_result rc=0 msg=success value=cafe"),
        ),
        (
            "cmd=get kvsname=kvs_1_0_2_vm key=b-0\n",
            line("cmd=get_result rc=-1 msg=key_b-0_not_found value=unknown"),
        ),
        ("cmd=abort exitcode=3\n", Vec::new()),
        ("cmd=finalize\n", line("cmd=finalize_ack")),
    ] {
        script.push((request, answer));
    }
    let mut pmi = open(script, None).unwrap();
    pmi.put("a-1", "beef").unwrap();
    pmi.fence(BRIEF).unwrap();
    assert_eq!(pmi.get(0, "a-0").unwrap(), "cafe");
    assert!(matches!(pmi.get(0, "b-0"), Err(PmiError::NotThere { key }) if key == "b-0"));
    pmi.abort(3).unwrap();
    pmi.finalize().unwrap();
}

#[test]
fn the_whole_of_version_two() {
    let mut script = greeted_2();
    for (request, answer) in [
        (
            "    31cmd=kvs-put;key=a-1;value=beef;",
            b"26    cmd=kvs-put-response;rc=0;".to_vec(),
        ),
        (
            "    14cmd=kvs-fence;",
            frame("cmd=kvs-fence-response;rc=0;"),
        ),
        (
            "    20cmd=kvs-get;key=a-0;",
            frame("cmd=kvs-get-response;rc=0;found=TRUE;value=cafe;"),
        ),
        (
            "    20cmd=kvs-get;key=b-0;",
            frame("cmd=kvs-get-response;rc=0;found=FALSE;"),
        ),
        ("    37cmd=abort;isworld=TRUE;msg=asked-for;", Vec::new()),
        ("    13cmd=finalize;", frame("cmd=finalize-response;rc=0;")),
    ] {
        script.push((request, answer));
    }
    let mut pmi = open(script, Some("7.0")).unwrap();
    pmi.put("a-1", "beef").unwrap();
    pmi.fence(BRIEF).unwrap();
    assert_eq!(pmi.get(0, "a-0").unwrap(), "cafe");
    assert!(matches!(pmi.get(0, "b-0"), Err(PmiError::NotThere { .. })));
    pmi.abort(3).unwrap();
    pmi.finalize().unwrap();
}

#[test]
fn over_a_port_the_server_says_who_one_is() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let hello = b"cmd=initack pmiid=5\n";
        let mut got = vec![0; hello.len()];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(got, hello);
        // Lines arrive in pieces, and several in one.
        for part in [
            "cmd=init",
            "ack\ncmd=set size=4\ncmd=set rank=3\ncmd=s",
            "et debug=0\n",
        ] {
            peer.write_all(part.as_bytes()).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        for (request, answer) in greeted_1() {
            let mut got = vec![0; request.len()];
            peer.read_exact(&mut got).unwrap();
            peer.write_all(&answer).unwrap();
        }
    });
    let found = Found {
        way: PmiTransport::Port(port, 5),
        job: None,
    };
    let pmi = Pmi::open(&found, BRIEF).unwrap();
    assert_eq!((pmi.rank, pmi.size), (3, 4));
    server.join().unwrap();
    let nobody = Found {
        way: PmiTransport::Port("127.0.0.1:1".to_owned(), 5),
        job: None,
    };
    let refused = Pmi::open(&nobody, BRIEF).unwrap_err();
    assert!(matches!(&refused, PmiError::Connect { .. }), "{refused}");
}

#[test]
fn answers_that_are_no_answers_are_malformed() {
    let long = [&b"cmd=response_to_init x="[..], &[b'y'; 9000]].concat();
    for answer in [
        &b"hello\n"[..],
        b"\n",
        b"cmd=\n",
        b"cmd=maxes rc=0\n",
        b"rc=0 cmd=response_to_init pmi_version=1\n",
        b"cmd=response_to_init rc=zero pmi_version=1\n",
        b"cmd=response_to_init rc=0\n",
        b"cmd=response_to_init rc=0 pmi_version=one\n",
        b"cmd=response_to_init rc=0 pmi_version=1 pmi_version=1\n",
        b"cmd=response_to_init rc=0 pmi_version\n",
        b"cmd=response_to_init \xff\xfe=1\n",
        &long,
    ] {
        let got = open(vec![(GREET_1, answer.to_vec())], None).unwrap_err();
        assert!(matches!(got, PmiError::Malformed { .. }), "{got}");
        assert!(got.to_string().len() < 400, "{got}");
    }
    // The lengths of version two.
    for answer in [
        &b"abcdef"[..],
        b"    -1cmd=fullinit-response;rc=0;rank=1;size=2;",
        b"999999cmd=fullinit-response;rc=0;rank=1;size=2;",
        b"     0",
        b"    43cmd=fullinit-response;rc=0;rank=1;size=2;x=",
        b"    40cmd=fullinit-response;rc=0;rank=1;size;;",
        b"    41cmd=fullinit-response;rc=0;rank=0;size=2;",
        b"    41cmd=fullinit-response;rc=0;rank=1;size=3;",
    ] {
        let mut script = greeted_2();
        script[1].1 = answer.to_vec();
        let got = open(script, Some("7.0")).unwrap_err();
        let short = matches!(got, PmiError::Gone { .. }) && answer.len() < 50;
        assert!(matches!(got, PmiError::Malformed { .. }) || short, "{got}");
    }
    for (request, answer) in [
        ("cmd=barrier_in\n", "cmd=barrier_in"),
        ("cmd=barrier_in\n", "cmd=get_result rc=0 value=1"),
    ] {
        let script = then(greeted_1(), request, &line(answer));
        let got = open(script, None).unwrap().fence(BRIEF).unwrap_err();
        assert!(matches!(got, PmiError::Malformed { .. }), "{got}");
    }
    for answer in [
        "cmd=kvs-get-response;rc=0;",
        "cmd=kvs-get-response;rc=0;found=PERHAPS;",
        "cmd=kvs-get-response;rc=0;found=TRUE;",
        "cmd=kvs-get-response;rc=0;found=TRUE;value=1",
        "cmd=kvs-put-response;rc=0;",
    ] {
        let script = then(greeted_2(), "    20cmd=kvs-get;key=a-0;", &frame(answer));
        let got = open(script, Some("7.0"))
            .unwrap()
            .get(0, "a-0")
            .unwrap_err();
        assert!(matches!(got, PmiError::Malformed { .. }), "{answer} {got}");
    }
}

#[test]
fn a_no_is_told_with_the_servers_words() {
    let no = line("cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0");
    let got = open(vec![(GREET_1, no)], None).unwrap_err();
    assert!(matches!(got, PmiError::Version { wanted: 1, .. }), "{got}");
    let other = line("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
    let got = open(vec![(GREET_2, other)], Some("7.0")).unwrap_err();
    assert!(got.to_string().contains("does not speak PMI-2"), "{got}");
    let script = then(
        greeted_1(),
        "cmd=put kvsname=kvs_1_0_2_vm key=a-1 value=1\n",
        &line("cmd=put_result rc=-1 msg=duplicate_key_a-1"),
    );
    let got = open(script, None).unwrap().put("a-1", "1").unwrap_err();
    assert!(got.to_string().contains("duplicate_key_a-1"), "{got}");
}

#[test]
fn values_that_do_not_fit_are_not_sent() {
    let mut script = greeted_1();
    script[1].1 = line("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=16");
    let mut pmi = open(script, None).unwrap();
    let got = pmi.put("a-1", "0123456789abcdef").unwrap_err();
    let fits = matches!(
        got,
        PmiError::ValueTooLong {
            bytes: 17,
            limit: 16
        }
    );
    assert!(fits, "{got}");
}

#[test]
fn a_silent_server_and_one_that_goes_hold_nobody_up() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut stream = Stream::new(ours.into());
    let timeout = Timeout::new("greeting", Duration::from_millis(30));
    stream.say(Format::One, "init", &[], timeout).unwrap();
    let got = stream.hear(Format::One, timeout).unwrap_err();
    assert!(matches!(got, PmiError::TimedOut { .. }), "{got}");
    // Half an answer.
    (&theirs).write_all(b"cmd=respon").unwrap();
    let timeout = Timeout::new(FENCE, Duration::from_millis(30));
    let got = stream.hear(Format::One, timeout).unwrap_err();
    assert!(got.to_string().contains("join_ms"), "{got}");
    drop(theirs);
    let timeout = Timeout::new("greeting", BRIEF);
    let got = stream.hear(Format::One, timeout).unwrap_err();
    assert!(matches!(got, PmiError::Gone { .. }), "{got}");
    let got = stream.say(Format::One, "init", &[], timeout).unwrap_err();
    assert!(matches!(got, PmiError::Gone { .. }), "{got}");
}

#[test]
fn the_environment_is_read_with_care() {
    let look = |pairs: &[(&str, &str)]| {
        let variable = |name| {
            let pair = pairs.iter().find(|(known, _)| *known == name);
            pair.map(|(_, value)| OsString::from(value))
        };
        Found::look(variable, |fd| fd == 6)
    };
    assert_eq!(look(&[("PMI_RANK", "1")]).unwrap(), None);
    // Without PMI several processes would be several jobs.
    for (variable, launcher) in [
        ("OMPI_COMM_WORLD_SIZE", "mpirun"),
        ("SLURM_STEP_NUM_TASKS", "srun without"),
    ] {
        assert_eq!(look(&[(variable, "1")]).unwrap(), None);
        let pmi = [("PMI_PORT", "h0:1"), ("PMI_ID", "0"), (variable, "2")];
        assert!(look(&pmi).unwrap().is_some());
        let why = look(&[(variable, "2")]).unwrap_err().to_string();
        for part in [launcher, variable, "portolan run", "mpiexec.hydra"] {
            assert!(why.contains(part), "{why}");
        }
    }
    let all = [("PMI_FD", "6"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    let found = look(&all).unwrap().unwrap();
    assert_eq!(
        (found.way, found.job),
        (PmiTransport::Inherited(6, 1, 2), None)
    );
    let found = look(&[&all[..], &[("PMI_JOBID", "7.0")]].concat()).unwrap();
    assert_eq!(found.unwrap().job.as_deref(), Some("7.0"));
    let found = look(&[("PMI_PORT", "h0:1234"), ("PMI_ID", "3")]).unwrap();
    assert_eq!(
        found.unwrap().way,
        PmiTransport::Port("h0:1234".to_owned(), 3)
    );
    for (pairs, name) in [
        (
            &[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")][..],
            "PMI_FD=\"x\"",
        ),
        (
            &[("PMI_FD", "-1"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")],
            "PMI_FD",
        ),
        (&[("PMI_FD", "6"), ("PMI_SIZE", "1")], "PMI_RANK is not set"),
        (
            &[("PMI_FD", "6"), ("PMI_RANK", "0"), ("PMI_SIZE", "many")],
            "PMI_SIZE=\"many\"",
        ),
        (&[("PMI_PORT", "h0:1234")], "PMI_ID is not set"),
        (&[all[0], all[1], all[2], ("PMI_JOBID", "a;b")], "PMI_JOBID"),
        (&[("PMIX_NAMESPACE", "job")], "PMIX_RANK is not set"),
    ] {
        let got = look(pairs).unwrap_err().to_string();
        assert!(got.contains(name) && got.contains("to run alone"), "{got}");
    }
    for (rank, size) in [(0, 0), (2, 2), (0, RANKS_MAX + 1)] {
        let (stream, _) = server(Vec::new());
        assert!(matches!(
            Pmi::over(stream, rank, size, None),
            Err(PmiError::Variable {
                name: "PMI_SIZE",
                ..
            })
        ));
    }
    // Precedence among launchers: the one whose descriptor is open, then PMI, then PMIx.
    let pmix = [("PMIX_NAMESPACE", "job"), ("PMIX_RANK", "0")];
    let way = |pairs: &[&[(&str, &str)]]| look(&pairs.concat()).unwrap().unwrap().way;
    let port = [("PMI_PORT", "h0:1"), ("PMI_ID", "0")];
    let closed = [("PMI_FD", "7"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")];
    let several = [("OMPI_COMM_WORLD_SIZE", "2")];
    assert_eq!(way(&[&pmix, &several]), PmiTransport::Library);
    assert_eq!(way(&[&pmix, &all, &port]), PmiTransport::Inherited(6, 1, 2));
    assert_eq!(way(&[&pmix, &closed]), PmiTransport::Library);
    assert_eq!(
        way(&[&pmix, &closed, &port]),
        PmiTransport::Port("h0:1".to_owned(), 0)
    );
    assert_eq!(way(&[&closed]), PmiTransport::Inherited(7, 0, 2));
    // This descriptor is not open.
    assert!(matches!(inherited(9999), Err(PmiError::NoDescriptor(9999))));
}
