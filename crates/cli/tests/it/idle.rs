//! `portolan bench idle`: a program of its own, since other benches beside it
//! would take the cores that its figures are about.

use crate::common::figures::{bench_as_asked, check_rows, figures, set, texts, until_undisturbed};

#[test]
fn an_idle_endpoint_uses_no_core() {
    // The median of these is not that of one in which the host was busy otherwise.
    let slices = ["--slices", "5", "--slice-ms", "100"];
    let idle = || bench_as_asked("idle", &[&["idle", "-n", "3"][..], &slices].concat());
    // A thousand looks a second, for which nothing calls, would be more in every
    // run; a wait spins before it sleeps, in each of these short slices anew.
    let (json, _) = until_undisturbed(idle, |json| {
        let [away, waiting] =
            ["away_cpu_percent", "waiting_cpu_percent"].map(|metric| figures(json, metric));
        assert_eq!((away.len(), waiting.len()), (2, 2), "{json}");
        away.iter()
            .chain(&waiting)
            .all(|(_, percent)| *percent < 1.0)
    });
    check_rows(&json);
    let systems = set(&["portolan-shm", "portolan-udp"]);
    assert_eq!(texts(&json, "rows", "system"), systems);
    assert!(
        json["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["ranks"] == 3)
    );
}
