//! Last results of `portolan bench bsp` on these hosts: a text file with a line for each link
//! and number of processes (`docs/bsp.md`, *Cost model*).

use std::fs::read_to_string;
use std::path::PathBuf;

/// Measured costs; all 0 where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Speed of one process computing.
    pub mflop_s: f64,
    /// Time of an empty superstep.
    pub l_us: f64,
    /// Time of a word of 8 bytes, among many in scattered places.
    pub g_word_us: f64,
    /// Bandwidth of long puts, for bytes of one process.
    pub g_mb_s: f64,
}

impl Measured {
    /// Costs measured for `processes` processes by a link.
    pub fn of(link: &str, processes: u32) -> Self {
        // A pipe would wait for a writer.
        let path = file().filter(|path| path.is_file());
        let text = path.and_then(|path| read_to_string(path).ok());
        text.map_or_else(Self::default, |text| Self::parse(&text, link, processes))
    }

    /// Returns the costs in the last line of that link and number.
    fn parse(text: &str, link: &str, processes: u32) -> Self {
        let find = |line: &str| {
            let mut words = line.split_whitespace();
            if words.next()? != link || words.next()?.parse() != Ok(processes) {
                return None;
            }
            let mut number = || {
                let number: f64 = words.next()?.parse().ok()?;
                ((0.0..1e15).contains(&number)).then_some(number)
            };
            Some(Self {
                mflop_s: number()?,
                l_us: number()?,
                g_word_us: number()?,
                g_mb_s: number()?,
            })
        };
        text.lines().rev().find_map(find).unwrap_or_default()
    }

    /// Number of operations that take as long as an empty superstep.
    pub const fn l(&self) -> f64 {
        self.l_us * self.mflop_s
    }

    /// Number of operations that take as long as a word of 8 bytes.
    pub const fn g(&self) -> f64 {
        self.g_word_us * self.mflop_s
    }
}

/// Path of the file; `None` if there is no home directory.
fn file() -> Option<PathBuf> {
    portolan::user_path("XDG_CACHE_HOME", ".cache", "portolan/bsp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_link_and_number_counts() {
        let text = "# what bench bsp measured\nshm 2 1000 0.5 0.02 3000\nudp 2 900 20 0.1 800\n\
                    shm 4 1 2\nshm 8 x 2 3 4\nudp 8 -1 2 3 4\nudp 4 1e308 2 3 4\n";
        let shm = Measured::parse(text, "shm", 2);
        assert_eq!((shm.mflop_s, shm.l_us, shm.g_word_us), (1000.0, 0.5, 0.02));
        assert_eq!((shm.l(), shm.g()), (500.0, 20.0));
        assert_eq!(Measured::parse(text, "udp", 2).g_mb_s, 800.0);
        for (link, processes) in [
            ("shm", 3),
            ("xdp", 2),
            ("shm", 4),
            ("shm", 8),
            ("udp", 8),
            ("udp", 4),
        ] {
            assert_eq!(Measured::parse(text, link, processes), Measured::default());
        }
    }
}
