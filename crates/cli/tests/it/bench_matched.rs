//! `portolan bench` of matched messages: the shape of what it reports, and what
//! must hold however busy the machine is. The parts in a lab need root.

use crate::common::figures::{
    bench, bench_as_asked, bench_for, check_rows, set, texts, until_undisturbed,
};
use crate::common::{TestLab, say};
use serde_json::Value;

/// The only row with these fields.
fn row<'a>(json: &'a Value, fields: &[(&str, Value)]) -> &'a Value {
    let rows = json["rows"].as_array().unwrap();
    let fits = |row: &&Value| fields.iter().all(|(field, value)| row[*field] == *value);
    let found: Vec<&Value> = rows.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{fields:?}: {json}");
    found[0]
}

/// One slice, of which all figures are the same slice's.
fn bench_once(name: &str, arguments: &[&str]) -> (Value, String) {
    bench_as_asked(
        name,
        &[arguments, &["--slices", "1", "--slice-ms", "2"]].concat(),
    )
}

fn median(row: &Value) -> f64 {
    row["p50"].as_f64().unwrap()
}

#[test]
fn modes_stand_beside_each_other_and_a_port() {
    let arguments = ["pushpull", "--link", "udp", "--size", "8,40K"];
    let (json, table) = bench_once("pushpull", &arguments);
    check_rows(&json);
    let systems = ["portolan-udp", "portolan-udp-port"];
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    let modes = ["none", "masking", "overlap", "both"];
    assert_eq!(texts(&json, "rows", "push"), set(&modes));
    let metrics = ["latency_us", "bandwidth_mb_s"];
    assert_eq!(texts(&json, "rows", "metric"), set(&metrics));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * (modes.len() + 1));
    for of in rows.iter().filter(|row| row["metric"] == "latency_us") {
        let method = of["method"].as_str().unwrap();
        assert!(method.contains("middle 80 %"), "{of}");
        // One figure in two units.
        let same = [
            ("system", of["system"].clone()),
            ("size", of["size"].clone()),
            ("push", of["push"].clone()),
            ("metric", "bandwidth_mb_s".into()),
        ];
        let size = of["size"].as_f64().unwrap();
        let product = median(row(&json, &same)) * median(of);
        assert!((product / size - 1.0).abs() < 1e-6, "{of}");
    }
    // Every mode over none of them, and over the port.
    let ratios = json["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 2 * (3 + 4));
    let over_none = |ratio: &&Value| ratio["metric"] == "latency_us_push";
    assert_eq!(ratios.iter().filter(over_none).count(), 2 * 3);
    assert!(
        table.contains("portolan-udp / portolan-udp-port"),
        "{table}"
    );
    assert!(table.contains("masking"), "{table}");
}

#[test]
fn thresholds_are_as_they_were_asked_for() {
    let thresholds = ["--first", "100", "--second", "2K", "--whole", "512"];
    let arguments = [
        "pushpull", "--link", "udp", "--size", "40K", "--modes", "both",
    ];
    let (json, _) = bench("pushpull-few", &[&arguments[..], &thresholds].concat());
    check_rows(&json);
    let method = json["rows"][0]["method"].as_str().unwrap();
    assert!(
        method.contains("whole 512, first 100, second 2048"),
        "{method}"
    );
}

#[test]
fn who_copies_is_set_against_pulling() {
    let copies = ["--copies", "pushed,pulled,shared"];
    let arguments = ["pushpull", "--link", "shm", "--size", "128,64K"];
    let (json, table) = bench("pushpull-copies", &[&arguments[..], &copies].concat());
    check_rows(&json);
    assert_eq!(
        texts(&json, "rows", "push"),
        set(&copies[1].split(',').collect::<Vec<_>>())
    );
    // What the endpoint's thresholds would say of these sizes does not count.
    for row in json["rows"].as_array().unwrap() {
        let (push, method) = (row["push"].as_str(), row["method"].as_str().unwrap());
        let nothing = "whole 0, first 0, second 0 bytes";
        let whole = push.map(|it| method.contains(nothing) == (it != "pushed"));
        assert_ne!(whole, Some(false), "{row}");
    }
    let ratios = json["ratios"].as_array().unwrap();
    let over_pulled = |ratio: &&Value| ratio["metric"] == "latency_us_copies";
    let over_pulled: Vec<&Value> = ratios.iter().filter(over_pulled).collect();
    assert_eq!(over_pulled.len(), 2 * 2, "{table}");
    for (wrong, told) in [
        (
            &["--copies", "shared", "--link", "udp"][..],
            "ways of shared memory",
        ),
        (
            &["--copies", "shared", "--whole", "0"],
            "cannot be used with",
        ),
    ] {
        say(&[&["bench", "pushpull"][..], wrong].concat())
            .expect(2)
            .complains(&[told]);
    }
}

