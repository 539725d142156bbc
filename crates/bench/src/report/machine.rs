//! What machine this is, and how much of it others took.

use std::fs;

use portolan_sys::clock;
use portolan_sys::features::Disabled;
use serde::{Deserialize, Serialize};

/// The machine, for the reader of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine type.
    pub arch: String,
    /// Processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Where endpoints take the time from: `tsc`, the processor's counter itself, or the kernel,
    /// with its clocksource. `None` in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Memory, MB.
    pub memory_mb: u64,
    /// Portolan's version.
    pub portolan: String,
    /// The core of each rank, by rank.
    pub pinned: Vec<Option<usize>>,
    /// The lab's name, where the ranks ran in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab: Option<String>,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let names = rustix::system::uname();
        let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        Self {
            name: text(names.nodename()),
            kernel: text(names.release()),
            arch: text(names.machine()),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            clock: Some(clock()),
            memory_mb: field("/proc/meminfo", "MemTotal")
                .and_then(|value| value.trim_end_matches(" kB").parse::<u64>().ok())
                .unwrap_or(0)
                / 1000,
            portolan: env!("CARGO_PKG_VERSION").to_owned(),
            pinned: Vec::new(),
            lab: None,
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let place = match &self.lab {
            Some(lab) => format!("lab {lab} on {}", self.name),
            None => self.name.clone(),
        };
        let cores: Vec<String> = self
            .pinned
            .iter()
            .map(|core| core.map_or("any".to_owned(), |core| core.to_string()))
            .collect();
        let bound = match cores.as_slice() {
            [] => String::new(),
            cores => format!("; ranks on cores {}", cores.join(", ")),
        };
        let clock = self.clock.as_deref().unwrap_or("unknown");
        format!(
            "{place}: {}, {} cores, Linux {}, clock {clock}{bound}",
            self.cpu, self.cores, self.kernel
        )
    }
}

fn clock() -> String {
    let is_off = Disabled::from_env().is_ok_and(|it| it.tsc);
    if !is_off && clock::is_tsc() {
        return "tsc".to_owned();
    }
    let source = clock::source();
    format!("kernel ({})", source.as_deref().unwrap_or("unknown"))
}

/// The value of the first line `name : value` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

/// CPU time of the whole machine so far, in ticks: all of it, and stolen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    all: u64,
    stolen: u64,
}

impl CpuTime {
    /// Now; zero where /proc does not say.
    #[must_use]
    pub fn now() -> Self {
        fs::read_to_string("/proc/stat")
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    /// user, nice, system, idle, iowait, irq, softirq, steal; what follows is
    /// contained in user and nice already.
    fn parse(stat: &str) -> Self {
        let times: Vec<u64> = stat
            .lines()
            .find_map(|line| line.strip_prefix("cpu "))
            .map(|line| {
                line.split_whitespace()
                    .take(8)
                    .map_while(|n| n.parse().ok())
                    .collect()
            })
            .unwrap_or_default();
        Self {
            all: times.iter().sum(),
            stolen: times.get(7).copied().unwrap_or(0),
        }
    }

    /// The share that was stolen between `earlier` and this.
    #[must_use]
    pub fn steal_since(&self, earlier: &Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        if all == 0 {
            0.0
        } else {
            self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_time() {
        let before = CpuTime::parse("cpu  100 0 50 800 20 0 10 20 7 0\ncpu0 1 2 3\n");
        assert_eq!(
            before,
            CpuTime {
                all: 1000,
                stolen: 20
            }
        );
        let after = CpuTime::parse("cpu  150 0 60 1500 30 0 10 50 7 0\n");
        assert_eq!(after.steal_since(&before), 30.0 / 800.0);
        assert_eq!(before.steal_since(&before), 0.0);
        assert_eq!(CpuTime::parse("intr 5"), CpuTime::default());
    }

    #[test]
    fn this_machine_has_a_name_and_cores() {
        let machine = Machine::here();
        assert!(!machine.kernel.is_empty() && machine.cores > 0 && machine.memory_mb > 0);
        assert!(machine.line().contains(&machine.kernel));
        let clock = machine.clock.as_deref().unwrap();
        assert!(clock == "tsc" || clock.starts_with("kernel ("), "{clock}");
    }
}
