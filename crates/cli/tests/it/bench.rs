//! `portolan bench`: the shape of what it reports. No figure is judged here.
//! The parts in a lab need root.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::common::figures::{
    bench, bench_as_asked, bench_for, check_rows, figures, set, texts, turn, until_undisturbed,
};
use crate::common::{Said, TestLab, executable, marked, none_left, portolan, say, start, until};
use serde_json::Value;

#[test]
fn latency_stands_beside_its_peers() {
    let peers = "shm-floor,udp,tcp";
    let (json, table) = bench("latency", &["latency", "--link", "shm", "--vs", peers]);
    check_rows(&json);
    assert_eq!(json["bench"], "latency");
    assert_eq!(
        texts(&json, "rows", "system"),
        set(&["portolan-shm", "shm-floor", "kernel-udp", "kernel-tcp"])
    );
    assert_eq!(
        texts(&json, "rows", "metric"),
        set(&["latency_us", "line_latency_us", "cpu_us"])
    );
    assert_eq!(
        texts(&json, "ratios", "over"),
        set(&["shm-floor", "kernel-udp", "kernel-tcp"])
    );
    // What has no loops of ours, or does nothing but poll, is not charged.
    let charged = |row: &&Value| row["metric"] == "cpu_us";
    let charged = json["rows"].as_array().unwrap().iter().filter(charged);
    let charged: Vec<&Value> = charged.map(|row| &row["system"]).collect();
    assert_eq!(charged, ["portolan-shm", "kernel-udp", "kernel-tcp"]);
    assert!(table.contains("cpu us"), "{table}");
    let ours = &json["rows"][0];
    assert_eq!((&ours["link"], &ours["size"]), (&"shm".into(), &8.into()));
    assert!(ours["p99_99"].is_f64() && ours["loss"].is_null(), "{ours}");
    assert!(table.contains("portolan-shm / shm-floor"), "{table}");
    assert!(table.contains("no claim can rest on that"), "{table}");
}

#[test]
fn who_blocks_sleeps_for_each_message() {
    for link in ["shm", "udp"] {
        let arguments = ["--link", link, "--wait", "block", "--vs", "udp,tcp"];
        let arguments = [&["latency"], &arguments[..]].concat();
        let (json, table) = bench_for("50", &format!("block-{link}"), &arguments);
        check_rows(&json);
        let metrics = ["latency_us", "cpu_us", "sleeps"];
        assert_eq!(texts(&json, "rows", "metric"), set(&metrics));
        assert_eq!(texts(&json, "rows", "wait"), set(&["block"]));
        assert_eq!(texts(&json, "ratios", "metric"), set(&metrics[..2]));
        for (system, sleeps) in figures(&json, "sleeps") {
            // How often an answer is there before the sleep begins depends on
            // what else the cores do.
            assert!(sleeps > 0.0, "{system}: {sleeps}");
        }
        assert!(table.contains("both sides slept"), "{table}");
    }
    // Who polls does not sleep, and is charged.
    let (json, _) = bench_for("50", "poll", &["latency", "--link", "udp"]);
    check_rows(&json);
    assert!(figures(&json, "sleeps").is_empty() && json["rows"][0]["wait"].is_null());
    assert_eq!(figures(&json, "cpu_us").len(), 1, "{json}");
}