#[test]
fn shared_memory_stands_beside_other_mpis_and_memcpy() {
    let vs = ["--vs", "openmpi,mpich,memcpy", "--buffers", "warm,cold"];
    let arguments = ["pushpull", "--link", "shm", "--size", "8,64K"];
    let (json, table) = bench_once("pushpull-vs", &[&arguments[..], &vs].concat());
    check_rows(&json);
    let ours = ["portolan-shm", "portolan-shm-port"];
    let systems = [&ours[..], &["openmpi", "mpich", "memcpy"]].concat();
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    assert_eq!(texts(&json, "rows", "buffers"), set(&["warm", "cold"]));
    // Over shared memory masking and overlap change nothing.
    assert_eq!(texts(&json, "rows", "push"), set(&["both"]));
    let over = ["openmpi", "mpich", "best-mpi", "memcpy", ours[1]];
    assert_eq!(texts(&json, "ratios", "over"), set(&over));
    let ratios = json["ratios"].as_array().unwrap();
    // Each case over four in two metrics, and warm over the port.
    assert_eq!(ratios.len(), 4 * 4 * 2 + 2);
    let of = |metric: &str| {
        let fits = |ratio: &&Value| {
            ratio["over"] == "best-mpi"
                && ratio["metric"] == metric
                && ratio["size"] == 65_536
                && ratio["buffers"] == "cold"
        };
        ratios.iter().find(fits).unwrap()["median"]
            .as_f64()
            .unwrap()
    };
    let product = of("latency_us") * of("bandwidth_mb_s");
    assert!((product - 1.0).abs() < 1e-6, "{table}");
}

#[test]
fn a_sweep_says_which_thresholds_are_best() {
    let arguments = ["pushpull", "--link", "udp", "--sweep", "--size", "40K"];
    let (json, table) = bench("pushpull-sweep", &arguments);
    check_rows(&json);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 15);
    let firsts = rows.iter().filter(|row| row["first"] == 256);
    assert_eq!(firsts.count(), 2 * 5);
    let best = rows
        .iter()
        .filter(|row| row["metric"] == "latency_us")
        .min_by(|a, b| median(a).total_cmp(&median(b)))
        .unwrap();
    let said = format!(
        "fastest with --first {} --second {}",
        best["first"], best["second"]
    );
    assert!(table.contains(&said), "{said}: {table}");
    assert_eq!(json["ratios"].as_array().unwrap().len(), 14);
    let metrics = texts(&json, "ratios", "metric");
    assert_eq!(metrics, set(&["latency_us_thresholds"]));
}

#[test]
fn receivers_are_early_and_late() {
    for link in ["shm", "udp"] {
        let arguments = ["early-late", "--link", link, "--size", "8,40K"];
        let (json, table) = bench(&format!("early-late-{link}"), &arguments);
        check_rows(&json);
        let strategies = ["push-zero", "push-pull", "push-all"];
        assert_eq!(texts(&json, "rows", "push"), set(&strategies));
        assert_eq!(texts(&json, "rows", "receiver"), set(&["early", "late"]));
        let buffers = texts(&json, "rows", "pushed_buffer");
        assert_eq!(buffers, set(&["4096", "default"]));
        assert_eq!(texts(&json, "rows", "metric"), set(&["exchange_us"]));
        assert_eq!(json["rows"].as_array().unwrap().len(), 2 * 3 * 2 * 2);
        let over = ["push-zero", "push-all", "better-push", "early-receiver"];
        assert_eq!(texts(&json, "ratios", "over"), set(&over));
        let ratios = json["ratios"].as_array().unwrap();
        assert_eq!(ratios.len(), 2 * 2 * (2 * 3 + 1));
        for of in ratios.iter().filter(|it| it["over"] == "early-receiver") {
            assert_eq!(of["metric"], "bandwidth_mb_s", "{of}");
            let how = ["push", "receiver"].map(|field| of[field].as_str());
            assert_eq!(how, [Some("push-pull"), Some("late")], "{of}");
        }
        assert!(table.contains("push-pull, late, buffer 4096"), "{table}");
    }
}

