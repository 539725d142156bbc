//! What `bench bsp` found last, kept for programs of BSPlib: a text file of the
//! user's with a line `LINK P R_MFLOP_S L_US G_WORD_US G_MB_S` for each link and
//! number of processes.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the library looks for it. `None` if there is no home directory.
fn file() -> Option<PathBuf> {
    portolan::user_path("XDG_CACHE_HOME", ".cache", "portolan/bsp")
}

/// Keeps what was found, in the order of the line. Gives a sentence that says where,
/// or why not: a bench does not fail for that.
pub fn keep(link: &str, processes: u32, figures: [Option<f64>; 4]) -> String {
    let what = format!("figures of {link} with {processes} processes");
    let Some(file) = file() else {
        return format!("{what} are not kept: set HOME or XDG_CACHE_HOME");
    };
    match replace(
        &file,
        link,
        processes,
        figures.map(Option::unwrap_or_default),
    ) {
        Ok(()) => format!("{what} are kept in {}", file.display()),
        Err(error) => format!("{what} are not kept: {}: {error}", file.display()),
    }
}

/// Puts the line in the place of the last one of its link and number. Whoever reads
/// the file meanwhile sees all of it, the former or the new one.
fn replace(file: &Path, link: &str, processes: u32, figures: [f64; 4]) -> io::Result<()> {
    let key = format!("{link} {processes} ");
    let former = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let mut text = String::new();
    for line in former.lines().filter(|line| !line.starts_with(&key)) {
        let _ = writeln!(text, "{line}");
    }
    let [r, l, word, byte] = figures;
    let _ = writeln!(text, "{key}{r:.3} {l:.4} {word:.6} {byte:.3}");
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_and_number_have_one_line() {
        let folder = std::env::temp_dir().join(format!("portolan-costs-{}", std::process::id()));
        let file = folder.join("portolan/bsp");
        replace(&file, "shm", 2, [1.0; 4]).unwrap();
        replace(&file, "shm", 21, [2.0; 4]).unwrap();
        replace(&file, "udp", 2, [3.0; 4]).unwrap();
        replace(
            &file,
            "shm",
            2,
            [6297.3284, 1.5566667, 0.0838677572, 1226.02],
        )
        .unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "shm 21 2.000 2.0000 2.000000 2.000",
                "udp 2 3.000 3.0000 3.000000 3.000",
                "shm 2 6297.328 1.5567 0.083868 1226.020"
            ]
        );
        let all = fs::read_dir(file.parent().unwrap()).unwrap();
        assert_eq!(all.count(), 1, "only the file is there");
        fs::remove_dir_all(&folder).unwrap();
    }
}
