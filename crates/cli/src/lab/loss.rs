//! Random loss at the switch's ports.

use std::borrow::Borrow;
use std::error::Error;

use aya::maps::{Array, HashMap, MapData};
use aya::programs::tc::{self, SchedClassifierLinkId};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::util::KernelVersion;
use aya::{Ebpf, include_bytes_aligned};

use super::{Lab, tool, wires};
use crate::failure::{Failure, Result};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/loss.bpf.o"));

/// A port in the program's map: seed, packets judged, packets dropped.
pub(super) type Port = [u64; 3];

/// What loss did to packets, at all ports together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounters {
    /// Packets taken away.
    pub dropped: u64,
    /// Packets let through.
    pub passed: u64,
}

/// Loss at every port of a lab's switch towards a host, so that a packet
/// between two hosts is judged once. Dropping it ends the loss; so does the
/// end of the process, however it comes, from Linux 6.6.
pub struct Loss {
    lab: Lab,
    program: Option<Ebpf>,
}

impl Loss {
    /// Begins, with 0 percent. Under the same `seed` the n-th packet through
    /// a port always has the same fate.
    ///
    /// # Errors
    /// Not root, or the kernel refused the program.
    pub fn attach(lab: &Lab, seed: u64) -> Result<Self> {
        let program = lab.in_switch(|| attach(lab, seed))?;
        Ok(Self {
            lab: lab.clone(),
            program: Some(program),
        })
    }

    /// Changes the share of packets that are lost, percent of 0 to 100.
    ///
    /// # Errors
    /// It is not between 0 and 100.
    pub fn set_percent(&mut self, percent: f64) -> Result<()> {
        let limit = threshold(percent)?;
        set_threshold(self.program.as_mut().expect("held until drop"), limit)
    }

    /// What happened since it began.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> Result<LossCounters> {
        let map = self
            .program
            .as_ref()
            .and_then(|program| program.map("ports"));
        let map: HashMap<_, u32, Port> = map
            .ok_or_else(bad_object)?
            .try_into()
            .map_err(failed("opening a map"))?;
        count(&map)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        let program = self.program.take();
        // The older kind of link is found by its device, in this namespace.
        let _ = self.lab.in_switch(|| {
            drop(program);
            if !has_links() {
                remove_queue(&self.lab);
            }
            Ok(())
        });
    }
}

/// Whether the kernel has links for this kind of program, which vanish with
/// their descriptor. Before, a filter is attached to a queue of the device.
pub(super) fn has_links() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

fn attach(lab: &Lab, seed: u64) -> Result<Ebpf> {
    attach_where(lab, seed, |_, _, _| Ok(()))
}

/// Attaches within the switch's network, and shows each host's link.
pub(super) fn attach_where(
    lab: &Lab,
    seed: u64,
    mut each: impl FnMut(&mut SchedClassifier, u32, SchedClassifierLinkId) -> Result<()>,
) -> Result<Ebpf> {
    let mut bpf = Ebpf::load(OBJECT).map_err(failed("loading the loss program"))?;
    let map = bpf.map_mut("ports").ok_or_else(bad_object)?;
    let mut map: HashMap<_, u32, Port> = map.try_into().map_err(failed("opening a map"))?;
    for host in 0..lab.shape.hosts {
        let index = wires::index(&format!("h{host}"))?;
        // Ports of one seed draw differently.
        let port = [
            seed ^ u64::from(host + 1).wrapping_mul(0xd6e8_feb8_6659_fd93),
            0,
            0,
        ];
        map.insert(index, port, 0)
            .map_err(failed("filling a map"))?;
    }
    if !has_links() {
        remove_queue(lab);
    }
    let program: &mut SchedClassifier = bpf
        .program_mut("loss")
        .ok_or_else(bad_object)?
        .try_into()
        .map_err(failed("opening the loss program"))?;
    program.load().map_err(failed("loading the loss program"))?;
    for host in 0..lab.shape.hosts {
        let port = format!("h{host}");
        if !has_links() {
            match tc::qdisc_add_clsact(&port) {
                // The line has it too.
                Err(_) if lab.shape.line.is_some() => {}
                added => added.map_err(failed("adding a clsact queue"))?,
            }
        }
        let link = program
            .attach(&port, TcAttachType::Egress)
            .map_err(failed("attaching the loss program"))?;
        each(program, host, link)?;
    }
    Ok(bpf)
}

/// Removes what a process that was killed left on an old kernel.
fn remove_queue(lab: &Lab) {
    for host in 0..lab.shape.hosts {
        // Mostly there is none.
        let _ = tool::run(
            "tc",
            &["filter", "del", "dev", &format!("h{host}"), "egress"],
            &[],
        );
    }
}

pub(super) fn set_threshold(bpf: &mut Ebpf, limit: u64) -> Result<()> {
    let map = bpf.map_mut("threshold").ok_or_else(bad_object)?;
    let mut map: Array<_, u64> = map.try_into().map_err(failed("opening a map"))?;
    map.set(0, limit, 0).map_err(failed("setting the loss"))
}

/// Percent in parts of 2^32.
pub(super) fn threshold(percent: f64) -> Result<u64> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(Failure::usage(format!(
            "a loss of {percent} percent cannot be: give one from 0 to 100"
        )));
    }
    // Within 0 to 2^32, so nothing is cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((percent / 100.0 * 4_294_967_296.0).round() as u64)
}

pub(super) fn count<M: Borrow<MapData>>(map: &HashMap<M, u32, Port>) -> Result<LossCounters> {
    let mut sum = LossCounters::default();
    for entry in map.iter() {
        let (_, [_, judged, dropped]) = entry.map_err(failed("reading a map"))?;
        sum.dropped += dropped;
        // Read while packets pass: the two counts are not of one moment.
        sum.passed += judged.saturating_sub(dropped);
    }
    Ok(sum)
}

pub(super) fn bad_object() -> Failure {
    Failure::new("the built-in loss program lacks a part: build portolan again")
}

/// Tells a failure and all that caused it. For `map_err`.
pub(super) fn failed<E: Error>(doing: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| {
        let mut text = format!("{doing}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Failure::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_becomes_parts() {
        assert_eq!(threshold(0.0).unwrap(), 0);
        assert_eq!(threshold(50.0).unwrap(), 1 << 31);
        assert_eq!(threshold(100.0).unwrap(), 1 << 32);
        for bad in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            assert!(threshold(bad).is_err(), "{bad}");
        }
    }
}