#[test]
fn what_was_pushed_is_there_when_a_late_receiver_comes() {
    let arguments = [
        "early-late",
        "--link",
        "udp",
        "--size",
        "8",
        "--pushed",
        "4K",
    ];
    // The lowest of all runs.
    let (mut all_early, mut all_late, mut zero_late) = (f64::MAX, f64::MAX, f64::MAX);
    until_undisturbed(
        || bench_for("40", "late", &arguments),
        |json| {
            let of = |push: &str, receiver: &str| {
                let fields = [("push", push.into()), ("receiver", receiver.into())];
                median(row(json, &fields))
            };
            all_early = all_early.min(of("push-all", "early"));
            all_late = all_late.min(of("push-all", "late"));
            zero_late = zero_late.min(of("push-zero", "late"));
            // Without the way of a packet: not even that of the offer. And with
            // the request's way and the answer's.
            all_late < all_early && all_late < zero_late
        },
    );
}

#[test]
fn how_long_the_early_or_late_one_computes_is_told() {
    let arguments = ["early-late", "--link", "udp", "--size", "256K"];
    let arguments = [&arguments[..], &["--pushed", "4K"]].concat();
    let (json, _) = bench("late-long", &arguments);
    check_rows(&json);
    for of in json["rows"].as_array().unwrap() {
        assert!(of["method"].as_str().unwrap().contains("13307 us"), "{of}");
    }
}

#[test]
fn what_is_hidden_is_a_share() {
    for link in ["shm", "udp"] {
        let arguments = ["overlap", "--link", link, "--size", "256K"];
        let (json, table) = bench(&format!("overlap-{link}"), &arguments);
        for computes in ["sender", "receiver"] {
            let of = |metric: &str| {
                let fields = [("computes", computes.into()), ("metric", metric.into())];
                median(row(&json, &fields))
            };
            // A share of which a busy machine makes anything.
            assert!(of("hidden").is_finite() && of("both_us") > 0.0, "{table}");
            assert!(of("message_us") > 0.0 && of("cpu_us") > 0.0, "{table}");
            assert!(of("computing_us") > 0.0, "{table}");
        }
        let computes = texts(&json, "rows", "computes");
        assert_eq!(computes, set(&["sender", "receiver"]));
        assert!(table.contains("receiver computes"), "{table}");
    }
}

#[test]
fn what_tcp_hides_stands_beside() {
    let arguments = ["overlap", "--link", "udp", "--size", "256K", "--vs", "tcp"];
    let (json, table) = bench("overlap-vs", &arguments);
    let systems = ["portolan-udp", "kernel-tcp"];
    for system in systems {
        for computes in ["sender", "receiver"] {
            let of = |metric: &str| {
                let fields = [
                    ("system", system.into()),
                    ("computes", computes.into()),
                    ("metric", metric.into()),
                ];
                median(row(&json, &fields))
            };
            assert!(of("cpu_us") > 0.0 && of("computing_us") > 0.0, "{table}");
            // Not less than 100 GB/s would take.
            assert!(of("message_us") > 2.6, "{table}");
        }
    }
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    assert_eq!(texts(&json, "ratios", "over"), set(&["kernel-tcp"]));
    assert_eq!(json["ratios"].as_array().unwrap().len(), 2 * 4, "{table}");
    say(&["bench", "overlap", "--vs", "udp"])
        .expect(2)
        .complains(&["--vs tcp"]);
}

#[test]
fn thread_modes_stand_beside_each_other() {
    for link in ["shm", "udp"] {
        let arguments = ["threads", "--link", link, "--callers", "3"];
        let (json, table) = bench_once(&format!("threads-{link}"), &arguments);
        check_rows(&json);
        let modes = ["single", "serialized", "multiple"];
        assert_eq!(texts(&json, "rows", "threads"), set(&modes));
        assert_eq!(texts(&json, "rows", "link"), set(&[link]));
        for (mode, callers) in [
            ("single", 1),
            ("serialized", 1),
            ("multiple", 1),
            ("multiple", 3),
        ] {
            let of = |metric: &str| {
                let fields = [
                    ("threads", mode.into()),
                    ("callers", callers.into()),
                    ("metric", metric.into()),
                ];
                row(&json, &fields)
            };
            let (latency, rate) = (of("latency_us"), of("rate_msg_s"));
            // One after the other each thread has one message under way.
            let most = 1e6 * f64::from(callers) / median(latency);
            assert!(median(rate) < 3.0 * most, "{table}");
            // Ten round trips each at least.
            let n = rate["n"].as_u64().unwrap();
            assert!(n >= 2 * 10 * callers as u64, "{table}");
            assert_eq!(n % callers as u64, 0, "{table}");
        }
        assert_eq!(json["ratios"].as_array().unwrap().len(), 3 * 2);
        assert!(table.contains("multiple, 3 callers"), "{table}");
    }
    say(&["bench", "threads", "--callers", "1"]).expect(2);
}

