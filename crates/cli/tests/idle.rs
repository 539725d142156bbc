//! `portolan bench idle`: a program of its own, since other benches beside it
//! would take the cores that its figures are about.

mod common;

use common::figures::{bench_as_asked, check_rows, figures, set, texts};

#[test]
fn an_idle_endpoint_uses_no_core() {
    // The median of these is not that of one in which the host was busy otherwise.
    let slices = ["--slices", "5", "--slice-ms", "100"];
    let (json, _) = bench_as_asked("idle", &[&["idle", "-n", "3"][..], &slices].concat());
    check_rows(&json);
    let systems = set(&["portolan-shm", "portolan-udp"]);
    assert_eq!(texts(&json, "rows", "system"), systems);
    for metric in ["away_cpu_percent", "waiting_cpu_percent"] {
        let found = figures(&json, metric);
        assert_eq!(found.len(), 2, "{json}");
        // A thousand looks a second, for which nothing calls, would be more; a
        // wait spins before it sleeps, in each of these short slices anew.
        for (system, percent) in found {
            assert!(percent < 1.0, "{system}, {metric}: {percent}");
        }
    }
    assert!(
        json["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["ranks"] == 3)
    );
}