#[test]
fn busy_loops_run_beside_ranks_and_end_with_the_bench() {
    let arguments = ["rate", "--link", "shm", "--busy", "1,2"];
    let (json, table) = bench_for("20", "busy", &arguments);
    check_rows(&json);
    assert_eq!(texts(&json, "rows", "wait"), set(&["call"]));
    let beside = ["1 busy loop a core", "2 busy loops a core"];
    for rows in ["rows", "ratios"] {
        assert_eq!(texts(&json, rows, "beside"), set(&beside), "{rows}");
    }
    assert!(
        texts(&json, "ratios", "metric").contains("rate_msg_s_beside"),
        "{table}"
    );
    let refused = say(&["bench", "rate", "--busy", "1", "--vs", "shm-floor"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    // A killed bench leaves none behind.
    let arguments = ["bench", "ring", "--busy", "1", "--slices", "10000"];
    let mut bench = start("busy-killed", &arguments);
    let is_loop = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words
            .split(|&byte| byte == 0)
            .any(|word| word == b"internal-bench-loop")
    };
    let loops = || marked("busy-killed").iter().any(is_loop);
    until(|| "no busy loop".to_owned(), loops);
    bench.kill().unwrap();
    bench.wait().unwrap();
    until(|| "a busy loop stays".to_owned(), || !loops());
}

#[test]
fn a_token_goes_round_all_ranks() {
    let arguments = ["ring", "-n", "3", "--busy", "1", "--vs", "tcp"];
    let (json, _) = bench_for("20", "ring", &arguments);
    check_rows(&json);
    assert_eq!(
        texts(&json, "rows", "system"),
        set(&["portolan-shm", "kernel-tcp"])
    );
    assert_eq!(texts(&json, "ratios", "over"), set(&["kernel-tcp"]));
}

#[test]
fn who_blocks_streams_too() {
    for size in ["8", "100000"] {
        let arguments = ["--wait", "block", "--link", "udp", "--vs", "udp,tcp"];
        let arguments = [&["bandwidth", "--size", size], &arguments[..]].concat();
        let (json, _) = bench_for("20", &format!("block-{size}"), &arguments);
        check_rows(&json);
        assert_eq!(figures(&json, "cpu_us_per_mb").len(), 3, "{json}");
        assert_eq!(figures(&json, "bandwidth_mb_s").len(), 3, "{json}");
    }
}

#[test]
fn a_sweep_has_a_half_power_point() {
    let (json, table) = bench("sweep", &["bandwidth", "--link", "udp", "--vs", "tcp"]);
    check_rows(&json);
    for metric in ["bandwidth_mb_s", "half_power_bytes", "fit_bandwidth_mb_s"] {
        assert!(texts(&json, "rows", "metric").contains(metric), "{metric}");
    }
    assert!(table.contains("half of the best bandwidth"), "{table}");
}

#[test]
fn what_encrypts_stands_beside_what_encrypts() {
    for wait in ["poll", "block"] {
        let sizes = ["--size", "100000", "--link", "udp", "--vs", "tls,tcp"];
        let arguments = [&["bandwidth", "--wait", wait][..], &sizes].concat();
        let (json, _) = bench_for("20", &format!("tls-{wait}"), &arguments);
        check_rows(&json);
        let systems = ["portolan-udp", "kernel-tls", "kernel-tcp"];
        assert_eq!(texts(&json, "rows", "system"), set(&systems));
        assert_eq!(texts(&json, "ratios", "over"), set(&systems[1..]));
        let method = json["rows"][1]["method"].as_str().unwrap();
        assert!(
            method.contains("TLS 1.3") && method.contains("AES-128-GCM"),
            "{json}"
        );
    }
}

#[test]
fn every_pattern_and_the_rate_are_measured() {
    for pattern in ["pingpong", "ping", "burst", "stream"] {
        let arguments = ["bandwidth", "--size", "4096", "--pattern", pattern];
        let (json, _) = bench(pattern, &arguments);
        check_rows(&json);
        assert_eq!(json["rows"][0]["pattern"], pattern);
    }
    let (json, _) = bench("rate", &["rate", "--vs", "shm-floor"]);
    check_rows(&json);
    assert_eq!(
        texts(&json, "rows", "metric"),
        set(&["rate_msg_s", "cpu_us"])
    );
    let (json, _) = bench(
        "copy",
        &["bandwidth", "--size", "1048576", "--vs", "shm-copy"],
    );
    check_rows(&json);
    assert_eq!(json["ratios"][0]["over"], "shm-copy");
}

#[test]
fn a_stalled_receiver_has_four_ranks_and_two_claims() {
    let (json, _) = bench_for("50", "stalled", &["stalled", "--link", "shm"]);
    assert_eq!(json["rows"].as_array().unwrap().len(), 4);
    assert!(
        json["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["ranks"] == 4)
    );
    assert_eq!(
        texts(&json, "ratios", "metric"),
        set(&["rate_sender_to_others", "rate_other_pairs"])
    );
}

#[test]
fn a_flow_that_nobody_takes_from_is_set_against_none() {
    let (json, _) = bench_for("50", "untaken", &["stalled", "--flow", "--link", "shm"]);
    let rows = json["rows"].as_array().unwrap();
    let untaken = |row: &serde_json::Value| row["untaken_flow"].as_bool();
    assert_eq!(
        rows.iter().map(untaken).collect::<Vec<_>>(),
        [Some(false), Some(true)]
    );
    assert!(rows.iter().all(|row| row["ranks"] == 2));
    assert_eq!(texts(&json, "ratios", "metric"), set(&["rate_other_flows"]));
}

#[test]
fn a_barrier_stands_beside_other_mpis() {
    let arguments = ["barrier", "-n", "4", "--vs", "openmpi,mpich"];
    let (json, table) = bench("barrier", &arguments);
    check_rows(&json);
    let systems = set(&["portolan-shm", "openmpi", "mpich"]);
    assert_eq!(texts(&json, "rows", "system"), systems);
    assert_eq!(
        texts(&json, "ratios", "over"),
        set(&["openmpi", "mpich"]),
        "{table}"
    );
    assert_eq!(json["rows"][0]["ranks"], 4);
}

#[test]
fn other_mpis_stand_beside_memcpy() {
    let netpipe = || bench_for("5", "netpipe", &["netpipe", "--size", "8,64K"]);
    let systems = ["memcpy", "openmpi", "mpich"];
    // A long message takes longer: what was read is the time of each size.
    let median = |json: &Value, system: &str, size: u64| {
        let of = |row: &&Value| {
            row["system"] == system
                && row["size"] == size
                && row["buffers"] == "warm"
                && row["metric"] == "latency_us"
        };
        let rows = json["rows"].as_array().unwrap();
        rows.iter().find(of).unwrap()["p50"].as_f64().unwrap()
    };
    // The lowest of all runs.
    let mut lowest = [[f64::MAX; 2]; 3];
    let (json, table) = until_undisturbed(netpipe, |json| {
        for (system, lowest) in systems.iter().zip(&mut lowest) {
            for (size, lowest) in [8, 65_536].into_iter().zip(lowest) {
                *lowest = lowest.min(median(json, system, size));
            }
        }
        lowest.iter().all(|[short, long]| short < long)
    });
    check_rows(&json);
    assert_eq!(texts(&json, "rows", "system"), set(&systems));
    assert_eq!(texts(&json, "rows", "buffers"), set(&["warm", "cold"]));
    let metrics = set(&["bandwidth_mb_s", "latency_us"]);
    assert_eq!(texts(&json, "rows", "metric"), metrics);
    let over = set(&["openmpi", "mpich", "best-mpi"]);
    assert_eq!(texts(&json, "ratios", "over"), over);
    let rows = json["rows"].as_array().unwrap();
    // Of two sizes, warm and cold.
    assert_eq!(rows.len(), 3 * 2 * 4);
    assert_eq!(json["ratios"].as_array().unwrap().len(), 3 * 4);
    for row in rows.iter().filter(|row| row["system"] != "memcpy") {
        let method = row["method"].as_str().unwrap();
        assert_eq!(method.contains(" -I"), row["buffers"] == "cold", "{row}");
        assert!(method.contains("best of 3 trials"), "{row}");
        assert_eq!(row["ranks"], 2);
    }
    assert!(table.contains("memcpy / best-mpi"), "{table}");
}

/// A folder with these programs, before the usual ones or alone.
fn folder_of(name: &str, scripts: &[(&str, &str)]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    for (program, script) in scripts {
        let path = folder.join(program);
        executable(&path, script);
    }
    folder
}

/// `bench netpipe` with the programs of this PATH.
fn netpipe_in(path: &str, vs: &str) -> Said {
    let _turn = turn();
    let arguments = ["bench", "netpipe", "--vs", vs, "--size", "8"];
    Said::from(portolan(&arguments).env("PATH", path).output().unwrap())
}

#[test]
fn a_netpipe_that_is_missing_names_its_package() {
    for (vs, package) in [("openmpi", "netpipe-openmpi"), ("mpich", "netpipe-mpich2")] {
        let said = netpipe_in("/nonexistent", vs).expect(1);
        said.complains(&[package, "apt install", &format!("leave {vs} out")]);
    }
    // The launcher alone is not enough.
    let some = folder_of("netpipe-launcher", &[("mpirun.mpich", "exit 0")]);
    let said = netpipe_in(some.to_str().unwrap(), "mpich").expect(1);
    said.complains(&["NPmpich2", "netpipe-mpich2"]);
}

#[test]
fn a_netpipe_that_fails_or_writes_nonsense_is_no_figure() {
    let usual = std::env::var("PATH").unwrap();
    let write = |text: &str| format!("for file; do :; done; printf '{text}' > $file");
    for (name, script, word) in [
        (
            "fails",
            "echo no memory >&2; exit 3".to_owned(),
            "no memory",
        ),
        ("nothing", "exit 0".to_owned(), "wrote \"\""),
        (
            "other",
            write("16 100.0 0.00000122\\n"),
            "no figure of 8 bytes",
        ),
        ("words", write("a b c\\n"), "netpipe-mpich2"),
    ] {
        let folder = folder_of(&format!("netpipe-{name}"), &[("NPmpich2", &script)]);
        let path = format!("{}:{usual}", folder.display());
        netpipe_in(&path, "mpich")
            .expect(1)
            .complains(&[word, "mpich"]);
    }
    // What one run wrote is not the next one's figure.
    let write = write("8 100.0 0.00000061\\n");
    let script = format!("if mkdir \"$0.once\" 2>/dev/null; then {write}; fi");
    let folder = folder_of("netpipe-once", &[("NPmpich2", &script)]);
    let _ = fs::remove_dir(folder.join("NPmpich2.once"));
    let path = format!("{}:{usual}", folder.display());
    netpipe_in(&path, "mpich")
        .expect(1)
        .complains(&["wrote \"\""]);
    // Open MPI takes the other down with one that fails.
    let folder = folder_of("netpipe-dies", &[("NPopenmpi", "kill -9 $$")]);
    let path = format!("{}:{usual}", folder.display());
    netpipe_in(&path, "openmpi")
        .expect(1)
        .complains(&["cannot run here"]);
}

#[test]
fn an_mpi_without_its_headers_names_its_packages_in_one_line() {
    let said = "<stdin>:1:10: fatal error: mpi.h: No such file or directory\n    1 | #include";
    let script = format!("printf '{said}' >&2; exit 1");
    let scripts = [("mpicc.mpich", script.as_str()), ("mpicc.openmpi", &script)];
    let folder = folder_of("mpi-headers", &scripts);
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    for (vs, packages) in [
        ("mpich", "mpich libmpich-dev"),
        ("openmpi", "openmpi-bin libopenmpi-dev"),
    ] {
        let arguments = ["bench", "start", "--vs", vs, "-n", "2", "--slices", "1"];
        let said = Said::from(portolan(&arguments).env("PATH", &path).output().unwrap()).expect(1);
        let install = format!("apt install {packages}");
        assert!(!said.err.contains("\\n"), "{said:?}");
        said.complains(&["fatal error: mpi.h: No such", &install, "leave"]);
    }
}

/// Open MPI's files in shared memory.
fn segments() -> BTreeSet<OsString> {
    let all = fs::read_dir("/dev/shm").unwrap();
    let names = all.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("vader_segment"))
        .collect()
}

#[test]
fn nothing_is_left_of_netpipe_when_the_bench_is_killed() {
    let _turn = turn();
    let before = segments();
    for vs in ["openmpi", "mpich"] {
        let mark = format!("netpipe-{vs}");
        let arguments = ["bench", "netpipe", "--vs", vs, "--size", "1M"];
        let mut bench = start(&mark, &arguments);
        let begun = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("NP")
        };
        let both = || marked(&mark).iter().filter(|pid| begun(pid)).count() == 2;
        until(|| format!("{vs} does not begin"), both);
        bench.kill().unwrap();
        bench.wait().unwrap();
        none_left(&mark);
        until(
            || format!("{:?}", segments()),
            || segments().is_subset(&before),
        );
    }
}

