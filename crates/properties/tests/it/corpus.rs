//! Replays the corpora of the fuzz targets, on any toolchain.

use std::path::Path;

/// Calls `property` with every file of a corpus; `least` is how many there
/// must be at least.
fn replay(target: &str, least: usize, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("a readable folder").path();
        println!("{}", path.display());
        property(&std::fs::read(&path).expect("a readable file"));
        files += 1;
    }
    assert!(files >= least, "only {files} in {}", folder.display());
}

#[test]
fn proto_input() {
    replay("proto_input", 20, portolan_properties::proto_input);
}

#[test]
fn peers_input() {
    replay("peers_input", 8, portolan_properties::peers_input);
}

#[test]
fn exchange_input() {
    replay("exchange_input", 20, portolan_properties::exchange_input);
}

#[test]
fn bsp_head() {
    replay("bsp_head", 10, portolan_properties::bsp_head);
}

#[test]
fn bsp_parts() {
    replay("bsp_parts", 20, portolan_properties::bsp_parts);
}
