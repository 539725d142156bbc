//! Benches of endpoints without a launcher: the shape of what they report. The part between
//! hosts of a lab needs root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::figures::{bench, bench_as_asked, bench_for, check_rows, figures, set, texts};
use crate::common::{TestLab, say};

#[test]
fn endpoints_without_a_launcher_stand_beside_the_job() {
    let arguments = ["latency", "--link", "udp", "--standalone", "--vs", "udp"];
    let (json, _) = bench("standalone", &arguments);
    check_rows(&json);
    let systems = ["portolan-udp", "portolan-standalone", "kernel-udp"];
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    assert_eq!(texts(&json, "ratios", "over"), set(&systems[1..]));
    for security in ["encrypt", "none"] {
        let arguments = ["rate", "--link", "udp", "--standalone", "--wait", "block"];
        let arguments = [&arguments[..], &["--security", security]].concat();
        let (json, _) = bench_for("20", &format!("standalone-{security}"), &arguments);
        check_rows(&json);
        assert_eq!(texts(&json, "rows", "security"), set(&[security]));
    }
    let (json, _) = bench(
        "standalone-shm",
        &["latency", "--link", "shm", "--standalone"],
    );
    check_rows(&json);
    let systems = ["portolan-shm", "portolan-standalone"];
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    assert_eq!(texts(&json, "rows", "link"), set(&["shm"]));
}

#[test]
fn connecting_stands_beside_tcp_and_tls() {
    let arguments = ["connect", "--slices", "2", "--count", "3", "--peers", "100"];
    let (json, _) = bench_as_asked("connect", &arguments);
    check_rows(&json);
    let systems = figures(&json, "connect_us");
    let names: Vec<&str> = systems.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["portolan-standalone", "kernel-tcp", "kernel-tls"]);
    assert_eq!(
        texts(&json, "ratios", "over"),
        set(&["kernel-tcp", "kernel-tls"])
    );
    for metric in ["open_us", "add_peer_us", "remove_peer_us"] {
        let rows = figures(&json, metric);
        assert_eq!((rows.len(), rows[0].0.as_str()), (1, "portolan-standalone"));
    }
    for wrong in [["--link", "shm"], ["--slice-ms", "5"]] {
        let said = say(&[&["bench", "connect"][..], &wrong].concat()).expect(2);
        said.complains(&["bench connect", wrong[0]]);
    }
}

#[test]
fn endpoints_without_a_launcher_connect_between_hosts() {
    let lab = TestLab::up(TestLab::own("t-bl-conn"), "2");
    let count = ["--slices", "2", "--count", "2", "--peers", "100"];
    let arguments = [&["connect", "--lab", lab.0], &count[..]].concat();
    let (json, _) = bench_as_asked("connect-lab", &arguments);
    check_rows(&json);
    let systems = ["portolan-standalone", "kernel-tcp", "kernel-tls"];
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    let (json, _) = bench("alone-lab", &["latency", "--lab", lab.0, "--standalone"]);
    check_rows(&json);
    assert_eq!(
        texts(&json, "rows", "system"),
        set(&["portolan-udp", "portolan-standalone"])
    );
    let arguments = ["latency", "--lab", lab.0, "--link", "xdp", "--standalone"];
    let (json, _) = bench("alone-xdp", &arguments);
    check_rows(&json);
    assert_eq!(
        texts(&json, "rows", "system"),
        set(&["portolan-xdp", "portolan-standalone"])
    );
    assert_eq!(texts(&json, "rows", "link"), set(&["xdp"]));
    // What a host's service pins lies in that host, and goes with it.
    for host in 0..2 {
        let network = fs::metadata(format!("/run/netns/ptl-{}-h{host}", lab.0)).unwrap();
        let pins = format!("/sys/fs/bpf/portolan/net-{}", network.ino());
        assert!(!Path::new(&pins).exists(), "{pins}");
    }
}
