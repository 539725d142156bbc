//! Benches of what a lab's switch, cables and strangers do: the shape of what
//! they report, and what must hold however busy the machine is. They need root.

use crate::common::figures::{bench, bench_as_asked, bench_for, check_rows, set, texts};
use crate::common::{TestLab, say};
use serde_json::Value;

/// The only row of a system with this metric and with this beside it.
fn row<'a>(json: &'a Value, system: &str, metric: &str, beside: Option<&str>) -> &'a Value {
    let rows = json["rows"].as_array().unwrap();
    let fits = |row: &&Value| {
        row["system"] == system && row["metric"] == metric && row["beside"].as_str() == beside
    };
    let found: Vec<&Value> = rows.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{system} {metric} {beside:?}: {json}");
    found[0]
}

fn number(row: &Value, field: &str) -> f64 {
    row[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field}: {row}"))
}

/// Packets that were dropped for a reason, in the first part of a flood.
fn dropped(table: &str, reason: &str) -> u64 {
    let (_, rest) = table.split_once(&format!("{reason} ")).unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

#[test]
fn all_networks_stand_beside_the_first() {
    let options = ["--switches", "2", "--rate", "100mbit", "--buffer", "64k"];
    let lab = TestLab::with(TestLab::own("t-bl-nets"), &options);
    let arguments = ["networks", "--lab", lab.0, "--size", "256K"];
    let (json, _) = bench_for("30", "networks", &arguments);
    check_rows(&json);
    assert_eq!(texts(&json, "rows", "interface"), set(&["eth0", "all"]));
    for row in json["rows"].as_array().unwrap() {
        // A line's bytes in a second, for each network.
        let lines = if row["interface"] == "all" { 2.0 } else { 1.0 };
        assert!(number(row, "p50") < 12.5 * lines, "{row}");
        assert_eq!((&row["ranks"], &row["link"]), (&2.into(), &"udp".into()));
    }
    let claims = texts(&json, "ratios", "metric");
    assert!(claims.contains("bandwidth_mb_s_networks"), "{claims:?}");
    let single = TestLab::up(TestLab::own("t-bl-one"), "2");
    for (arguments, word) in [
        (&[][..], "--lab"),
        (&["--lab", single.0], "--switches 2"),
        (&["--lab", lab.0, "--link", "xdp"], "--link udp"),
        (&["--lab", lab.0, "--interface", "eth1"], "two networks"),
    ] {
        let said = say(&[&["bench", "networks"], arguments].concat());
        assert!(said.code != 0 && said.err.contains(word), "{said:?}");
    }
}

#[test]
fn shared_memory_stands_beside_a_peer_elsewhere() {
    let lab = TestLab::up(TestLab::own("t-bl-lanes"), "2");
    let (json, _) = bench("lanes", &["lanes", "--lab", lab.0]);
    check_rows(&json);
    let [alone, beside] =
        [None, Some("an xdp peer")].map(|beside| row(&json, "portolan-shm", "latency_us", beside));
    assert_eq!((&alone["ranks"], &beside["ranks"]), (&2.into(), &3.into()));
    let claims = texts(&json, "ratios", "metric");
    assert_eq!(claims, set(&["latency_us_beside"]));
    say(&["bench", "lanes", "--lab", lab.0, "--link", "udp"])
        .expect(2)
        .complains(&["--link"]);
}

#[test]
fn shares_of_a_line_are_no_more_than_the_line() {
    let options = ["--rate", "100mbit", "--buffer", "64k"];
    let lab = TestLab::with(TestLab::own("t-bl-fair"), &options);
    for (link, congestion) in [("udp", "lan"), ("xdp", "shared")] {
        let slices = ["--slices", "1", "--span-ms", "300"];
        let how = ["--link", link, "--congestion", congestion, "--tcp", "reno"];
        let arguments = [&["fairness", "--lab", lab.0][..], &slices, &how].concat();
        let (json, _) = bench_as_asked("fairness", &arguments);
        let ours = format!("portolan-{link}");
        let share = |system, beside| {
            let share = number(row(&json, system, "link_share", beside), "p50");
            let mb_s = number(row(&json, system, "goodput_mb_s", beside), "p50");
            assert!((mb_s / 12.5 - share).abs() < 1e-6, "{json}");
            assert!(share < 1.0, "{json}");
            share
        };
        assert!(share(&ours, None) > 0.0 && share("kernel-tcp", None) > 0.0);
        let both = share(&ours, Some("kernel-tcp")) + share("kernel-tcp", Some(&ours));
        assert!((0.1..1.02).contains(&both), "{json}");
        assert_eq!(json["rows"][0]["congestion"], congestion);
        let tcp = row(&json, "kernel-tcp", "link_share", None);
        assert_eq!(tcp["congestion"], "reno");
        assert_eq!(texts(&json, "ratios", "over"), set(&["line"]));
    }
    say(&["bench", "fairness", "--lab", lab.0, "--tcp", "none-such"])
        .expect(1)
        .complains(&["none-such", "tcp_available_congestion_control"]);
    let free = TestLab::up(TestLab::own("t-bl-free"), "2");
    say(&["bench", "fairness", "--lab", free.0])
        .expect(2)
        .complains(&["--rate"]);
}

#[test]
fn nothing_is_lost_when_a_cable_is_out_for_a_moment() {
    let lab = TestLab::up(TestLab::own("t-bl-out"), "2");
    for link in ["udp", "xdp"] {
        let slices = ["--slices", "1", "--down-ms", "300", "--vs", "tcp"];
        let arguments = [&["outage", "--lab", lab.0, "--link", link][..], &slices].concat();
        let (json, table) = bench_as_asked("outage", &arguments);
        let ours = format!("portolan-{link}");
        for metric in ["messages_lost", "messages_again"] {
            let row = row(&json, &ours, metric, None);
            assert_eq!(number(row, "worst"), 0.0, "{row}");
        }
        for system in [&ours, "kernel-tcp"] {
            let row = row(&json, system, "resume_ms", None);
            assert!(number(row, "p50") > 0.0 && row["n"] == 1, "{row}");
        }
        assert!(table.contains("0 were lost and 0 came again"), "{table}");
        assert_eq!(lab.status()["hosts"][1]["up"], true);
    }
    say(&["bench", "outage", "--lab", lab.0, "--vs", "udp"])
        .expect(2)
        .complains(&["--vs tcp"]);
}

#[test]
fn a_flood_of_forged_packets_changes_nothing() {
    let lab = TestLab::up(TestLab::own("t-bl-forged"), "3");
    for link in ["udp", "xdp"] {
        let flood = ["--per-second", "2000", "--size", "200"];
        let arguments = [&["forged", "--lab", lab.0, "--link", link][..], &flood].concat();
        let (json, table) = bench_for("30", "forged", &arguments);
        let ours = format!("portolan-{link}");
        let beside = Some("forged packets");
        let sent = row(&json, &ours, "forged_packets_s", beside);
        assert!(number(sent, "n") > 0.0, "{sent}");
        // No answer is larger than the question.
        let answered = row(&json, &ours, "answered_share", beside);
        assert!(number(answered, "p50") <= 1.0, "{answered}");
        for metric in ["bandwidth_mb_s", "latency_us"] {
            for beside in [None, beside] {
                assert!(number(row(&json, &ours, metric, beside), "p50") > 0.0);
            }
        }
        let claims = texts(&json, "ratios", "metric");
        assert_eq!(claims, set(&["goodput_kept", "latency_us_beside"]));
        assert!(table.contains("no peer made or changed"), "{table}");
        // Half have a wrong tag, of the right connection or in a peer's name;
        // a quarter are for connections that nobody has.
        let [tag, unknown, filtered] =
            ["tag", "connection", "reached the rank"].map(|reason| dropped(&table, reason));
        assert!(
            tag > unknown + filtered && unknown + filtered > 0,
            "{table}"
        );
    }
    let small = TestLab::up(TestLab::own("t-bl-few"), "2");
    say(&["bench", "forged", "--lab", small.0])
        .expect(2)
        .complains(&["--hosts 3"]);
}

#[test]
fn a_barrier_goes_by_the_link_that_is_asked_for() {
    let lab = TestLab::up(TestLab::own("t-bl-bar"), "2");
    let short = ["--slices", "1", "--slice-ms", "2", "-n", "4"];
    // Two ranks share each host, and its memory unless a link is asked for.
    for (link, by) in [("auto", "shm"), ("udp", "udp"), ("xdp", "xdp")] {
        let arguments = ["barrier", "--lab", lab.0, "--link", link];
        let (json, _) = bench_as_asked("barrier-lab", &[&arguments[..], &short].concat());
        assert_eq!(texts(&json, "rows", "link"), set(&[by]), "{link}");
    }
    let arguments = ["bench", "barrier", "--lab", lab.0, "--link", "shm"];
    say(&arguments).expect(2).complains(&["--link shm"]);
}

#[test]
fn a_start_by_host_ports_stands_beside_one_by_udp() {
    let lab = TestLab::up(TestLab::own("t-bl-start"), "2");
    let arguments = ["start", "--lab", lab.0, "--link", "xdp", "-n", "2"];
    let slices = ["--slices", "2"];
    let (json, _) = bench_as_asked("start-lab", &[&arguments[..], &slices].concat());
    check_rows(&json);
    let systems = texts(&json, "rows", "system");
    assert_eq!(systems, set(&["portolan-xdp", "portolan-udp"]));
    for metric in ["start_ms", "job_ms"] {
        let row = row(&json, "portolan-xdp", metric, None);
        assert!(number(row, "p50") <= number(row, "worst"), "{row}");
    }
    let ratios = json["ratios"].as_array().unwrap();
    let pairs = |r: &Value| r["system"] == "portolan-xdp" && r["over"] == "portolan-udp";
    assert!(ratios.len() == 2 && ratios.iter().all(pairs), "{ratios:?}");
}