#[test]
fn a_start_ends_with_a_message_of_every_rank() {
    let _turn = turn();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-start.json");
    let name = file.to_str().unwrap();
    let arguments = [
        "bench", "start", "-n", "2,5", "--slices", "2", "--json", name,
    ];
    say(&[&arguments[..], &["--vs", "mpich"]].concat()).expect(0);
    let json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    check_rows(&json);
    assert_eq!(texts(&json, "rows", "metric"), set(&["start_ms", "job_ms"]));
    let ratios: Vec<&Value> = json["ratios"].as_array().unwrap().iter().collect();
    assert_eq!(ratios.len(), 4);
    assert!(ratios.iter().all(|r| r["ranks"].is_u64()), "{ratios:?}");
    // A job has not ended before its first messages have come.
    let p50 = |metric: &str| -> f64 {
        let rows = json["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["metric"] == metric).unwrap();
        row["p50"].as_f64().unwrap()
    };
    assert!(p50("start_ms") < p50("job_ms"));
}

#[test]
fn everything_that_was_sprayed_comes_back() {
    for link in ["shm", "udp"] {
        let arguments = ["spray", "--link", link, "--messages", "3000"];
        let (json, _) = bench(&format!("spray-{link}"), &arguments);
        check_rows(&json);
        let rows = json["rows"].as_array().unwrap();
        let gaps: Vec<u64> = rows
            .iter()
            .filter(|row| row["metric"] == "gap_us")
            .filter_map(|row| row["messages"].as_u64())
            .collect();
        assert_eq!(gaps, [1, 10, 100, 1_000, 3_000].repeat(4));
        assert_eq!(texts(&json, "rows", "pattern"), set(&["one", "both"]));
    }
}

#[test]
fn the_parameters_of_logp_are_found() {
    let (json, _) = bench("logp", &["logp", "--link", "shm"]);
    let metrics = texts(&json, "rows", "metric");
    for metric in ["o_send_us", "o_recv_us", "l_us", "g_us", "half_power_bytes"] {
        assert!(metrics.contains(metric), "{metric} of {metrics:?}");
    }
}

#[test]
fn matching_is_set_against_that_of_few() {
    let (json, table) = bench_as_asked("match", &["match", "--slices", "2"]);
    check_rows(&json);
    let metrics = [
        "match_unexpected_ns",
        "match_posted_ns",
        "match_unexpected_any_ns",
        "match_posted_any_ns",
    ];
    assert_eq!(texts(&json, "rows", "metric"), set(&metrics));
    let entries = |list: &str| -> Vec<u64> {
        let list = json[list].as_array().unwrap();
        list.iter()
            .map(|it| it["entries"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(entries("rows"), [10, 1_000, 100_000].repeat(4));
    assert_eq!(entries("ratios"), [1_000, 100_000].repeat(4));
    let of = metrics.map(|metric| format!("{metric}_entries"));
    assert_eq!(texts(&json, "ratios", "metric"), of.into());
    assert!(table.contains("no claim can rest on that"), "{table}");
}

#[test]
fn jitter_has_a_histogram_of_all_round_trips() {
    let (json, table) = bench("jitter", &["jitter", "--link", "shm"]);
    check_rows(&json);
    let row = &json["rows"][0];
    let buckets = row["histogram"].as_array().unwrap();
    let counted: u64 = buckets.iter().map(|b| b[1].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), row["n"].as_u64());
    assert!(table.contains("##"), "{table}");
}

#[test]
fn loss_is_switched_between_columns_and_off_at_the_end() {
    let lab = TestLab::up("t-bench", "2");
    let arguments = ["bandwidth", "--lab", lab.0, "--loss", "0,5", "--vs", "tcp"];
    let (json, table) = bench("loss", &arguments);
    check_rows(&json);
    let rows = json["rows"].as_array().unwrap();
    let losses: Vec<f64> = rows
        .iter()
        .map(|row| row["loss"].as_f64().unwrap())
        .collect();
    // Figures, and what they cost.
    assert_eq!(losses, [0.0, 0.0, 5.0, 5.0].repeat(2));
    assert!(
        rows[2]["kept"].is_f64() && rows[2]["packets_ratio"].is_f64(),
        "{}",
        rows[2]
    );
    assert_eq!(rows[2]["security"], "encrypt");
    assert!(texts(&json, "ratios", "metric").contains("goodput_kept"));
    assert!(table.contains("loss 5 %: the switch dropped"), "{table}");
    let status = say(&["lab", "status", lab.0]).expect(0);
    assert!(!status.out.contains("loss"), "{status:?}");
}

#[test]
fn losses_in_bursts_are_told_as_such() {
    let lab = TestLab::up(TestLab::own("t-bench-burst"), "2");
    let bursts = ["--loss", "0,20", "--bursts", "8-16"];
    let arguments = [&["bandwidth", "--lab", lab.0][..], &bursts].concat();
    let (json, table) = bench_for("50", "bursts", &arguments);
    check_rows(&json);
    let rows = json["rows"].as_array().unwrap();
    let is_told = |row: &Value| row["method"].as_str().unwrap().contains("bursts of 8-16");
    assert!(!is_told(&rows[0]) && is_told(&rows[1]), "{json}");
    let told = "loss 20 % in bursts of 8-16: the switch dropped";
    assert!(table.contains(told), "{table}");
}

#[test]
fn bursts_are_set_against_single_losses() {
    let lab = TestLab::up(TestLab::own("t-bench-both"), "2");
    let bursts = ["--loss", "0,5", "--bursts", "3-6", "--both"];
    let arguments = [&["bandwidth", "--lab", lab.0][..], &bursts].concat();
    let (json, table) = bench_for("20", "both", &arguments);
    check_rows(&json);
    let rows = json["rows"].as_array().unwrap();
    let kinds: Vec<(f64, Option<&str>)> = rows
        .iter()
        .filter(|row| row["metric"] == "bandwidth_mb_s")
        .map(|row| (row["loss"].as_f64().unwrap(), row["bursts"].as_str()))
        .collect();
    assert_eq!(kinds, [(0.0, None), (5.0, None), (5.0, Some("3-6"))]);
    let ratios = json["ratios"].as_array().unwrap();
    let claims = ratios
        .iter()
        .filter(|ratio| ratio["metric"] == "bandwidth_mb_s_bursts");
    let claims: Vec<&Value> = claims.collect();
    assert_eq!(claims.len(), 1, "{json}");
    assert_eq!(
        (&claims[0]["bursts"], &claims[0]["loss"]),
        (&"3-6".into(), &5.0.into())
    );
    for kind in ["loss 5 %: ", "loss 5 % in bursts of 3-6: "] {
        assert!(table.contains(kind), "{table}");
    }
}

/// Another figure of a row's system.
fn rows_of<'a>(json: &'a Value, row: &Value, metric: &str) -> &'a Value {
    let mut rows = json["rows"].as_array().unwrap().iter();
    let fits = |it: &&Value| it["metric"] == metric && it["system"] == row["system"];
    rows.find(fits).unwrap()
}

#[test]
fn many_to_one_and_all_to_all_fill_the_switch() {
    let options = ["--hosts", "4", "--rate", "100mbit", "--buffer", "32k"];
    let lab = TestLab::with(TestLab::own("t-bench-fill"), &options);
    // Bytes that reach hosts in a second: one host's line, or all four.
    for (name, how, most, link) in [
        ("incast", &[][..], 12.5, "xdp"),
        ("incast", &["--matched"], 12.5, "udp"),
        ("alltoall", &[], 50.0, "udp"),
        ("incast", &["--matched", "plain"], 12.5, "udp"),
        ("alltoall", &["--matched", "sync"], 50.0, "xdp"),
    ] {
        let arguments = [name, "--lab", lab.0, "--link", link, "--vs", "tcp"];
        let (json, table) = bench_for("50", name, &[&arguments, how].concat());
        let kind = [&[name], how].concat().join("-");
        let kind = kind.replace("---", "-").replace("-sync", "");
        assert_eq!(json["bench"], kind);
        check_rows(&json);
        let ours = format!("portolan-{link}");
        assert_eq!(texts(&json, "rows", "system"), set(&[&ours, "kernel-tcp"]));
        let metrics = ["goodput_mb_s", "message_us", "cpu_us_per_mb"];
        let of_line = ["link_share", "message_slowness"];
        let all = [&metrics[..], &of_line].concat();
        assert_eq!(texts(&json, "rows", "metric"), set(&all));
        let claims = [&metrics[..], &["message_us_p99"]].concat();
        assert_eq!(texts(&json, "ratios", "metric"), set(&claims));
        let over = texts(&json, "ratios", "over");
        assert_eq!(over, set(&["kernel-tcp", "line", "fair-share"]));
        for row in json["rows"].as_array().unwrap() {
            assert_eq!((&row["ranks"], &row["size"]), (&4.into(), &65_536.into()));
            let value = row["p50"].as_f64().unwrap();
            if row["metric"] == "goodput_mb_s" {
                assert!(value > 0.0 && value < most, "{row}");
                let share = rows_of(&json, row, "link_share")["p50"].as_f64().unwrap();
                assert!((share * most / value - 1.0).abs() < 1e-6, "{json}");
            } else if row["metric"] == "message_us" {
                // 64 KB take 5.2 ms and more on a line of 100mbit.
                assert!(value > 5_200.0, "{row}");
                let p99 = row["p99"].as_f64().unwrap();
                assert!(p99 >= value, "{row}");
                // Three senders share a line of 12.5 MB/s.
                let ideal_us = 3.0 * 65_536.0 / 12.5;
                let slowness = rows_of(&json, row, "message_slowness");
                let over_ideal = slowness["p99"].as_f64().unwrap();
                assert!((over_ideal * ideal_us / p99 - 1.0).abs() < 1e-6, "{json}");
            }
        }
        assert!(table.contains("every message arrived"), "{table}");
    }
    // What TCP loses by incast is counted.
    assert!(
        lab.status()["hosts"][0]["port"]["dropped"]
            .as_u64()
            .unwrap()
            > 0
    );
    let small = TestLab::up(TestLab::own("t-bench-few"), "2");
    for (arguments, word) in [
        (&["incast"][..], "--lab"),
        (&["incast", "--lab", small.0], "--hosts 8"),
        (&["alltoall", "--lab", lab.0, "--size", "1K"], "16384"),
        (&["alltoall", "--lab", lab.0, "--vs", "udp"], "--vs tcp"),
        (&["incast", "--lab", lab.0, "--matched", "much"], "plain"),
    ] {
        let said = say(&[&["bench"], arguments].concat());
        assert!(said.code != 0 && said.err.contains(word), "{said:?}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_at_once() {
    let cases: [(&[&str], &str); 28] = [
        (&["netpipe", "--size", "0"], "--size"),
        (&["netpipe", "--size", "8,5M"], "4194304"),
        (&["netpipe", "--vs", "ucx"], "possible values"),
        (&["pushpull", "--size", "0"], "4194304"),
        (
            &["pushpull", "--link", "udp", "--vs", "mpich"],
            "--link shm",
        ),
        (&["pushpull", "--sweep"], "--link udp"),
        (
            &["pushpull", "--link", "udp", "--sweep", "--whole", "64K"],
            "leave out --whole",
        ),
        (&["pushpull", "--sweep", "--first", "8"], "--first"),
        (&["early-late", "--pushed", "4095"], "4096"),
        (&["early-late", "--size", "5M"], "4194304"),
        (&["overlap", "--size", "0"], "--size"),
        (
            &["latency", "--wait", "block", "--vs", "ucx"],
            "--vs udp,tcp",
        ),
        (&["idle", "--slice-ms", "10", "--seconds", "1"], "--seconds"),
        (&["idle", "-n", "1"], "2 or more"),
        (&["latency", "--loss", "1", "--both"], "--bursts"),
        (&["latency", "--bursts", "8"], "--loss"),
        (&["latency", "--lab", "t-none"], "does not exist"),
        (&["latency", "--loss", "1"], "--lab"),
        (&["latency", "--size", "7"], "--size"),
        (
            &["latency", "--link", "udp", "--vs", "shm-floor"],
            "--link shm",
        ),
        (&["latency", "--json", "/nonexistent/x"], "/nonexistent/x"),
        (&["rate", "--vs", "nothing"], "possible values"),
        (&["rate", "--busy", "2,1,2"], "--busy names 2 twice"),
        (&["ring", "--busy", "1,2"], "takes one number, 0 to 8"),
        (&["ring", "--busy", "9"], "takes one number, 0 to 8"),
        (&["latency", "--vs", "raw-xdp"], "--link xdp"),
        (
            &["barrier", "--slices", "0"],
            "give 1 to 10000; a claim needs 21",
        ),
        (&["spray", "--slice-ms", "101"], "1..=100"),
    ];
    for (arguments, word) in cases {
        let mut all = vec!["bench"];
        all.extend(arguments);
        let said = say(&all);
        assert!(
            said.code != 0 && said.err.contains(word),
            "{arguments:?}: {said:?}"
        );
    }
}
