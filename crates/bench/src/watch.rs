//! The machine while a bench runs.

use super::host::{CpuTime, Host};
use super::report::{Report, Row};

/// What a report says of the machine, from the bench's begin to its end.
pub struct Watch {
    /// The machine; who starts ranks notes their cores.
    pub host: Host,
    before: CpuTime,
}

impl Watch {
    /// The bench begins, in a lab or not.
    pub fn begin(lab: Option<&str>) -> Self {
        let host = Host {
            lab: lab.map(str::to_owned),
            ..Host::here()
        };
        Self {
            host,
            before: CpuTime::now(),
        }
    }

    /// The bench ends with these figures; claims and remarks may be added.
    pub fn report(self, bench: &str, rows: Vec<Row>) -> Report {
        Report {
            bench: bench.to_owned(),
            host: self.host,
            rows,
            ratios: Vec::new(),
            steal: CpuTime::now().steal_since(&self.before),
            remarks: Vec::new(),
        }
    }
}
