//! Replays the fuzz corpus, on any toolchain.

mod common;

use std::path::Path;

#[test]
fn wire_parse() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wire_parse");
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("a readable folder").path();
        println!("{}", path.display());
        common::reencode::all(&std::fs::read(&path).expect("a readable file"));
        files += 1;
    }
    assert!(files >= 20, "only {files} in {}", folder.display());
}
