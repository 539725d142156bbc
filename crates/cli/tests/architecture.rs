//! The rooms of the house: which crate may use which.

use std::collections::BTreeMap;
use std::process::Command;

/// Crate and what of the workspace it may use. A crate that is missing here
/// fails the test: give it a place.
const ALLOWED: &[(&str, &[&str])] = &[
    ("portolan-wire", &[]),
    ("portolan-seal", &["wire"]),
    ("portolan-proto", &["wire", "seal"]),
    ("portolan-matching", &[]),
    // Pure as the protocol is: its links and memory are a trait's.
    ("portolan-exchange", &["matching"]),
    ("portolan-sys", &[]),
    ("portolan-ring", &["sys"]),
    ("portolan-link", &["sys", "ring", "wire"]),
    // No clock and no system call but its links' own: never sys.
    (
        "portolan-core",
        &["wire", "seal", "proto", "exchange", "ring", "link"],
    ),
    (
        "portolan-engine",
        &[
            "wire", "seal", "proto", "exchange", "sys", "ring", "link", "core",
        ],
    ),
    (
        "portolan-sim",
        &["wire", "seal", "proto", "exchange", "link", "core", "sys"],
    ),
    // The fuzz targets' properties: tests only, nothing uses it.
    (
        "portolan-properties",
        &[
            "wire", "seal", "proto", "matching", "exchange", "ring", "boot", "link",
        ],
    ),
    ("portolan-boot", &["wire", "seal", "sys"]),
    (
        "portolan",
        &[
            "wire", "seal", "proto", "sys", "ring", "link", "engine", "boot",
        ],
    ),
    // An interface: a thin translation of the native one, and no way round it.
    ("portolan-atoll", &["portolan"]),
    // All interfaces for C in one library: nothing but its tests uses it.
    ("portolan-library", &["portolan", "atoll"]),
    ("portolan-hosts", &["sys", "link", "boot"]),
    (
        "portolan-bench",
        &[
            "wire", "matching", "sys", "ring", "link", "engine", "boot", "portolan", "hosts",
        ],
    ),
    (
        "portolan-cli",
        &["wire", "sys", "link", "boot", "portolan", "hosts", "bench"],
    ),
];

fn metadata() -> serde_json::Value {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn crates_use_only_the_rooms_above_them() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() >= 12);
    for package in packages {
        let name = package["name"].as_str().expect("name");
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no place in the design"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("name");
            // Tests may look anywhere.
            if !used.starts_with("portolan") || dependency["kind"] == "dev" {
                continue;
            }
            let room = used.strip_prefix("portolan-").unwrap_or(used);
            assert!(may.contains(&room), "{name} may not use {used}");
        }
    }
}

#[test]
fn the_core_refuses_clocks_and_sockets() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for (crate_name, no_std) in [
        ("wire", true),
        ("proto", true),
        ("seal", true),
        ("matching", true),
        ("sim", false),
    ] {
        let path = format!("{root}/{crate_name}/src/lib.rs");
        let source = std::fs::read_to_string(&path).expect(&path);
        assert!(
            source.contains("#![forbid(unsafe_code)]"),
            "{crate_name} forbids unsafe code"
        );
        assert_eq!(
            source.contains("#![no_std]"),
            no_std,
            "{crate_name} and no_std"
        );
        let std = source
            .lines()
            .any(|l| l.trim_start().starts_with("extern crate std"));
        assert!(!std || !no_std, "{crate_name} must not bring std back");
    }
}