#[test]
fn lab_hosts_push_and_pull_by_either_link() {
    let options = ["--rate", "200mbit", "--buffer", "64k"];
    let lab = TestLab::with(TestLab::own("t-bm-push"), &options);
    for link in ["udp", "xdp"] {
        let at = ["--lab", lab.0, "--link", link];
        let arguments = [
            &["pushpull", "--size", "64K", "--modes", "none,both"][..],
            &at,
        ]
        .concat();
        let (json, _) = bench(&format!("lab-pushpull-{link}"), &arguments);
        check_rows(&json);
        for of in json["rows"].as_array().unwrap() {
            assert_eq!(of["link"], link);
            // The line carries no more than 25 MB/s.
            let most = of["metric"] == "bandwidth_mb_s";
            assert!(!most || median(of) < 25.0, "{of}");
        }
        let arguments = [&["early-late", "--size", "64K", "--pushed", "4K"][..], &at].concat();
        let (json, _) = bench(&format!("lab-late-{link}"), &arguments);
        check_rows(&json);
        for of in json["rows"].as_array().unwrap() {
            // 64 KiB take 2.6 ms; of a late receiver's some had come before.
            let pushed = of["receiver"] == "late" && of["push"] == "push-all";
            assert!(pushed || median(of) > 2_000.0, "{of}");
        }
        let arguments = [&["overlap", "--size", "64K"][..], &at].concat();
        let (json, _) = bench(&format!("lab-overlap-{link}"), &arguments);
        assert_eq!(texts(&json, "rows", "link"), set(&[link]));
    }
    let single = TestLab::with(TestLab::own("t-bm-one"), &["--hosts", "1"]);
    say(&["bench", "pushpull", "--lab", single.0])
        .expect(2)
        .complains(&["--hosts 2"]);
}

/// The ratios of puts and gets over the port.
fn check_rma(json: &Value, link: &str, sizes: usize) {
    check_rows(json);
    let of = |act: &str| format!("portolan-{link}-{act}");
    let acts = ["put", "get", "port", "register"].map(of);
    assert_eq!(
        texts(json, "rows", "system"),
        set(&acts.each_ref().map(String::as_str))
    );
    // Two metrics of puts and gets, three of the port, one of registering.
    assert_eq!(json["rows"].as_array().unwrap().len(), 8 * sizes);
    assert_eq!(texts(json, "ratios", "over"), set(&[&acts[2]]));
    let ratios = json["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 4 * sizes);
    let metrics = |act: &str| {
        let ours = ratios.iter().filter(|ratio| ratio["system"] == act);
        let metrics = ours.map(|ratio| ratio["metric"].as_str().unwrap());
        set(&metrics.collect::<Vec<_>>())
    };
    assert_eq!(metrics(&acts[0]), set(&["latency_us", "bandwidth_mb_s"]));
    assert_eq!(metrics(&acts[1]), set(&["round_trip_us", "bandwidth_mb_s"]));
}

#[test]
fn puts_and_gets_stand_beside_a_port() {
    for link in ["shm", "udp"] {
        let arguments = ["rma", "--link", link, "--size", "8,64K"];
        let (json, table) = bench(&format!("rma-{link}"), &arguments);
        check_rma(&json, link, 2);
        let of = |act: &str, metric: &str| {
            let fields = [
                ("system", format!("portolan-{link}-{act}").into()),
                ("metric", metric.into()),
                ("size", 8.into()),
            ];
            median(row(&json, &fields))
        };
        // A port's round trip is two ways.
        let ways = of("port", "round_trip_us") / of("port", "latency_us");
        assert!((1.99..=2.01).contains(&ways), "{table}");
        assert!(of("get", "round_trip_us") > 0.0, "{table}");
        assert!(of("put", "latency_us") > 0.0, "{table}");
    }
    for size in ["7", "5M"] {
        say(&["bench", "rma", "--link", "udp", "--size", size])
            .expect(2)
            .complains(&["give 8 to 4194304 bytes"]);
    }
}

#[test]
fn lab_hosts_put_and_get_by_a_host_port() {
    let lab = TestLab::with(TestLab::own("t-bm-rma"), &[]);
    let arguments = ["rma", "--lab", lab.0, "--link", "xdp", "--size", "8,1M"];
    let (json, _) = bench("lab-rma", &arguments);
    check_rma(&json, "xdp", 2);
}
