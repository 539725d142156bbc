//! Benches that are run for the shape of what they report.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;

use super::{Lock, PATIENCE, lock, say};

/// Waits for the turn of a bench: two at once would poll on each other's cores.
pub fn turn() -> Lock {
    lock("bench")
}

/// Runs a bench with a few short slices; gives its JSON and what it printed.
pub fn bench(name: &str, arguments: &[&str]) -> (Value, String) {
    bench_for("2", name, arguments)
}

/// As [`bench`], with slices of so many milliseconds.
pub fn bench_for(slice_ms: &str, name: &str, arguments: &[&str]) -> (Value, String) {
    let slices = ["--slices", "2", "--slice-ms", slice_ms];
    bench_as_asked(name, &[arguments, &slices].concat())
}

/// As [`bench`], with the slices that `arguments` ask for.
pub fn bench_as_asked(name: &str, arguments: &[&str]) -> (Value, String) {
    let _turn = turn();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}.json"));
    let to = ["--json", file.to_str().unwrap()];
    let all = [&["bench"], arguments, &to].concat();
    let said = say(&all).expect(0);
    let json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    (json, said.out)
}

/// Runs a bench again and again until its figures are as they are where nothing
/// disturbs it: on a busy machine not every run is so. Gives that run's.
pub fn until_undisturbed(
    run: impl Fn() -> (Value, String),
    mut is_so: impl FnMut(&Value) -> bool,
) -> (Value, String) {
    let start = Instant::now();
    loop {
        let (json, table) = run();
        if is_so(&json) {
            return (json, table);
        }
        assert!(start.elapsed() < PATIENCE, "never as it should be: {table}");
    }
}

pub fn texts(json: &Value, list: &str, field: &str) -> BTreeSet<String> {
    let rows = json[list].as_array().unwrap();
    rows.iter()
        .filter_map(|row| Some(row[field].as_str()?.to_owned()))
        .collect()
}

pub fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Every row has what a row must have, in order.
pub fn check_rows(json: &Value) {
    for row in json["rows"].as_array().unwrap() {
        let number = |field: &str| {
            row[field]
                .as_f64()
                .unwrap_or_else(|| panic!("{field}: {row}"))
        };
        assert!(
            number("q1") <= number("p50") && number("p50") <= number("q3"),
            "{row}"
        );
        assert!(number("p50") > 0.0 && number("n") > 0.0, "{row}");
        assert!(row["method"].is_string() && row["ranks"].is_u64(), "{row}");
        if row["p99"].is_f64() {
            assert!(
                number("p99") <= number("p99_5") && number("p99_9") <= number("p99_99"),
                "{row}"
            );
        }
    }
    for ratio in json["ratios"].as_array().unwrap() {
        assert!(
            ratio["median"].is_f64() && ratio["noisy"].is_boolean(),
            "{ratio}"
        );
    }
    assert!(json["steal"].is_f64() && json["host"]["kernel"].is_string());
}

/// The figures of a metric, by system.
pub fn figures(json: &Value, metric: &str) -> Vec<(String, f64)> {
    let rows = json["rows"].as_array().unwrap();
    let of_metric = rows.iter().filter(|row| row["metric"] == metric);
    let figure = |row: &Value| {
        let system = row["system"].as_str().unwrap().to_owned();
        (system, row["p50"].as_f64().unwrap())
    };
    of_metric.map(figure).collect()
}
