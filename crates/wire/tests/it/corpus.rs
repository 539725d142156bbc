//! Replays the fuzz corpus, on any toolchain.

use std::path::Path;

#[test]
fn wire_parse() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wire_parse");
    let mut files = 0;
    let mut found = [false; 9];
    for entry in std::fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("a readable folder").path();
        println!("{}", path.display());
        let is = crate::common::reencode::all(&std::fs::read(&path).expect("a readable file"));
        found
            .iter_mut()
            .zip(is)
            .for_each(|(found, is)| *found |= is);
        files += 1;
    }
    assert!(files >= 20, "only {files} in {}", folder.display());
    // A corpus of an earlier version of the format says nothing.
    assert_eq!(found, [true; 9], "no file is understood as some format");
}
