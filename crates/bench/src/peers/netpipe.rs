//! NetPIPE as a peer: Debian builds it for both MPIs. Messages of one size go
//! back and forth between two processes of this host, through shared memory.
//! Each slice is a run of its own; what it takes to start is not counted.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::process::Command;

use portolan_hosts::failure::{Context, Result, fail};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::peers::mpi::Kind;
use crate::peers::program::{Fastest, TIMEOUT, check_installed, hear_of};

/// Largest message, bytes. With cold buffers NetPIPE walks through 10 MB, and
/// what has no room there twice it would take from the same place each time.
pub const SIZE_MAX: usize = 4 << 20;
/// NetPIPE measures so often and gives the best.
pub const TRIALS: u64 = 3;
/// Round trips of a trial of the first run; the next ones go by its speed.
const FIRST_COUNT: u64 = 100;
/// Fewest and most round trips of a trial.
const COUNT_MIN: u64 = 10;
const COUNT_MAX: u64 = 10_000_000;

/// Where messages lie, as `--buffers` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Buffers {
    /// One buffer each, reused, so that it stays in the caches if it fits
    Warm,
    /// A different place each time, in buffers larger than a core's own caches
    Cold,
    /// As cold, and received in pages not yet allocated; pushpull without --vs only
    Fresh,
}

impl Buffers {
    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
            Self::Fresh => "fresh",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Bytes of a message, 1 to [`SIZE_MAX`].
    pub size: usize,
    /// Where they lie.
    pub buffers: Buffers,
}

/// What a slice gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Time of a message one way, microseconds: of the best trial.
    pub one_way_us: f64,
    /// Messages of all trials.
    pub messages: u64,
}

/// A setting in the environment of the launcher, which hands it on.
type Setting = (&'static str, &'static str);

/// What there is to know of one of the MPIs.
impl Kind {
    /// NetPIPE's program, and the package that brings it and the launcher.
    const fn netpipe(self) -> (&'static str, &'static str) {
        match self {
            Self::Openmpi => ("NPopenmpi", "netpipe-openmpi"),
            Self::Mpich => ("NPmpich2", "netpipe-mpich2"),
        }
    }

    /// The launcher's arguments. It does not bind: both processes do that
    /// themselves, each to the core that it is given.
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            // Two slots, or a host with fewer cores than it counts would have
            // processes give up their cores while they wait.
            Self::Openmpi => &["--host", "localhost:2", "--bind-to", "none"],
            Self::Mpich => &["-launcher", "fork", "-bind-to", "none"],
        }
    }

    /// Shared memory and nothing else.
    const fn settings(self) -> &'static [Setting] {
        match self {
            Self::Openmpi => &[
                ("OMPI_MCA_pml", "ob1"),
                ("OMPI_MCA_btl", "self,vader"),
                // It refuses root otherwise; a container often has no other user.
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ],
            Self::Mpich => &[],
        }
    }

    /// Its ways through shared memory. All are tried with each size, the
    /// fastest is measured.
    const fn netpipe_variants(self) -> &'static [&'static [Setting]] {
        match self {
            // One copy by process_vm_readv where that is allowed, or two.
            Self::Openmpi => &[&[], &[("OMPI_MCA_btl_vader_single_copy_mechanism", "none")]],
            // Its own, and UCX's.
            Self::Mpich => &[&[], &[("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "sm,self")]],
        }
    }
}

/// NetPIPE over one of the MPIs.
pub struct Netpipe {
    kind: Kind,
    cores: [u32; 2],
    /// Where NetPIPE writes: a file without a name, which goes with this process.
    results: File,
    /// Which variant is the fastest, and its last time one way, us.
    fastest: Fastest<Case, f64>,
}

impl Netpipe {
    /// Over `kind`, a process on each of `cores`.
    ///
    /// # Errors
    /// Where a program is missing.
    pub fn find(kind: Kind, cores: [u32; 2]) -> Result<Self> {
        let (program, package) = kind.netpipe();
        let programs = [
            (kind.launcher(), package),
            (program, package),
            ("setpriv", "util-linux"),
            ("taskset", "util-linux"),
        ];
        check_installed(kind.name(), &programs)?;
        let results = memfd_create("portolan-netpipe", MemfdFlags::CLOEXEC)
            .context("a file for NetPIPE's results")?;
        Ok(Self {
            kind,
            cores,
            results: results.into(),
            fastest: Fastest::new(),
        })
    }

    /// Which MPI.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How a case is measured, in words.
    pub fn method(&self, case: Case) -> String {
        let variant = self.kind.netpipe_variants()[self.fastest.variant(case)];
        let settings = [self.kind.settings(), variant].concat();
        let settings = settings.iter().filter(|(name, _)| !name.contains("ALLOW"));
        let mut words: Vec<String> = settings.map(|(name, to)| format!("{name}={to}")).collect();
        words.push(self.kind.launcher().to_owned());
        words.extend(self.kind.arguments().iter().map(|&word| word.to_owned()));
        words.push(self.kind.netpipe().0.to_owned());
        if case.buffers == Buffers::Cold {
            words.push("-I".to_owned());
        }
        words.join(" ")
    }

    /// Measures one case for about `slice_ns`, in the first slice of each longer: there all
    /// variants are tried.
    ///
    /// # Errors
    /// Where it cannot be started, does not end, or gives no figure.
    pub fn slice(&mut self, case: Case, slice_ns: u64) -> Result<Measured> {
        let mut fastest = std::mem::replace(&mut self.fastest, Fastest::new());
        let first = |variant| {
            let us = self.run(variant, case, FIRST_COUNT)?.one_way_us;
            Ok(self.run(variant, case, count_in(slice_ns, us))?.one_way_us)
        };
        let variants = self.kind.netpipe_variants().len();
        let measured = fastest
            .of(case, variants, first, |us| *us)
            .and_then(|chosen| {
                let count = count_in(slice_ns, chosen.last);
                let measured = self.run(chosen.variant, case, count)?;
                chosen.last = measured.one_way_us;
                Ok(measured)
            });
        self.fastest = fastest;
        measured
    }

    /// One run, with so many round trips in each of its trials.
    fn run(&self, variant: usize, case: Case, count: u64) -> Result<Measured> {
        let name = self.kind.name();
        let mut results = &self.results;
        // Nothing of an earlier run may be taken for this one's.
        results.set_len(0)?;
        let what = format!("NetPIPE of {name}");
        let ended = hear_of(
            &mut self.command(variant, case, count),
            &what,
            TIMEOUT,
            |output| output.status.success().then_some(()),
        );
        ended.context(format!("--vs {name} (or leave it out)"))?;
        let mut text = Vec::new();
        results.rewind()?;
        results.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let Some(one_way_us) = parse(&text, case.size) else {
            let (program, package) = self.kind.netpipe();
            return fail(format!(
                "{program} wrote {text:?}, which is no figure of {} bytes: install Debian's ({package}) or leave {name} out of --vs",
                case.size
            ));
        };
        Ok(Measured {
            one_way_us,
            messages: 2 * TRIALS * count,
        })
    }

    /// The launcher with both processes. It ends with this process, in good
    /// order, and they end with it.
    fn command(&self, variant: usize, case: Case, count: u64) -> Command {
        let (size, count) = (case.size.to_string(), count.to_string());
        let file = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.results.as_raw_fd()
        );
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", self.kind.launcher()])
            .args(self.kind.arguments())
            .envs(self.kind.settings().iter().copied())
            .envs(self.kind.netpipe_variants()[variant].iter().copied());
        for (place, core) in self.cores.iter().enumerate() {
            if place > 0 {
                command.arg(":");
            }
            command
                .args(["-n", "1", "setpriv", "--pdeathsig", "KILL"])
                .args(["taskset", "-c", &core.to_string()])
                .arg(self.kind.netpipe().0)
                // This size alone, and not those around it.
                .args(["-l", &size, "-u", &size, "-p", "0", "-n", &count])
                .args((case.buffers == Buffers::Cold).then_some("-I"))
                .args(["-o", &file]);
        }
        command
    }
}

/// Round trips of a trial, so that all trials together take `slice_ns`.
fn count_in(slice_ns: u64, one_way_us: f64) -> u64 {
    let ns = 2.0 * 1e3 * one_way_us * TRIALS as f64;
    ((slice_ns as f64 / ns) as u64).clamp(COUNT_MIN, COUNT_MAX)
}

/// The time of a message one way, in microseconds, from what NetPIPE wrote for
/// a single size: bytes, bandwidth in units of 2^20 bits/s, seconds.
fn parse(text: &str, size: usize) -> Option<f64> {
    let mut lines = text.lines();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[bytes, bandwidth, seconds] = fields.as_slice() else {
        return None;
    };
    let bandwidth: f64 = bandwidth.parse().ok()?;
    let us = 1e6 * seconds.parse::<f64>().ok()?;
    // Written to 10 ns only, the time is too coarse for short messages. But the
    // bandwidth is understood only where it says the same.
    let one_way_us = (8 * size) as f64 / (bandwidth * 1.048_576);
    let alike = (one_way_us - us).abs() <= 0.01 + 0.01 * us;
    (bytes.parse() == Ok(size) && one_way_us > 0.0 && alike).then_some(one_way_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bandwidth_is_read_and_the_time_agrees() {
        let us = |text, size| parse(text, size).map(|us| (us * 1e4).round() / 1e4);
        assert_eq!(
            us("   65536 5786.169567   0.00008641\n", 65_536),
            Some(86.413)
        );
        // The time alone would be 0.26.
        assert_eq!(us("       8 238.164322   0.00000026\n", 8), Some(0.2563));
        assert_eq!(us("1 0.003815 0.00200000\n", 1), Some(1_999.841_3));
    }

    #[test]
    fn what_is_no_figure_of_this_size_is_refused() {
        for text in [
            "",
            "\n",
            "65536 5786.169567",
            "65536 5786.169567 0.00008641 7",
            "65536 5786.169567 0.00008641\n65539 5786.2 0.00008641\n",
            "65539 5786.169567 0.00008641\n",
            "65536 nan 0.00008641\n",
            "65536 inf 0.00000000\n",
            "65536 -5786.169567 -0.00008641\n",
            "65536 fast 0.00008641\n",
            // In units of 10^6 bits/s.
            "65536 6067.238683 0.00008641\n",
        ] {
            assert_eq!(parse(text, 65_536), None, "{text:?}");
        }
    }

    #[test]
    fn trials_share_a_slice() {
        assert_eq!(count_in(60_000_000, 10.0), 1_000);
        assert_eq!(count_in(1_000_000, 1_000.0), COUNT_MIN);
        assert_eq!(count_in(u64::MAX, 0.1), COUNT_MAX);
    }

    #[test]
    fn the_method_says_what_was_chosen() {
        let (size, case) = (8, |size, buffers| Case { size, buffers });
        let cold = case(size, Buffers::Cold);
        let results = File::open("/dev/null").unwrap();
        let mut fastest = Fastest::new();
        // The second is faster.
        let us = |variant| Ok([2.0, 1.0][variant]);
        fastest.of(cold, 2, us, |us| *us).unwrap();
        let netpipe = Netpipe {
            kind: Kind::Mpich,
            cores: [0, 1],
            results,
            fastest,
        };
        assert_eq!(
            netpipe.method(cold),
            "MPIR_CVAR_NOLOCAL=1 UCX_TLS=sm,self mpirun.mpich -launcher fork -bind-to none NPmpich2 -I"
        );
        assert_eq!(
            netpipe.method(case(size, Buffers::Warm)),
            "mpirun.mpich -launcher fork -bind-to none NPmpich2"
        );
    }
}
